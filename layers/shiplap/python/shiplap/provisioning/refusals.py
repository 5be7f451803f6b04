"""Pods that no node of theirs ever takes: how many nodes may be launched for one of them, and when the next one.

A plan knows what the API server shows. What else can keep a pod off its node, it does not: a neighbour that taints each
node as it comes, an admission rule, a scheduler with rules of its own. Without a limit such a pod would cost a node
every few minutes for as long as it exists.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from shiplap.api.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import Refusals
from shiplap.provisioning.world import World
from shiplap.scheduling.plan import Unschedulable
from shiplap.scheduling.pods import TERMINAL, comes_back
from shiplap.scheduling.snapshot import ClusterView

_LOG = logging.getLogger(__name__)

PATIENCE_S = 45.0
"""How long a complete node may be without a pod that it was launched for, in seconds: kube-scheduler backs off for ten,
and takes its time over thousands of pods."""

FREE = 3
"""Nodes that may be launched for a pod one right after the other."""

MOST = 6
"""Nodes that are launched for one pod at most, as long as it is remembered (`ports.REFUSED_FOR_S`)."""

FIRST_PAUSE_S = 900.0
"""The pause before the next node once FREE of them were in vain, in seconds; it doubles with each further one."""

IN_VAIN_S = 3600.0
"""How long a complete node is kept for a pod that does not run on it, in seconds. A kube-scheduler that is down for a
while must not cost nodes; a pod that something unknown keeps off must not keep one for ever."""

MOST_MARKS = 100
"""Pods marked by one sweep: each is a write, and pods that wait are planned for later."""

_SEEN = frozenset({ClaimState.INITIALIZED, ClaimState.DISRUPTING, ClaimState.DRAINING, ClaimState.TERMINATING})


def note_refusals(
    cluster: str, claims: Iterable[NodeClaim], view: ClusterView, known: Mapping[str, Refusals], world: World
) -> Mapping[str, Refusals]:
    """Write down which pods still wait although a node of theirs is complete; what is known then, by uid.

    Args:
        cluster: its name.
        claims: all that are not over.
        view: the cluster.
        known: what was written down before.
        world: state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    now = world.clock.now()
    found = refused(claims, view, known, now)
    after = dict(known)
    for uid, names in list(found.items())[:MOST_MARKS]:
        for name in names:
            world.state.mark_refused(cluster, uid, name, now)
        after[uid] = Refusals((*known.get(uid, Refusals()).claims, *names), now)
    if found:
        world.meter.count("PodsRefused", len(found))
        _LOG.warning("pods run on no node of theirs", extra={"cluster": cluster, "pods": sorted(found)[:20]})
    return after


def refused(
    claims: Iterable[NodeClaim], view: ClusterView, known: Mapping[str, Refusals], now: float
) -> dict[str, tuple[str, ...]]:
    """The names of complete nodes' claims that pods they were launched for wait in spite of, by uid; sorted.

    A node whose room other pods have taken does not count, and neither does one that turned out too small.
    """
    pending = {pod.metadata.uid for pod in view.unbound if _waits(pod)} - {""}
    if not pending:
        return {}
    found: dict[str, list[str]] = {}
    for claim in sorted(claims, key=lambda item: item.name):
        if claim.state not in _SEEN or claim.missed or not claim.node_name:
            continue
        if claim.state is ClaimState.INITIALIZED and now - claim.changed_at < PATIENCE_S:
            continue
        wanted = {pod.uid for pod in claim.pods}
        if not wanted & pending or _is_taken(view.by_node.get(claim.node_name, ()), wanted):
            continue
        for uid in wanted & pending:
            if claim.name not in known.get(uid, Refusals()).claims:
                found.setdefault(uid, []).append(claim.name)
    return {uid: tuple(found[uid]) for uid in sorted(found)}


def _is_taken(on_node: Iterable[Pod], wanted: Collection[str]) -> bool:
    """Whether pods that their node was not launched for stay on it."""
    return any(pod.metadata.uid not in wanted and comes_back(pod) for pod in on_node)


def set_aside(
    view: ClusterView, known: Mapping[str, Refusals], now: float
) -> tuple[ClusterView, tuple[Unschedulable, ...]]:
    """The view without the pods that no node is to be launched for now, and what their users are told."""
    reasons = {uid: reason for uid, item in known.items() if (reason := _reason(item, now))}
    aside = [pod for pod in view.pods if pod.metadata.uid in reasons and _waits(pod)] if reasons else []
    if not aside:
        return view, ()
    uids = {pod.metadata.uid for pod in aside}
    left = tuple(pod for pod in view.pods if pod.metadata.uid not in uids)
    told = tuple(
        Unschedulable(
            PodReference(pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid),
            reasons[pod.metadata.uid],
        )
        for pod in sorted(aside, key=lambda item: item.key)
    )
    return replace(view, pods=left), told


def holding(view: ClusterView, known: Mapping[str, Refusals], now: float) -> ClusterView:
    """The view without pods that keep no node: none is launched for them now, or they have waited on one in vain."""
    left, _ = set_aside(view, known, now)
    in_vain = {uid for uid, item in known.items() if now - item.at >= IN_VAIN_S}
    if not in_vain:
        return left
    return replace(left, pods=tuple(pod for pod in left.pods if not (pod.metadata.uid in in_vain and _waits(pod))))


def next_at(item: Refusals) -> float | None:
    """Epoch seconds from which another node may be launched for a pod; None when never again."""
    number = len(item.claims)
    if number >= MOST:
        return None
    return item.at + FIRST_PAUSE_S * (1 << (number - FREE)) if number >= FREE else 0.0


def _reason(item: Refusals, now: float) -> str:
    at = next_at(item)
    if at is not None and now >= at:
        return ""
    until = "no more are launched" if at is None else f"none is launched before {rfc3339(at)}"
    names = ", ".join(item.claims[-FREE:])
    return (
        f"{len(item.claims)} nodes were launched for it, and it runs on none of them ({names}): something beside the "
        f"plan keeps it off, such as a taint set by others; {until}"
    )


def _waits(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.metadata.deletion_timestamp and pod.status.phase not in TERMINAL
