"""From committed claims to their instances: pilot leases, then CreateFleet, each step durable before the next.

Claims that want the same share a token and are launched by one request. Whatever stops this between two effects leaves
claims that `resume` can finish with the same token. Only a refusal that proves that no instance exists makes a claim
Failed; when the outcome is unknown the claims stay Launching.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable, ConditionFailed, StoreError
from shiplap.flows.assign_instances import Attempt, assign_instances, fail_claims
from shiplap.flows.claim_updates import GRACE_S, facts, pilot_holder
from shiplap.flows.context import FlowContext
from shiplap.flows.planning.decision_inputs import NodeClassSupply
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import FleetOptions, alike, fleet_options, has_min_values
from shiplap.flows.pod_events import publish_for_pods
from shiplap.flows.policies import active
from shiplap.instances.capacity.reported_amounts import reports_of
from shiplap.instances.capacity.trusted_amounts import voices
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.offerings.remedies import remedy, with_remedy
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim
from shiplap.ports import FleetOverride, FleetRequest, FleetResult, Move, OfferingFailure

_LOG = logging.getLogger(__name__)

LEASE_S = 60.0
"""How long a claim belongs to the invocation that last wrote it, in seconds.

Shorter than an invocation may live, so that a dead one is not waited for. If claims are taken from one that lives and
is merely slow, its next conditional write fails, and the token keeps both to the same instances.
"""

_TOKEN_USED = "IdempotentParameterMismatch"  # noqa: S105 - an error code
_OUTCOME_UNKNOWN = frozenset({"", _TOKEN_USED, "ServiceUnavailable"})
"""Codes after which instances may exist all the same: no answer, a failing service, a token already used."""

CAUSES = {
    "capacity": "FailedForCapacity",
    "configuration": "FailedForConfiguration",
    "quota": "FailedForQuota",
    "subnet": "FailedForAddresses",
    "throttled": "FailedForThrottling",
    "transient": "FailedForThrottling",
    "unknown": "FailedForUnknown",
}
"""The metric that counts offerings EC2 refused, by the kind of the refusal."""

_LATER = frozenset({"throttled", "transient"})
"""Kinds of failure after which the same may succeed a little later."""

BLAMELESS = _LATER | {"configuration"}
"""Kinds of failure that say nothing about the offering's capacity."""

_MOST_LEASES = 15
"""Estimates one claim explores at most: each costs a conditional write before the launch and one after it."""


class LaunchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of claims that were to be launched. Another function took over the claims in none of the lists.

    launched: an instance runs. failed: none does, the pods must be planned again. pending: the outcome is unknown or
    EC2 asked to slow down; they are resumed later. `broken` says why nothing more should be launched from their
    NodeClass now; `throttled` from any.
    """

    launched: tuple[NodeClaim, ...] = ()
    failed: tuple[NodeClaim, ...] = ()
    pending: tuple[NodeClaim, ...] = ()
    broken: str = ""
    throttled: bool = False


def launch(
    claims: Sequence[NodeClaim],
    supply: NodeClassSupply,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
    *,
    held: Collection[str] = (),
) -> LaunchOutcome:
    """Launch an instance for each of some Planned or Launching claims of one token, and write down what became of them.

    Args:
        claims: all claims of the token that have no instance.
        supply: their EC2NodeClass.
        types: what it sells, by name.
        attempt: who launches.
        market: what EC2 is willing to give; learns from the answer.
        context: the ports.
        held: ids of instances that other claims of the token have.

    Raises:
        StoreError: the state cannot be written; the claims stay as they are and are resumed.
    """
    claims = sorted(claims, key=lambda claim: claim.name)
    try:
        return _launch(claims, supply, types, attempt, market, context, held)
    except ConditionFailed as error:  # somebody else advanced one of them: they are theirs
        context.meter.count("ClaimsLost", len(claims))
        _LOG.info("claims were taken over: %s", error, extra=facts(claims[0]))
        return LaunchOutcome()


def _launch(
    claims: Sequence[NodeClaim],
    supply: NodeClassSupply,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
    held: Collection[str],
) -> LaunchOutcome:
    if supply.resolved is None or supply.not_ready:
        return _fail_unless_just_tried(
            claims, f"node class {claims[0].plan.node_class}: {supply.not_ready}", types, context
        )
    if claims[0].state is ClaimState.PLANNED and market.is_node_class_unavailable(claims[0].cluster, supply.node_class):
        return _fail_unless_just_tried(
            claims, f"node class {claims[0].plan.node_class}: its last instances ended at once", types, context
        )
    resolved = market.open(supply.resolved)
    zones = [subnet.zone for subnet in resolved.subnets]
    rests = partial(market.is_unavailable, group=supply.resolved.group)
    preferred = market.preferred(claims)
    known = with_leases(claims[0], types, context)
    options = fleet_options(alike(claims), known, zones, rests, preferred, claims[0].launch.requested_from)
    if not options.overrides:
        return _fail_unless_just_tried(claims, "no offering of the launch list is available", types, context)
    claims, refused = within_reservation(claims, options, supply.resolved, types, context)
    if not claims:
        return refused
    now = context.clock.now()
    tried = _just_tried(claims, now)
    count = max(claims[0].launch.together, len(claims))
    claims = context.state.advance_all([_lease(claim, attempt.owner, count, options, now) for claim in claims])
    addresses = market.reserve(options.overrides, resolved, len(claims))
    with _best_effort(context):
        context.state.reserve_addresses(claims[0].launch.token, addresses, now)
    request = FleetRequest(
        claims=tuple(claims),
        node_class=supply.node_class,
        resolved=resolved,
        capacity_type=options.capacity_type,
        overrides=options.overrides,
        token=claims[0].launch.token,
        count=count,
        strategy=attempt.strategies.get(claims[0].plan.node_pool, options.strategy),
        at_least=count if claims[0].launch.atomic else 0,
    )
    if claims[0].cause.first_event_at:
        context.meter.count("EventToLaunch", context.clock.now() - claims[0].cause.first_event_at, "Seconds")
    outcome = _ask(request, types, attempt, market, context, held, tried=tried)
    return replace(outcome, failed=(*refused.failed, *outcome.failed))


def _ask(
    request: FleetRequest,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
    held: Collection[str],
    *,
    tried: bool,
) -> LaunchOutcome:
    """Send the request and write down the answer; `tried` when it may have been sent before."""
    try:
        result = context.compute.launch(request)
    except AwsThrottled as error:
        return _leave_pending(request.claims, error, context, throttled=True)
    except AwsUnavailable as error:
        return _leave_pending(request.claims, error, context, throttled=False)
    except AwsError as error:
        if error.code in _OUTCOME_UNKNOWN or tried:  # the refusal says nothing about the attempt before
            return _leave_pending(request.claims, error, context, throttled=False)
        reason = with_remedy(error.code, str(error))
        return _failed(request.claims, reason, types, context, broken=reason)
    if tried and not result.was_sent:
        _remember_failures(result.failures, (), market, context)
        return _leave_pending(request.claims, AwsError(_summary(result.failures)), context, throttled=False)
    return _assign(request, result, types, attempt, market, context, held)


def within_reservation(
    claims: Sequence[NodeClaim],
    options: FleetOptions,
    resolved: ResolvedNodeClass,
    types: Mapping[str, InstanceType],
    context: FlowContext,
) -> tuple[Sequence[NodeClaim], LaunchOutcome]:
    """The claims for which there is room in the capacity reservation, counted across all functions; the others fail.

    `resolved` as EC2 described it: what launches in flight take is known to the store.
    """
    chosen = options.overrides[0].reservation
    if options.capacity_type != labels.RESERVED or claims[0].state is ClaimState.LAUNCHING:
        return claims, LaunchOutcome()
    held = next((reservation for reservation in resolved.capacity_reservations if reservation.id == chosen), None)
    available = held.available if held is not None else 0
    granted = context.state.take_reserved(chosen, claims[0].launch.token, len(claims), available, context.clock.now())
    if granted == len(claims):
        return claims, LaunchOutcome()
    if claims[0].launch.atomic:  # a part is of no use, and somebody else may use it
        granted = context.state.take_reserved(chosen, claims[0].launch.token, 0, available, context.clock.now())
    return claims[:granted], _failed(claims[granted:], f"capacity reservation {chosen} is used up", types, context)


def with_leases(
    claim: NodeClaim, types: Mapping[str, InstanceType], context: FlowContext
) -> Mapping[str, InstanceType]:
    """The types without those whose estimate somebody else explores, or has explored since the plan was made.

    The lease comes first and the second look at what is known after it: the holder before us may have reported and
    given its lease back between our plan and our lease.
    """
    unverified = [types[name] for name in claim.plan.relies_on_estimate if name in types and not types[name].verified]
    if not unverified:
        return types
    dropped = {instance_type.name for instance_type in unverified}
    # A pod of this claim may have missed while it was planned: then it must not meet an estimate again.
    if not context.state.read(claim.cluster, context.clock.now()).missed_pods & {pod.uid for pod in claim.plan.pods}:
        wanted = unverified if has_min_values(claim) else cheapest_types(unverified, _MOST_LEASES)
        dropped -= _leased(claim, wanted, context)
    return {name: instance_type for name, instance_type in types.items() if name not in dropped}


def _leased(claim: NodeClaim, wanted: Sequence[InstanceType], context: FlowContext) -> set[str]:
    """The names of those whose lease the claim now holds and of which nothing has been learned since the plan."""
    holder = pilot_holder(claim)
    now = context.clock.now()
    held = [t for t in wanted if context.capacity.acquire_pilot(t.ami, t.name, t.kubelet_hash, holder, now)]
    learned = context.capacity.learned(sorted({t.ami for t in held}))
    heard = {
        (entry.ami, entry.instance_type, entry.kubelet_hash): voices(reports_of(entry), claim.cluster)
        for entry in learned
    }
    unknown = set()
    for instance_type in held:
        key = (instance_type.ami, instance_type.name, instance_type.kubelet_hash)
        if heard.get(key, 0) != instance_type.voices:
            context.capacity.release_pilot(instance_type.ami, instance_type.name, instance_type.kubelet_hash, holder)
        else:
            unknown.add(instance_type.name)
    return unknown


def cheapest_types(types: Sequence[InstanceType], most: int) -> list[InstanceType]:
    """Return the types of the lowest prices, the cheapest first and ties by name."""

    def price(instance_type: InstanceType) -> tuple[float, str]:
        return min((o.price for o in instance_type.offerings if o.available), default=float("inf")), instance_type.name

    return sorted(types, key=price)[:most]


def _assign(
    request: FleetRequest,
    result: FleetResult,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
    held: Collection[str],
) -> LaunchOutcome:
    """Give the instances to the claims, then remember which offerings failed.

    In this order: should this function die in between, a repetition still asks for the same and gets the same answer.
    """
    failures = result.failures
    if not result.instances and not failures:  # EC2 gave neither: do not ask for the same again at once
        failures = tuple(_unexplained(request, override) for override in request.overrides)
    free = [instance for instance in result.instances if instance.id not in held]
    launched, failed = assign_instances(request.claims, free, types, attempt, context, failure=_summary(failures))
    market.count_launched(launched)
    _remember_failures(failures, launched, market, context)
    active.refused(failures, types, context)
    if launched:
        return LaunchOutcome(launched=launched, failed=failed)
    throttled = all(failure.kind in _LATER for failure in failures)
    misconfigured = next((failure for failure in failures if failure.kind == "configuration"), None)
    if misconfigured is None:
        _tell_first_pods(failed, failures, context)
        return LaunchOutcome(failed=failed, throttled=throttled)
    broken = with_remedy(misconfigured.code, f"{misconfigured.code}: {misconfigured.message}")
    return LaunchOutcome(failed=failed, broken=broken, throttled=throttled)


def _tell_first_pods(failed: Sequence[NodeClaim], failures: Sequence[OfferingFailure], context: FlowContext) -> None:
    """Tell pods of a quota that only people raise; those of one claim, as the others of the launch failed for the same.

    A full subnet is no news for them: the next subnet may do.
    """
    quotas = [failure for failure in failures if failure.kind == "quota"]
    if failed and _needing_people(quotas) is not None:
        publish_for_pods(failed[0], _summary(quotas), context)


def _needing_people(failures: Sequence[OfferingFailure]) -> OfferingFailure | None:
    return next((failure for failure in failures if remedy(failure.code, failure.message)), None)


def _remember_failures(
    failures: Sequence[OfferingFailure], launched: Sequence[NodeClaim], market: OfferingMarket, context: FlowContext
) -> None:
    """Let this round and the whole account know what failed, and what gives again."""
    if failures:
        context.meter.count("OfferingFailures", len(failures))
        for kind, number in sorted(Counter(failure.kind for failure in failures).items()):
            context.meter.count(CAUSES[kind], number)
    blamed = [failure for failure in failures if failure.kind not in BLAMELESS]
    market.learn(blamed)
    with _best_effort(context):
        if blamed:
            context.state.mark_unavailable(blamed, context.clock.now())
        for offering in market.proven(launched):
            context.state.relieve(offering)


@contextmanager
def _best_effort(context: FlowContext) -> Iterator[None]:
    """Run a write that others had better know of, but nobody depends on: a refusal by the store stops no launch."""
    try:
        yield
    except StoreError as error:
        context.meter.count("MarketNotUpdated")
        _LOG.warning("others will not know what was learned: %s", error)


def _unexplained(request: FleetRequest, override: FleetOverride) -> OfferingFailure:
    return OfferingFailure(
        override.instance_type,
        override.zone,
        request.capacity_type,
        "NoInstance",
        "unknown",
        "EC2 gave no reason",
        group=request.group,
        reservation=override.reservation,
    )


def _summary(failures: Sequence[OfferingFailure]) -> str:
    if not failures:
        return "EC2 gave fewer instances than were asked for, and no reason"
    codes = sorted({failure.code for failure in failures})
    text = f"{', '.join(codes)} on {len(failures)} offerings"
    known = _needing_people(failures)
    if known is None:
        return text
    return with_remedy(known.code, f"{text}: {known.message}" if known.message else text, known.message)


def _fail_unless_just_tried(
    claims: Sequence[NodeClaim], reason: str, types: Mapping[str, InstanceType], context: FlowContext
) -> LaunchOutcome:
    """Nothing can be asked for."""
    if _just_tried(claims, context.clock.now()):
        return LaunchOutcome(pending=tuple(claims))
    return _failed(claims, reason, types, context)


def _lease(claim: NodeClaim, owner: str, together: int, options: FleetOptions, now: float) -> Move:
    """The claim belongs to an invocation, which launches it now."""
    request = replace(claim.launch, owner=owner, together=together, requested_from=options.requested_from)
    return Move(claim, ClaimState.LAUNCHING, {"launch": request, "deadline_at": now + LEASE_S, "changed_at": now})


def _just_tried(claims: Sequence[NodeClaim], now: float) -> bool:
    """True if an earlier attempt may have launched instances that are not described yet."""
    return any(claim.state is ClaimState.LAUNCHING and now < claim.changed_at + GRACE_S for claim in claims)


def _failed(
    claims: Sequence[NodeClaim],
    reason: str,
    types: Mapping[str, InstanceType],
    context: FlowContext,
    *,
    broken: str = "",
) -> LaunchOutcome:
    """No instance exists for these claims and none will; their pods are free to be planned again."""
    return LaunchOutcome(failed=fail_claims(claims, reason, types, context), broken=broken)


def _leave_pending(
    claims: Sequence[NodeClaim], error: AwsError, context: FlowContext, *, throttled: bool
) -> LaunchOutcome:
    """Leave the claims Launching and without an owner, so that the next invocation resumes them at once."""
    now = context.clock.now()
    moves = []
    for claim in claims:
        changes: ClaimChanges = {"deadline_at": now, "changed_at": now}
        if error.code == _TOKEN_USED:
            changes["launch"] = replace(claim.launch, answered_at=now)
        moves.append(Move(claim, ClaimState.LAUNCHING, changes))
    claims = context.state.advance_all(moves)
    context.meter.count("LaunchesThrottled" if throttled else "LaunchOutcomesUnknown")
    _LOG.warning("launch left for later: %s", error, extra={**facts(claims[0]), "code": error.code})
    return LaunchOutcome(pending=claims, throttled=throttled)
