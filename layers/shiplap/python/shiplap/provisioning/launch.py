"""From a committed claim to its instance: pilot leases, then CreateFleet, each step durable before the next.

Whatever stops this between two effects leaves a claim that `recover` can finish with the same token. Only a refusal
that proves that no instance exists makes a claim Failed; when the outcome is unknown the claim stays Launching.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.errors import AwsError, AwsThrottled, ConditionFailed
from shiplap.instances.types import InstanceType
from shiplap.kubernetes import labels
from shiplap.ports import FleetOverride, FleetRequest, FleetResult, Instance, OfferingFailure
from shiplap.provisioning import events
from shiplap.provisioning.claims import GRACE_S, facts, fail, pilot_holder
from shiplap.provisioning.fleet import counted_on, fleet_options, has_min_values
from shiplap.provisioning.snapshot import NodeClassSupply
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)

LEASE_S = 60.0
"""How long a claim belongs to the invocation that last wrote it, in seconds.

Shorter than an invocation may live, so that a dead one is not waited for. If claims are taken from one that lives and
is merely slow, its next conditional write fails, and the token keeps both to one instance.
"""

_OUTCOME_UNKNOWN = frozenset({"", "IdempotentParameterMismatch", "ServiceUnavailable"})
"""Codes after which an instance may exist all the same: no answer, a failing service, a token already used."""

_BLAMELESS = frozenset({"configuration", "throttled"})
"""Kinds of failure that say nothing about the offering's capacity."""

_MOST_LEASES = 15
"""Estimates one claim explores at most: each costs a conditional write before the launch and one after it."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One invocation: who it is, when it ends at the latest (epoch seconds), how long its nodes may take to join."""

    owner: str
    deadline: float
    join_timeout_s: int


class Ending(StrEnum):
    """How the launch of one claim ended.

    LAUNCHED: an instance runs. FAILED: none does, its pods must be planned again. LOST: another function has taken the
    claim over. PENDING: the outcome is unknown or EC2 asked to slow down; the claim is resumed later.
    """

    LAUNCHED = "launched"
    FAILED = "failed"
    LOST = "lost"
    PENDING = "pending"


class Outcome(msgspec.Struct, frozen=True):
    """`broken` says why nothing more should be launched from the claim's NodeClass now; `throttled` from any."""

    ending: Ending
    claim: NodeClaim
    broken: str = ""
    throttled: bool = False


def launch(
    claim: NodeClaim, supply: NodeClassSupply, types: dict[str, InstanceType], attempt: Attempt, world: World
) -> Outcome:
    """Launch one instance for a Planned or Launching claim and write down what became of it.

    Raises:
        StoreError: the state cannot be written; the claim stays as it is and is resumed.
    """
    try:
        return _launch(claim, supply, types, attempt, world)
    except ConditionFailed as error:  # somebody else advanced the claim: it is theirs
        world.meter.count("ClaimsLost")
        _LOG.info("claim was taken over: %s", error, extra=facts(claim))
        return Outcome(Ending.LOST, claim)


def _launch(
    claim: NodeClaim, supply: NodeClassSupply, types: dict[str, InstanceType], attempt: Attempt, world: World
) -> Outcome:
    if supply.resolved is None or supply.not_ready:
        return _cannot(claim, f"node class {claim.node_class}: {supply.not_ready}", world, types)
    zones = [subnet.zone for subnet in supply.resolved.subnets]
    options = fleet_options(claim, _with_leases(claim, types, world), zones)
    if not options.overrides:
        return _cannot(claim, "no offering of the launch list is available", world, types)
    now = world.clock.now()
    tried = _just_tried(claim, now)
    lease = {"owner": attempt.owner, "deadline_at": now + LEASE_S, "changed_at": now}
    claim = world.state.advance(claim, ClaimState.LAUNCHING, **lease)
    request = FleetRequest(
        claim=claim,
        node_class=supply.node_class,
        resolved=supply.resolved,
        capacity_type=options.capacity_type,
        overrides=options.overrides,
        token=claim.token,
    )
    if claim.first_event_at:
        world.meter.count("EventToLaunch", world.clock.now() - claim.first_event_at, "Seconds")
    try:
        result = world.compute.launch(request)
    except AwsThrottled as error:
        return _later(claim, error, world, throttled=True)
    except AwsError as error:
        if error.code in _OUTCOME_UNKNOWN or tried:  # the refusal says nothing about the attempt before
            return _later(claim, error, world, throttled=False)
        return _fail(claim, str(error), world, types, broken=str(error))
    return _settle(claim, request, result, types, attempt, world)


