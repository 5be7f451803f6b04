"""What every flow does with claims alike: naming them in logs, failing them, giving back their pilot leases."""

from __future__ import annotations

import logging

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap.provisioning import events
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)

GRACE_S = 120.0
"""How long describing may lag behind a launch before a missing instance, or a missing claim, means something."""

DRAIN = "drain"
"""The step of a timer for the next round of emptying a node."""

CORDON = "cordon"
"""The step of a timer for a node that takes no more pods."""

GARBAGE = "garbage"
"""The step of a timer that points at an instance rather than at a claim."""


def facts(claim: NodeClaim) -> dict[str, str]:
    """What a log line about a claim carries."""
    return {
        "cluster": claim.cluster,
        "claim": claim.name,
        "instance_id": claim.instance_id,
        "node": claim.node_name,
    }


def pilot_holder(claim: NodeClaim) -> str:
    """The name under which a claim holds pilot leases; unique in the account."""
    return f"{claim.cluster}/{claim.name}"


def explores(claim: NodeClaim) -> bool:
    """Whether the claim's instance is of a type whose estimate nobody had verified when it was planned."""
    return claim.instance_type in claim.relies_on_estimate


def renew_pilot(claim: NodeClaim, world: World) -> None:
    """Keep the lease of a pilot whose node has not reported yet, however long it takes to join."""
    key = (claim.ami, claim.instance_type, claim.kubelet_hash)
    world.capacity.acquire_pilot(*key, pilot_holder(claim), world.clock.now())


def release_pilot(claim: NodeClaim, world: World) -> None:
    """Give back the lease of a launched claim, if it holds one."""
    if explores(claim):
        world.capacity.release_pilot(claim.ami, claim.instance_type, claim.kubelet_hash, pilot_holder(claim))


def fail(claim: NodeClaim, reason: str, world: World) -> NodeClaim:
    """Write down that a claim failed, and tell. Raises ConditionFailed, StoreError."""
    now = world.clock.now()
    claim = world.state.advance(claim, ClaimState.FAILED, failure=reason, changed_at=now)
    world.meter.count("ClaimsFailed")
    _LOG.warning("claim failed: %s", reason, extra=facts(claim))
    world.tell(events.of_claim(events.FAILED, claim, now, reason=reason))
    return claim


def is_garbage(instance: Instance, claim: NodeClaim | None, now: float) -> bool:
    """Whether an instance of ours has no claim that will ever take it, and is old enough for that to be certain."""
    ended = claim is None or claim.state in (ClaimState.FAILED, ClaimState.GONE)
    stray = claim is not None and bool(claim.instance_id) and claim.instance_id != instance.id
    return (ended or stray) and instance.launched_at + GRACE_S < now
