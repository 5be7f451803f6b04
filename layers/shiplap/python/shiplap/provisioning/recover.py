"""Finishes what an invocation that died has begun, and finds what nobody will be reminded of any more.

A claim that is Planned or Launching belongs to the invocation that wrote it until its lease is over. After that anybody
resumes it: its instance is looked for by tag, and only then launched, with the token it always had.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.errors import ConditionFailed
from shiplap.instances.types import InstanceType
from shiplap.kubernetes.objects import Node
from shiplap.provisioning.claims import CORDON, DRAIN, GARBAGE, GRACE_S, explores, fail, is_garbage, renew_pilot
from shiplap.provisioning.drain import is_cordoned
from shiplap.provisioning.launch import Attempt, Ending, Outcome, adopt, launch, release_leases
from shiplap.provisioning.learn import instance_of
from shiplap.provisioning.repair import heal
from shiplap.provisioning.snapshot import NodeClassSupply
from shiplap.provisioning.world import World
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

LAUNCH_TIMEOUT_S = 300.0
"""How long a claim may take to get an instance, in seconds; upstream's launch timeout."""

_ALIVE = ("pending", "running")
_REGISTERING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED})
_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED})
_RUNNING = _REGISTERING | {ClaimState.INITIALIZED, ClaimState.DISRUPTING}
_LEAVING_STEPS = {ClaimState.DRAINING: DRAIN, ClaimState.TERMINATING: "terminate"}


def orphans(claims: Iterable[NodeClaim], owner: str, now: float) -> list[NodeClaim]:
    """Planned and Launching claims that are this owner's, or whose owner cannot be alive any more; by name."""
    waiting = (claim for claim in claims if claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING))
    return sorted((c for c in waiting if c.owner == owner or c.deadline_at <= now), key=lambda c: c.name)


def resume(
    claim: NodeClaim, supply: NodeClassSupply | None, types: dict[str, InstanceType], attempt: Attempt, world: World
) -> Outcome:
    """Bring an orphan to its end: adopt its instance if there is one, launch it otherwise.

    Raises:
        StoreError: the state cannot be written.
        AwsError: instances cannot be described.
    """
    world.meter.count("ClaimsResumed")
    try:
        instance = world.compute.find(claim.cluster, claim.name)
        if instance is not None and instance.state not in _ALIVE:
            return _give_up(claim, f"its instance {instance.id} is {instance.state}", types, world)
        if instance is not None:
            if claim.state is ClaimState.PLANNED:
                claim = world.state.advance(claim, ClaimState.LAUNCHING, owner=attempt.owner)
            return Outcome(Ending.LAUNCHED, adopt(claim, instance, types, attempt, world))
        now = world.clock.now()
        overdue = now > claim.created_at + LAUNCH_TIMEOUT_S
        if overdue and claim.state is ClaimState.LAUNCHING and now < claim.changed_at + GRACE_S:
            return Outcome(Ending.PENDING, claim)  # the last attempt's instance may not be described yet
        if overdue or supply is None:
            reason = f"not launched within {LAUNCH_TIMEOUT_S:g} s" if overdue else "its node class is gone"
            return _give_up(claim, reason, types, world)
    except ConditionFailed as error:
        _LOG.info("claim was taken over: %s", error, extra={"cluster": claim.cluster, "claim": claim.name})
        return Outcome(Ending.LOST, claim)
    return launch(claim, supply, types, attempt, world)


def _give_up(claim: NodeClaim, reason: str, types: dict[str, InstanceType], world: World) -> Outcome:
    claim = fail(claim, reason, world)
    release_leases(claim, types, world)
    return Outcome(Ending.FAILED, claim)


def sweep(settings: ClusterSettings, nodes: Iterable[Node], world: World) -> int:
    """Set a timer for every claim that the lifecycle function should look at and may not have been told of; then have
    sick nodes replaced.

    Returns:
        How many were set. The lifecycle function looks again itself; what is decided here is only where.

    Raises:
        StoreError, AwsError: claims or instances cannot be listed.
    """
    now = world.clock.now()
    cluster = settings.name
    instances = world.compute.instances(cluster)  # before the claims: a claim always exists before its instance
    claims = {claim.name: claim for claim in world.state.claims(cluster)}
    joined = {instance_of(node.spec.provider_id): node for node in nodes}
    alive = {instance.id for instance in instances}
    reasons: dict[str, str] = {}
    for claim in claims.values():
        reason = _reason(claim, joined, alive, now)
        if reason:
            reasons[claim.name] = reason
        if claim.state is ClaimState.LAUNCHED and explores(claim):
            renew_pilot(claim, world)
    for instance in instances:
        if instance.claim and is_garbage(instance, claims.get(instance.claim), now):
            world.meter.count("InstancesWithoutClaim")
            _LOG.warning(
                "instance without a claim",
                extra={"cluster": cluster, "claim": instance.claim, "instance_id": instance.id},
            )
            reasons[instance.claim] = GARBAGE
    for name in sorted(reasons):
        world.remind(cluster, name, reasons[name], 0)
    heal(settings, tuple(claims.values()), joined, world)
    return len(reasons)


def _reason(claim: NodeClaim, joined: Mapping[str, Node], alive: set[str], now: float) -> str:
    node = joined.get(claim.instance_id)
    if claim.state in _LEAVING_STEPS:
        return _LEAVING_STEPS[claim.state]
    if claim.state in _REGISTERING and node is not None:
        return "register" if claim.state is ClaimState.LAUNCHED else "initialize"
    if claim.state in _IN_SERVICE and (node is not None) == bool(claim.deadline_at):
        return "returned" if claim.deadline_at else "node gone"
    if claim.cordoned and node is not None and not is_cordoned(node):
        return CORDON
    return _overdue(claim, alive, now)


def _overdue(claim: NodeClaim, alive: set[str], now: float) -> str:
    if claim.state in _RUNNING and claim.instance_id not in alive and claim.changed_at + GRACE_S < now:
        return "vanished"
    if claim.state is ClaimState.LAUNCHED and claim.deadline_at <= now:
        return "join"
    return ""
