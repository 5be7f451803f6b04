"""What a cluster with live manifests shows of them, and what its users say by deleting NodeClaims and Nodes.

Statuses and NodeClaim objects are written after all decisions, and nothing depends on them. A NodeClaim or Node that a
user deletes is drained like a node that AWS takes back: see `nodeclaim_objects`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.lifecycle.registration import is_ready
from shiplap.flows.live_settings import NO_NODE_POOL, KnownManifests, lease_held
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, RawObject
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.ports import ClusterApi
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.manifests.live.nodeclaim_objects import ClaimObjectChanges, Deletion

_LOG = logging.getLogger(__name__)

MOST_CLAIM_OBJECTS = 200
"""NodeClaim objects written by one sweep: each is a request or two, and ten thousand claims must not hold it up."""


def publish_statuses(settings: ClusterSettings, context: FlowContext, known: KnownManifests) -> None:
    """Write the statuses of a cluster's manifests, and its NodeClaim objects; none while the cluster is suspended."""
    if not settings.live_manifests or settings.suspended not in ("", NO_NODE_POOL):
        return
    try:
        if lease_held(settings, context):  # Karpenter may have begun while this invocation launched nodes
            return
    except ClusterError as error:
        context.meter.count("StatusesNotWritten")
        _LOG.warning("statuses not written: %s", error, extra={"cluster": settings.name})
        return
    writes = (_follow_claim_objects,) if settings.suspended else (known.write_statuses, _follow_claim_objects)
    for write in writes:
        try:
            write(settings, context)
        except (ClusterError, StoreError) as error:
            context.meter.count("StatusesNotWritten")
            _LOG.warning("statuses not written: %s", error, extra={"cluster": settings.name})


def _follow_claim_objects(settings: ClusterSettings, context: FlowContext) -> None:
    """Drain nodes whose objects a user has deleted, and have NodeClaim objects show the claims.

    At most MOST_CLAIM_OBJECTS of them are changed at a time.
    """
    from shiplap.manifests.live.nodeclaim_objects import claim_object_changes  # noqa: PLC0415 - only for live manifests

    objects = context.cluster.node_claim_objects()  # before the claims: a claim exists before its object
    changes = claim_object_changes(
        context.state.claims(settings.name),
        objects,
        settings.manifests.node_pools,
        context.cluster.nodes(),
        settings.install,
        context.clock.now(),
    )
    if not settings.paused:
        _drain_deleted(changes.leaving, settings, context)
    for step in _steps(changes, settings, context)[:MOST_CLAIM_OBJECTS]:
        try:
            step()
        except (ObjectConflict, ObjectNotFound) as error:  # somebody was faster; the next sweep looks again
            _LOG.info("NodeClaim not written: %s", error, extra={"cluster": settings.name})


def _drain_deleted(deletions: Sequence[Deletion], settings: ClusterSettings, context: FlowContext) -> None:
    """Have nodes drained. Objects that go because their definition goes are not deleted by a user."""
    ending = context.cluster.ending_definitions() if deletions else ()
    if ending:
        context.meter.count("ClustersSuspended")
        _LOG.warning("no node is drained: CRDs are being deleted: %s", ", ".join(ending))
        return
    for deletion in deletions:
        handle_notice(deletion.claim, Notice(NoticeKind.DELETED, time=deletion.deadline_at), settings, context)


def _steps(changes: ClaimObjectChanges, settings: ClusterSettings, context: FlowContext) -> list[Callable[[], None]]:
    cluster = context.cluster
    return [
        *(partial(cluster.create_node_claim, body) for body in changes.created),
        *(_status_step(cluster, item, status) for item, status in changes.statuses),
        *(partial(_delete, cluster, item) for item in changes.deleted),
        *(partial(_guard, cluster, node, settings.install) for node in changes.guarded),
        *(partial(_release, node, settings, context) for node in changes.unclaimed),
    ]


def _delete(cluster: ClusterApi, item: RawObject) -> None:
    """Let an object go that shows no claim. The finalizer goes first: our own deletion is not to seem a user's."""
    from shiplap.manifests.live.nodeclaim_objects import FINALIZER, finalizers_of  # noqa: PLC0415 - as above

    metadata, kept = item["metadata"], finalizers_of(item)
    if FINALIZER in kept:
        others = [name for name in kept if name != FINALIZER]
        cluster.set_finalizers("NodeClaim", metadata["name"], others, resource_version=metadata["resourceVersion"])
    if not metadata.get("deletionTimestamp"):
        cluster.delete_node_claim(item)


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
    from shiplap.manifests.live.nodeclaim_objects import FINALIZER  # noqa: PLC0415 - as above

    metadata = node.metadata
    claim: NodeClaim | None = context.state.claim(settings.name, metadata.labels.get(labels.NODE_CLAIM, ""))
    if claim.state in FINAL if claim is not None else not is_ready(node):
        others = [name for name in metadata.finalizers if name != FINALIZER]
        context.cluster.set_finalizers("Node", metadata.name, others, resource_version=metadata.resource_version)


def _status_step(cluster: ClusterApi, item: RawObject, status: RawObject) -> Callable[[], None]:
    metadata = item["metadata"]
    return partial(cluster.write_status, "NodeClaim", "", metadata["name"], status, metadata["resourceVersion"])
