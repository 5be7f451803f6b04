"""The interrupt flow: AWS takes an instance away, so its node is replaced and then emptied.

This flow decides only that a claim leaves, and by when, in one conditional write. From then on planning treats the pods
of its node as pending. The lifecycle function gets a timer at once, empties the node and ends the instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from shiplap.disruption.commands import OF_POLICIES
from shiplap.errors import ConditionFailed, UnknownCluster
from shiplap.flows import claim_events
from shiplap.flows.claim_updates import CORDON, DRAIN, ENDED, facts, grace_ends_at, pool_of
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.live_settings import stored_settings
from shiplap.flows.messages import rfc3339
from shiplap.flows.policies import active
from shiplap.kubernetes import labels
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Meter, OfferingFailure, StateStore
from shiplap.settings import ClusterSettings, Settings

_LOG = logging.getLogger(__name__)

WARNING_S = 120.0
"""How long before the interruption EC2 warns, in seconds."""

URGENT_S = 12 * 3600.0
"""A scheduled change nearer than this, in seconds, or of an unknown time, drains its nodes whatever budgets say."""

_TRIES = 5
"""Other functions advance a claim too, for example when its node registers; each try reads it again."""

_RUNNING = frozenset(
    {
        ClaimState.LAUNCHED,
        ClaimState.REGISTERED,
        ClaimState.INITIALIZED,
        ClaimState.DISRUPTING,
        ClaimState.DRAINING,
    }
)
_URGENT = (NoticeKind.SPOT, NoticeKind.CAPACITY_RESERVATION, NoticeKind.IMPAIRED, NoticeKind.UNHEALTHY)
_RECLAIMED = (NoticeKind.SPOT, NoticeKind.CAPACITY_RESERVATION, NoticeKind.REBALANCE)
_ENDED = (NoticeKind.STOPPED, NoticeKind.TERMINATED)


def interrupt(
    notice: Notice,
    settings: Settings,
    state: StateStore,
    context_of: Callable[[ClusterSettings], FlowContext],
    meter: Meter,
) -> None:
    """Handle a notice of AWS about instances; those that no claim has are ignored. Or have clusters planned for that
    may use a capacity reservation which has started: whether one waits for it is only known by planning.

    Args:
        notice: what AWS says.
        settings: the clusters of this install.
        state: finds the claims of instances, of whatever cluster.
        context_of: the ports of a cluster; bus, timers and state are used.
        meter: counts.

    Raises:
        StoreError: nothing is lost: the same notice may be handled again.
    """
    if notice.kind is NoticeKind.RESERVATION_STARTED:
        meter.count("ReservationsStarted")
        for cluster in settings.clusters:
            _plan_again(notice, cluster, context_of(cluster))
    for instance_id in notice.instance_ids:
        claim = state.claim_of_instance(instance_id)
        if claim is None:
            meter.count("InstancesNotOurs")
            continue
        try:
            cluster = settings.cluster(claim.cluster)
        except UnknownCluster as error:
            meter.count("UnknownClusters")
            _LOG.warning("dropped: %s", error, extra=facts(claim))
            continue
        context = context_of(cluster)
        handle_notice(claim.name, notice, stored_settings(cluster, context), context)


def _plan_again(notice: Notice, cluster: ClusterSettings, context: FlowContext) -> None:
    """Ask for a plan of a cluster with an EC2NodeClass that selects capacity reservations."""
    current = stored_settings(cluster, context)
    if any(item.spec.capacity_reservation_selector_terms for item in current.manifests.node_classes):
        context.publish(claim_events.reservation_started(cluster.name, notice.reservation, context.clock.now()))


def handle_notice(name: str, notice: Notice, settings: ClusterSettings, context: FlowContext) -> None:
    """Apply a notice to one claim by one conditional write; nothing is written if it was applied before.

    Raises:
        StoreError: nothing is lost: the same notice may be handled again.
    """
    for attempt in range(_TRIES):
        claim = context.state.claim(settings.name, name)
        if claim is None:
            return
        try:
            _respond(claim, notice, settings, context)
        except ConditionFailed:
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _respond(claim: NodeClaim, notice: Notice, settings: ClusterSettings, context: FlowContext) -> None:
    if claim.newer:
        _LOG.warning("%s of a claim that a newer release wrote: it is left alone", notice.kind, extra=facts(claim))
    elif notice.kind in _ENDED and claim.state is ClaimState.TERMINATING:
        context.set_timer(claim.cluster, claim.name, "terminate", 0)
    elif claim.state not in _RUNNING:
        _LOG.info("%s of a claim that is %s", notice.kind, claim.state, extra=facts(claim))
    elif notice.kind is NoticeKind.REBALANCE:
        _follow_rebalance_policy(claim, notice, settings, context)
    elif notice.kind in _ENDED:
        _terminate(claim, notice, context)
    elif notice.kind is NoticeKind.CHANGE_CALLED_OFF:
        _cancel_change(claim, notice, context)
    elif notice.due_at > context.clock.now() + URGENT_S:
        _schedule_change(claim, notice, context)
    else:
        _drain(claim, notice, _deadline(claim, notice, settings, context.clock.now()), context)


def _terminate(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    """The instance has stopped or ended: there is nothing to drain.

    One that never became a node stays Launched until `lifecycle` knows why: else its pods would be planned again at
    once, and the same be launched in vain.
    """
    if claim.state is ClaimState.LAUNCHED:
        context.set_timer(claim.cluster, claim.name, ENDED, 0)
        return
    now = context.clock.now()
    claim = context.state.advance(claim, ClaimState.TERMINATING, failure=notice.kind, changed_at=now)
    context.meter.count("NodesInterrupted")
    _publish_interruption(claim, notice, context)
    _ask_for_replacement(claim, notice, context)
    context.set_timer(claim.cluster, claim.name, "terminate", 0)


def _follow_rebalance_policy(claim: NodeClaim, notice: Notice, settings: ClusterSettings, context: FlowContext) -> None:
    """Replace, cordon or only report, as the annotation of the claim's NodePool says; without one, only report."""
    context.meter.count("RebalanceRecommendations")
    active.rebalanced(claim, context)
    pool = pool_of(claim, settings)
    policy = pool.metadata.annotations.get(shiplap_annotations.REBALANCE) if pool is not None else None
    if policy == shiplap_annotations.REPLACE:
        _drain(claim, notice, _deadline(claim, notice, settings, context.clock.now()), context)
    elif policy == shiplap_annotations.CORDON and claim.state is not ClaimState.DRAINING:
        if not claim.cordoned:
            _mark_unavailable(claim, notice, context)
            claim = context.state.advance(claim, claim.state, cordoned=notice.kind)
            _publish_interruption(claim, notice, context)
        context.set_timer(claim.cluster, claim.name, CORDON, 0)
    else:
        _publish_interruption(claim, notice, context)


