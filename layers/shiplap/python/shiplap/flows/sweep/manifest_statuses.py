"""Writes the statuses of a cluster's live manifests, and reads which NodeClaims and Nodes its users delete.

Statuses and NodeClaim objects are written after all decisions, and nothing depends on them. A NodeClaim or Node that a
user deletes is drained like a node that AWS takes back: see `nodeclaim_objects`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shiplap.disruption.candidates import quiet_since
from shiplap.disruption.commands import Reason
from shiplap.disruption.methods.drift import has_another_spec, pool_hashes_of
from shiplap.errors import ClusterError, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.live_settings import AS_DEPLOYED, KnownManifests, ManifestState, lease_held
from shiplap.flows.optional.optional_calls import MEMORY, SHOWN_OBJECTS
from shiplap.flows.shown_claims import take_steps
from shiplap.flows.sweep.sweep import in_turn
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.instances.readiness.object_statuses import PoolNodes
    from shiplap.kubernetes.objects import Node
    from shiplap.manifests.live.nodeclaim_objects import ClaimDisruption, Deletion

_LOG = logging.getLogger(__name__)

_REASONS = {str(reason): str(reason) for reason in Reason}
_REASONS |= dict.fromkeys(map(str, (NoticeKind.IMPAIRED, NoticeKind.UNHEALTHY)), str(Reason.UNHEALTHY))
MOST_CLAIM_OBJECTS = 200
"""NodeClaim objects written by one sweep: each is a request or two, and ten thousand claims must not hold it up."""


def publish_statuses(
    settings: ClusterSettings,
    context: FlowContext,
    known: KnownManifests,
    manifest_state: ManifestState = AS_DEPLOYED,
) -> None:
    """Write the statuses of a cluster's manifests, and its NodeClaim objects; none while the cluster is suspended.

    Without a NodePool they are written: NodeClaims of users need none, and their EC2NodeClasses have statuses.
    """
    if not settings.live_manifests or not manifest_state.shows_claims:
        return
    try:
        # Karpenter may have begun while this invocation launched nodes.
        if lease_held(settings, replace(context, cluster=context.within(SHOWN_OBJECTS, context.cluster))):
            return
    except ClusterError as error:
        context.meter.count("StatusesNotWritten")
        _LOG.warning("statuses not written: %s", error, extra={"cluster": settings.name})
        return
    from shiplap.flows.sweep.pool_nodes import nodes_of_pools  # noqa: PLC0415 - only for live manifests

    claims: tuple[NodeClaim, ...] = ()
    disruption: dict[str, ClaimDisruption] | None = None

    def count(nodes: Sequence[Node]) -> Mapping[str, PoolNodes]:
        return nodes_of_pools(settings.manifests.node_pools, claims, nodes, disruption, context.clock.now())

    def follow() -> None:
        nonlocal claims, disruption
        claims, disruption = _follow_claim_objects(settings, context)

    for write in (follow, lambda: known.write_statuses(settings, context, count)):
        try:
            write()
        except (ClusterError, StoreError) as error:
            context.meter.count("StatusesNotWritten")
            _LOG.warning("statuses not written: %s", error, extra={"cluster": settings.name})


def _follow_claim_objects(
    settings: ClusterSettings, context: FlowContext
) -> tuple[tuple[NodeClaim, ...], dict[str, ClaimDisruption] | None]:
    """Drain nodes whose objects a user has deleted, and have NodeClaim objects show the claims.

    At most MOST_CLAIM_OBJECTS of them are changed at a time. Returns the claims and their disruption, None if that
    cannot be read.
    """
    from shiplap.manifests.live.nodeclaim_objects import claim_object_changes  # noqa: PLC0415 - only for live manifests

    cluster = context.within(SHOWN_OBJECTS, context.cluster)
    objects = cluster.node_claim_objects()  # before the claims: a claim exists before its object
    claims, now = context.state.claims(settings.name), context.clock.now()
    disruption = disruption_of_claims(claims, settings, context)
    pools, nodes = settings.manifests.node_pools, cluster.nodes()
    changes = claim_object_changes(claims, objects, pools, nodes, settings.install, now, disruption)
    if not settings.paused:
        _drain_deleted(changes.leaving, settings, context)
    statuses = in_turn(changes.statuses, now, MOST_CLAIM_OBJECTS)
    take_steps(replace(changes, statuses=tuple(statuses)), settings, context, most=MOST_CLAIM_OBJECTS)
    return claims, disruption


def disruption_of_claims(
    claims: Sequence[NodeClaim], settings: ClusterSettings, context: FlowContext
) -> dict[str, ClaimDisruption] | None:
    """Return the disruption of claims, by name; None if disruption's memory cannot be read. Raises StoreError."""
    from shiplap.manifests.live.nodeclaim_objects import LEAVING_STATES, ClaimDisruption  # noqa: PLC0415 - as above

    leaving = [claim for claim in claims if claim.state in LEAVING_STATES]
    reasons = {claim.name: _REASONS[claim.failure] for claim in leaving if claim.failure in _REASONS}
    reasons |= {claim.name: str(Reason.UNHEALTHY) for claim in claims if claim.is_rebooting}
    if any(claim.state is ClaimState.DISRUPTING for claim in claims):
        for command in context.state.commands(settings.name):
            reasons |= dict.fromkeys(command.targets, str(command.reason))
    histories = {}
    if settings.disruption.enabled and context.memory is not None:
        try:
            remembered = context.within(MEMORY, context.memory).load(settings.name)
            histories = {item.node: item for item in remembered.histories}
        except StoreError as error:
            context.meter.count("StatusesNotWritten")
            _LOG.warning("memory cannot be read: %s", error, extra={"cluster": settings.name})
            return None
    pools = {pool.metadata.name: pool_hashes_of(pool) for pool in settings.manifests.node_pools}
    found = {}
    for claim in claims:
        history = histories.get(claim.node_name)
        # Of a new spec this is told at once, though the node stays until the spec has stood for a while.
        drifted = has_another_spec(claim.plan.annotations, pools.get(claim.plan.node_pool, {}))
        if history is not None:
            found[claim.name] = ClaimDisruption(
                reasons.get(claim.name, ""),
                drifted or bool(history.drifted_at),
                history.last_pod_event_at,
                quiet_since(history),
            )
        elif claim.name in reasons or drifted:
            found[claim.name] = ClaimDisruption(reasons.get(claim.name, ""), drifted)
    return found


def _drain_deleted(deletions: Sequence[Deletion], settings: ClusterSettings, context: FlowContext) -> None:
    """Have nodes drained. Objects that go because their definition goes are not deleted by a user."""
    cluster = context.within(SHOWN_OBJECTS, context.cluster)
    ending = cluster.ending_definitions() if deletions else ()
    if ending:
        context.meter.count("ClustersSuspended")
        _LOG.warning("no node is drained: CRDs are being deleted: %s", ", ".join(ending))
        return
    for deletion in deletions:
        handle_notice(deletion.claim, Notice(NoticeKind.DELETED, time=deletion.deadline_at), settings, context)
