"""Writes NodeClaim objects, and the finalizers of Nodes, as `nodeclaim_objects` says that they should be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.live_settings import AS_DEPLOYED, ManifestState, lease_held
from shiplap.flows.optional.optional_calls import CLAIM_OBJECTS
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, RawObject, is_ready
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.ports import ClusterApi
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.manifests.live.nodeclaim_objects import ClaimObjectChanges

_LOG = logging.getLogger(__name__)

MOST_SHOWN_AT_ONCE = 50
"""Claims whose objects one invocation writes when it has changed them: five requests each. The sweep writes more."""


def show_claims(
    names: Collection[str], settings: ClusterSettings, context: FlowContext, manifest_state: ManifestState = AS_DEPLOYED
) -> None:
    """Have the NodeClaim objects of claims that have just changed show them; none while the cluster is suspended.

    Nothing depends on it: whatever is refused here, or is over MOST_SHOWN_AT_ONCE, is done by the next sweep.
    """
    if not settings.live_manifests or not names or not manifest_state.shows_claims:
        return
    from shiplap.manifests.live.nodeclaim_objects import claim_object_changes  # noqa: PLC0415 - only for live manifests

    chosen, cluster = sorted(names)[:MOST_SHOWN_AT_ONCE], context.within(CLAIM_OBJECTS, context.cluster)
    reading = replace(context, cluster=cluster)
    try:
        if lease_held(settings, reading):
            return
        found = {name: cluster.node_claim_object(name) for name in chosen}
        read = (context.state.claim(settings.name, name) for name in chosen)  # after the objects, as in a sweep
        claims = [claim for claim in read if claim is not None]
        objects = [item for claim in claims if (item := found[claim.name]) is not None]
        nodes = [node for claim in claims if (node := _node_of(claim, reading)) is not None]
        pools = settings.manifests.node_pools
        # What disruption decides of them is left to the sweep, which reads its memory.
        changes = claim_object_changes(claims, objects, pools, nodes, settings.install, context.clock.now(), None)
        take_steps(changes, settings, context)
    except (ClusterError, StoreError) as error:
        context.meter.count("StatusesNotWritten")
        _LOG.warning("NodeClaims not written: %s", error, extra={"cluster": settings.name})


def _node_of(claim: NodeClaim, context: FlowContext) -> Node | None:
    try:
        return context.cluster.node(claim.node_name) if claim.node_name else None
    except ObjectNotFound:
        return None


def take_steps(
    changes: ClaimObjectChanges, settings: ClusterSettings, context: FlowContext, *, most: int | None = None
) -> None:
    """Make the changes, at most so many. Raises ClusterError; what somebody else changed first is left for later."""
    writing = replace(context, cluster=context.within(CLAIM_OBJECTS, context.cluster))
    for step in _steps(changes, settings, writing)[:most]:
        try:
            step()
        except (ObjectConflict, ObjectNotFound) as error:  # the next sweep looks again
            _LOG.info("NodeClaim not written: %s", error, extra={"cluster": settings.name})


def _steps(changes: ClaimObjectChanges, settings: ClusterSettings, context: FlowContext) -> list[Callable[[], None]]:
    """Statuses come last: pods come and go on thousands of nodes every minute."""
    cluster = context.cluster
    return [
        *(partial(cluster.create_node_claim, body) for body in changes.created),
        *(partial(_delete, cluster, item) for item in changes.deleted),
        *(partial(cluster.delete_node_claim, item) for item in changes.ending),
        *(partial(_take_over, cluster, item, settings.install) for item in changes.taken_over),
        *(partial(_take_over, cluster, item, settings.install, is_held=True) for item in changes.marked),
        *(partial(_guard, cluster, node, settings.install) for node in changes.guarded),
        *(partial(_release, node, settings, context) for node in changes.unclaimed),
        *(partial(_annotate, cluster, item, annotations) for item, annotations in changes.annotated),
        *(_status_step(cluster, item, status) for item, status in changes.statuses),
    ]


def _delete(cluster: ClusterApi, item: RawObject) -> None:
    """Let an object go that shows no claim, also if somebody writes to it all the time. Raises ClusterError."""
    try:
        _let_go(cluster, item)
    except ObjectConflict:
        metadata = item["metadata"]
        found = cluster.node_claim_object(metadata["name"])
        if found is not None and found["metadata"]["uid"] == metadata["uid"]:
            _let_go(cluster, found)


def _let_go(cluster: ClusterApi, item: RawObject) -> None:
    """Remove the finalizer, then delete: our own deletion is not to seem a user's."""
    from shiplap.manifests.live.nodeclaim_objects import FINALIZER, finalizers_of  # noqa: PLC0415 - as above

    metadata, kept = item["metadata"], finalizers_of(item)
    if FINALIZER in kept:
        others = [name for name in kept if name != FINALIZER]
        cluster.set_finalizers("NodeClaim", metadata["name"], others, resource_version=metadata["resourceVersion"])
    if not metadata.get("deletionTimestamp"):
        cluster.delete_node_claim(item)