def _schedule_change(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    """Store when the change is due. The sweep replaces such nodes in turn, as the budgets of their NodePool allow."""
    if claim.state is not ClaimState.DRAINING and claim.change_at != notice.due_at:
        claim = context.state.advance(claim, claim.state, change_at=notice.due_at)
        context.meter.count("ScheduledChanges")
        _publish_interruption(claim, notice, context)


def _cancel_change(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    """Forget a scheduled change that was cancelled or is over. A node that already drains goes on draining."""
    if claim.change_at and notice.due_at in (0.0, claim.change_at):  # else another change was meant
        claim = context.state.advance(claim, claim.state, change_at=0.0)
        context.meter.count("ScheduledChangesCalledOff")
        _publish_interruption(claim, notice, context)


def _mark_unavailable(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    """Keep launches off an offering that AWS takes back, or soon may."""
    if claim.known_instance.capacity_type in (labels.SPOT, labels.RESERVED) and notice.kind in _RECLAIMED:
        reservation = claim.plan.labels.get(labels.RESERVATION_ID, "")
        lost = OfferingFailure(
            claim.known_instance.type,
            claim.known_instance.zone,
            claim.known_instance.capacity_type,
            notice.kind,
            reservation=reservation,
        )
        context.state.mark_unavailable([lost], context.clock.now())


def _drain(claim: NodeClaim, notice: Notice, deadline_at: float, context: FlowContext) -> None:
    """Have the node drained by the deadline (epoch seconds, 0 for none); an earlier deadline replaces a later one."""
    now = context.clock.now()
    known = claim.state is ClaimState.DRAINING
    if not known:
        _mark_unavailable(claim, notice, context)
        claim = context.state.advance(
            claim, ClaimState.DRAINING, failure=notice.kind, changed_at=now, deadline_at=deadline_at
        )
        context.meter.count("NodesInterrupted")
        if notice.kind is NoticeKind.SPOT:
            active.interrupted(claim, context)
    elif deadline_at and (not claim.deadline_at or deadline_at < claim.deadline_at or claim.failure in OF_POLICIES):
        # A node that leaves for a reason of a policy may be called back, one that AWS takes may not.
        earlier = min(deadline_at, claim.deadline_at or deadline_at)
        claim = context.state.advance(claim, ClaimState.DRAINING, failure=notice.kind, deadline_at=earlier)
        known = False
    if not known:
        _publish_interruption(claim, notice, context)
    # Repeated with a repeated notice: the invocation that wrote the claim may have died before it published.
    _ask_for_replacement(claim, notice, context)
    context.set_timer(claim.cluster, claim.name, DRAIN, 0)


def _deadline(claim: NodeClaim, notice: Notice, settings: ClusterSettings, now: float) -> float:
    """Epoch seconds by which the node must be empty; 0 when nothing presses.

    A scheduled change is days away, and a recommendation is no date at all: only the NodePool's
    terminationGracePeriod, which counts in any case, bounds the wait for the pods. Those of a sick node get as long as
    on spot: many cannot be reached any more, and its replacement should come first. Of a capacity block that ends it is
    known when its instances do.
    """
    grace = grace_ends_at(claim, settings, now)
    deadlines = [] if grace is None else [grace]
    if notice.kind in _URGENT:
        deadlines.append((notice.time or now) + WARNING_S)
    elif notice.kind is NoticeKind.BLOCK_ENDING or (notice.kind is NoticeKind.DELETED and notice.time):
        deadlines.append(notice.time)
    return min(deadlines, default=0.0)


def _ask_for_replacement(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    hint = f"{claim.cluster}/{claim.name}/{notice.kind}/pods"
    context.publish(
        claim_events.pods_pending(claim.cluster, claim.plan.pods, notice.kind, context.clock.now(), event_id=hint)
    )


def _publish_interruption(claim: NodeClaim, notice: Notice, context: FlowContext) -> None:
    _LOG.warning("interrupted: %s", notice.kind, extra=facts(claim))
    deadline = rfc3339(claim.deadline_at) if claim.state is ClaimState.DRAINING and claim.deadline_at else ""
    # A claim may be interrupted in more ways than one, and more than once in one of them.
    of_notice = [str(notice.kind), *([rfc3339(notice.time)] if notice.time else [])]
    about = {"id": "/".join((claim.cluster, claim.name, *of_notice)), "kind": str(notice.kind), "deadline": deadline}
    context.publish(claim_events.of_claim(claim_events.INTERRUPTED, claim, context.clock.now(), **about))