def _with_leases(claim: NodeClaim, types: dict[str, InstanceType], world: World) -> dict[str, InstanceType]:
    """The types without those whose estimate somebody else explores, or has explored since the plan was made.

    The lease comes first and the second look at what is known after it: the holder before us may have reported and
    given its lease back between our plan and our lease.
    """
    unverified = [types[name] for name in claim.relies_on_estimate if name in types and not types[name].verified]
    if not unverified:
        return types
    dropped = {item.name for item in unverified}
    # A pod of this claim may have missed while it was planned: then it must not meet an estimate again.
    if not world.state.read(claim.cluster, world.clock.now()).missed_pods & {pod.uid for pod in claim.pods}:
        wanted = unverified if has_min_values(claim) else _cheapest(unverified, _MOST_LEASES)
        dropped -= _leased(claim, wanted, world)
    return {name: item for name, item in types.items() if name not in dropped}


def _leased(claim: NodeClaim, wanted: Sequence[InstanceType], world: World) -> set[str]:
    """The names of those whose lease the claim now holds and which are still unknown."""
    holder = pilot_holder(claim)
    now = world.clock.now()
    held = [t for t in wanted if world.capacity.acquire_pilot(t.ami, t.name, t.kubelet_hash, holder, now)]
    learned = world.capacity.learned(sorted({t.ami for t in held}))
    known = {(item.ami, item.instance_type, item.kubelet_hash) for item in learned}
    unknown = set()
    for item in held:
        if (item.ami, item.name, item.kubelet_hash) in known:
            world.capacity.release_pilot(item.ami, item.name, item.kubelet_hash, holder)
        else:
            unknown.add(item.name)
    return unknown


def _cheapest(types: Sequence[InstanceType], most: int) -> list[InstanceType]:
    def price(item: InstanceType) -> tuple[float, str]:
        return min((o.price for o in item.offerings if o.available), default=float("inf")), item.name

    return sorted(types, key=price)[:most]


def release_leases(claim: NodeClaim, types: dict[str, InstanceType], world: World, *, keep: str = "") -> None:
    """Give back the claim's pilot leases, all but that of the type `keep`."""
    for name in claim.relies_on_estimate:
        if name != keep and name in types:
            item = types[name]
            world.capacity.release_pilot(item.ami, item.name, item.kubelet_hash, pilot_holder(claim))


def _settle(
    claim: NodeClaim,
    request: FleetRequest,
    result: FleetResult,
    types: dict[str, InstanceType],
    attempt: Attempt,
    world: World,
) -> Outcome:
    failures = result.failures
    if result.instance is None and not failures:  # EC2 gave neither: do not ask for the same again at once
        failures = tuple(_unexplained(request, override) for override in request.overrides)
    now = world.clock.now()
    for failure in failures:
        world.meter.count("OfferingFailures")
        if failure.kind not in _BLAMELESS:
            world.state.mark_unavailable(claim.cluster, failure, now)
    if result.instance is not None:
        launched = adopt(claim, result.instance, types, attempt, world)
        return Outcome(Ending.LAUNCHED, launched)
    throttled = all(failure.kind == "throttled" for failure in failures)
    misconfigured = [failure for failure in failures if failure.kind == "configuration"]
    broken = f"{misconfigured[0].code}: {misconfigured[0].message}" if misconfigured else ""
    outcome = _fail(claim, _summary(failures), world, types, broken=broken)
    return msgspec.structs.replace(outcome, throttled=throttled)


def _unexplained(request: FleetRequest, override: FleetOverride) -> OfferingFailure:
    return OfferingFailure(
        override.instance_type, override.zone, request.capacity_type, "NoInstance", "unknown", "EC2 gave no reason"
    )