def _take_over(cluster: ClusterApi, item: RawObject, install: str, *, is_held: bool = False) -> None:
    """Write our label on an object; where `is_held`, have the API server keep it until its node has ended."""
    from shiplap.manifests.live.nodeclaim_objects import (  # noqa: PLC0415 - as above
        FINALIZER,
        INSTALL_LABEL,
        finalizers_of,
    )

    metadata, label, kept = item["metadata"], {INSTALL_LABEL: install}, finalizers_of(item)
    cluster.set_finalizers(
        "NodeClaim",
        metadata["name"],
        (*kept, FINALIZER) if is_held and FINALIZER not in kept else kept,
        resource_version=metadata["resourceVersion"],
        labels=label,
    )


def _annotate(cluster: ClusterApi, item: RawObject, annotations: Mapping[str, str]) -> None:
    """Merge annotations into a NodeClaim. Its status follows with the next sweep if that has changed, too."""
    from shiplap.manifests.live.nodeclaim_objects import finalizers_of  # noqa: PLC0415 - as above

    metadata = item["metadata"]
    cluster.set_finalizers(
        "NodeClaim",
        metadata["name"],
        finalizers_of(item),
        resource_version=metadata["resourceVersion"],
        annotations=annotations,
    )


def _guard(cluster: ClusterApi, node: Node, install: str) -> None:
    """Have the API server keep a Node that a user deletes until it is drained."""
    from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL  # noqa: PLC0415 - as above

    metadata = node.metadata
    cluster.set_finalizers(
        "Node",
        metadata.name,
        (*(name for name in metadata.finalizers if name != FINALIZER), FINALIZER),
        resource_version=metadata.resource_version,
        labels={INSTALL_LABEL: install},
    )


def _release(node: Node, settings: ClusterSettings, context: FlowContext) -> None:
    """Let a Node go whose claim has ended, or of which no claim is known and nothing is heard any more.

    A table may have been restored: a node in service without a claim is about to get one again.
    """
    claim: NodeClaim | None = context.state.claim(settings.name, node.metadata.labels.get(labels.NODE_CLAIM, ""))
    if not _is_over(claim, node):
        return
    try:
        _unguard(context.cluster, node)
    except ObjectConflict:  # somebody wrote to it since it was read
        found = context.cluster.node(node.metadata.name)
        if found.metadata.uid == node.metadata.uid and _is_over(claim, found):
            _unguard(context.cluster, found)


def _is_over(claim: NodeClaim | None, node: Node) -> bool:
    return claim.state in FINAL if claim is not None else not is_ready(node.status)


def _unguard(cluster: ClusterApi, node: Node) -> None:
    from shiplap.manifests.live.nodeclaim_objects import FINALIZER  # noqa: PLC0415 - as above

    metadata = node.metadata
    others = [name for name in metadata.finalizers if name != FINALIZER]
    cluster.set_finalizers("Node", metadata.name, others, resource_version=metadata.resource_version)


def _status_step(cluster: ClusterApi, item: RawObject, status: RawObject) -> Callable[[], None]:
    from shiplap.instances.readiness.object_statuses import merge_patch  # noqa: PLC0415 - only for live manifests

    metadata = item["metadata"]
    patch = merge_patch(item.get("status"), status)
    return partial(cluster.write_status, "NodeClaim", "", metadata["name"], patch, metadata["resourceVersion"])
