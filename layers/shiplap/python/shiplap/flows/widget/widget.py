"""Makes the widget of the dashboard: the claims of each cluster, and its pods where they are known.

Whoever looks must learn why there is nothing to see, so what goes wrong is an answer, not an error; it is logged too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.drawing.capture import picture_of_claims
from shiplap.drawing.dashboard_widget import WidgetCluster, WidgetLooks, problem_html, widget_html
from shiplap.drawing.markup import duration
from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import InvalidInput, ShiplapError, StoreError, UnknownCluster
from shiplap.flows.context import FlowContext
from shiplap.kubernetes.compact_pods import decode_pods
from shiplap.kubernetes.objects import Pod
from shiplap.settings import ClusterSettings, Settings

_LOG = logging.getLogger(__name__)

DESCRIPTION = """\
## Shiplap: the nodes of a cluster
Every node is a box as large as its capacity, CPU to the left and memory to the right. In a large cluster it is filled
by its pods, in a small one by what the pods it was launched for request. Boxes stand by NodePool; hatched ones are of
a fallback tier.

### Parameters
``` yaml
cluster: prod  # one cluster; all of the install without
pool: web  # one NodePool; all without
```
"""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """CloudWatch's question; parameters of the widget stand beside what CloudWatch adds."""

    describe: bool = False
    cluster: str = ""
    pool: str = ""
    widget_context: WidgetLooks = WidgetLooks()


def widget(
    event: dict[str, Any], settings: Settings, context_of: Callable[[ClusterSettings], FlowContext], endpoint: str
) -> str:
    """The widget's markup, or its description in Markdown where that is what is asked for.

    Args:
        event: as CloudWatch sends it.
        settings: which clusters there are.
        context_of: the ports of a cluster, of which state, snapshots and clock are used.
        endpoint: ARN of this function, for links that draw another cluster.
    """
    try:
        asked = msgspec.convert(event, _Event)
    except msgspec.ValidationError as error:
        _LOG.warning("the widget was asked what cannot be read: %s", error)
        return problem_html(WidgetLooks(), f"The parameters of this widget cannot be read: {error}")
    if asked.describe:
        return DESCRIPTION
    theme = "dark" if asked.widget_context.theme == "dark" else "light"
    looks = msgspec.structs.replace(asked.widget_context, theme=theme)
    try:
        clusters: Sequence[ClusterSettings] = (settings.cluster(asked.cluster),) if asked.cluster else settings.clusters
    except UnknownCluster as error:
        _LOG.warning("the widget was asked for a cluster that is not configured: %s", error)
        names = ", ".join(cluster.name for cluster in settings.clusters) or "none"
        return problem_html(looks, f"There is no cluster {asked.cluster!r} in this install; its clusters are: {names}.")
    subjects = [_subject(cluster, asked.pool, context_of(cluster)) for cluster in clusters]
    return widget_html(subjects, looks, endpoint=endpoint, several=len(settings.clusters) > 1)


def _subject(cluster: ClusterSettings, pool: str, context: FlowContext) -> WidgetCluster:
    """One cluster; that it cannot be read is no reason not to show the others."""
    note = "Paused: nothing is launched, moved or ended." if cluster.paused else ""
    now = context.clock.now()
    try:
        claims = context.state.claims(cluster.name)
    except ShiplapError as error:
        _LOG.exception("cluster %s cannot be drawn", cluster.name, extra={"cluster": cluster.name})
        return WidgetCluster(ClusterPicture(cluster=cluster.name, taken_at=now), note, f"It cannot be read: {error}")
    wanted = [claim for claim in claims if pool in ("", claim.plan.node_pool)]
    pods, told = _pods(cluster.name, context, now)
    return WidgetCluster(picture_of_claims(cluster.name, now, wanted, pods), note, told=told)


def _pods(cluster: str, context: FlowContext, now: float) -> tuple[Mapping[str, Sequence[Pod]] | None, str]:
    """The pods of a large cluster by node, if its watch function keeps a snapshot of them; and what to say of them."""
    unknown = "Filled by what the pods that each node was launched for request."
    try:
        document = context.snapshots.load(cluster) if context.snapshots is not None else None
        if document is None:
            return None, unknown
        standing, pods = decode_pods(document)
    except (StoreError, InvalidInput) as error:
        _LOG.warning("the pods of cluster %s are not known: %s", cluster, error, extra={"cluster": cluster})
        return None, f"{unknown} The pods' snapshot cannot be read: {error}"
    if not standing.complete or standing.cluster != cluster:
        return None, unknown
    on_node: dict[str, list[Pod]] = {}
    for pod in pods:
        on_node.setdefault(pod.spec.node_name, []).append(pod)
    return on_node, f"Pods as of {duration(max(0.0, now - standing.taken_at))} ago."