def _summary(failures: Sequence[OfferingFailure]) -> str:
    codes = sorted({failure.code for failure in failures})
    return f"{', '.join(codes)} on {len(failures)} offerings"


def adopt(
    claim: NodeClaim, instance: Instance, types: dict[str, InstanceType], attempt: Attempt, world: World
) -> NodeClaim:
    """Write a launched instance into its Launching claim, tell about it and have the lifecycle look at it in time.

    Raises:
        ConditionFailed: the claim is somebody else's by now.
    """
    instance_type = types.get(instance.instance_type)
    changes: dict[str, Any] = {
        "instance_id": instance.id,
        "instance_type": instance.instance_type,
        "zone": instance.zone,
        "capacity_type": instance.capacity_type,
        "ami": instance.ami,
        "hourly": _price(instance, instance_type),
    }
    if instance_type is not None:
        changes["kubelet_hash"] = instance_type.kubelet_hash
        changes["allocatable"] = counted_on(instance_type, claim)
        changes["ami"] = instance.ami or instance_type.ami
        changes["labels"] = {**_labels(instance, instance_type), **claim.labels}
    now = world.clock.now()
    claim = world.state.advance(
        claim, ClaimState.LAUNCHED, changed_at=now, deadline_at=now + attempt.join_timeout_s, **changes
    )
    release_leases(claim, types, world, keep=instance.instance_type)
    world.meter.count("NodesLaunched")
    _LOG.info("launched", extra={**facts(claim), "instance_type": claim.instance_type, "zone": claim.zone})
    world.tell(events.of_claim(events.LAUNCHED, claim, now))
    world.remind(claim.cluster, claim.name, "join", attempt.join_timeout_s)
    return claim


def _labels(instance: Instance, instance_type: InstanceType) -> dict[str, str]:
    """What the launch settled: every label the type has one value of, and where and how it was bought."""
    settled = {
        item.key: next(iter(item.values))
        for item in instance_type.requirements
        if not item.complement and len(item.values) == 1
    }
    bought = {labels.INSTANCE_TYPE: instance.instance_type, labels.ZONE: instance.zone}
    return {**settled, **bought, labels.CAPACITY_TYPE: instance.capacity_type}


def _price(instance: Instance, instance_type: InstanceType | None) -> float:
    """USD per hour of the offering the instance runs on; 0 when the catalogue does not know it any more."""
    offerings = instance_type.offerings if instance_type is not None else ()
    wanted = (instance.zone, instance.capacity_type)
    return next((item.price for item in offerings if (item.zone, item.capacity_type) == wanted), 0.0)


def _cannot(claim: NodeClaim, reason: str, world: World, types: dict[str, InstanceType]) -> Outcome:
    """Nothing can be asked for."""
    if _just_tried(claim, world.clock.now()):
        return Outcome(Ending.PENDING, claim)
    return _fail(claim, reason, world, types)


def _just_tried(claim: NodeClaim, now: float) -> bool:
    """Whether an earlier attempt may have launched an instance that is not described yet."""
    return claim.state is ClaimState.LAUNCHING and now < claim.changed_at + GRACE_S


def _fail(claim: NodeClaim, reason: str, world: World, types: dict[str, InstanceType], *, broken: str = "") -> Outcome:
    """No instance exists for this claim and none will; its pods are free to be planned again."""
    claim = fail(claim, reason, world)
    release_leases(claim, types, world)
    return Outcome(Ending.FAILED, claim, broken)


def _later(claim: NodeClaim, error: AwsError, world: World, *, throttled: bool) -> Outcome:
    """Leave the claim Launching and without an owner, so that the next invocation resumes it at once."""
    now = world.clock.now()
    claim = world.state.advance(claim, ClaimState.LAUNCHING, deadline_at=now, changed_at=now)
    world.meter.count("LaunchesThrottled" if throttled else "LaunchOutcomesUnknown")
    _LOG.warning("launch left for later: %s", error, extra={**facts(claim), "code": error.code})
    return Outcome(Ending.PENDING, claim, throttled=throttled)
