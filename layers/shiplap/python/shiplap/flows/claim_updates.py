"""Holds the steps that all flows share: naming claims in logs, failing them, giving back their pilot leases."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from shiplap.flows import claim_events
from shiplap.flows.context import FlowContext
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, ClaimState, NodeClaim
from shiplap.manifests.times import seconds
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

GRACE_S = 120.0
"""How long describing may lag behind a launch before a missing instance, or a missing claim, means something."""

DRAIN = "drain"
"""The step of a timer for the next round of emptying a node."""

RESERVATION = "reservation"
"""The step of a timer for a capacity reservation that starts."""

DISRUPTION = "disruption"
"""The step of a timer for the next look of `disrupt` at the cluster."""

NO_CLAIM = "*"
"""The claim of a timer that is about the whole cluster."""

CORDON = "cordon"
"""The step of a timer for a node that takes no more pods."""

REBOOT = "reboot"
"""The step of a timer for the next step of a reboot."""

ENDED = "ended"
"""The step of a timer for an instance of which AWS says that it has ended."""

GARBAGE = "garbage"
"""The step of a timer that points at an instance rather than at a claim."""


def facts(claim: NodeClaim) -> dict[str, str]:
    """Return the fields of a log line about a claim."""
    return {
        "cluster": claim.cluster,
        "claim": claim.name,
        "instance_id": claim.instance_id,
        "node": claim.node_name,
        "event_id": claim.cause.event_id,
    }


def pool_of(claim: NodeClaim, settings: ClusterSettings) -> NodePool | None:
    """The claim's NodePool, if there still is one."""
    pools = settings.manifests.node_pools
    return next((pool for pool in pools if pool.metadata.name == claim.plan.node_pool), None)


def grace_of(claim: NodeClaim, settings: ClusterSettings) -> str | None:
    """The terminationGracePeriod of a claim, a duration."""
    return claim.plan.grace(pool_of(claim, settings))


def grace_ends_at(claim: NodeClaim, settings: ClusterSettings, now: float) -> float | None:
    """Return when a node that begins to leave `now` has used up its terminationGracePeriod; None without one.

    Both in epoch seconds.
    """
    grace = grace_of(claim, settings)
    return None if grace is None else now + seconds(grace)


def pilot_holder(claim: NodeClaim) -> str:
    """The name under which a claim holds pilot leases; unique in the account."""
    return f"{claim.cluster}/{claim.name}"


def explores(claim: NodeClaim) -> bool:
    """True if the claim's instance is of a type whose estimate nobody had verified when it was planned."""
    return claim.known_instance.type in claim.plan.relies_on_estimate


def renew_pilot(claim: NodeClaim, context: FlowContext) -> None:
    """Keep the lease of a pilot whose node has not reported yet, however long it takes to join."""
    key = (claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash)
    context.capacity.acquire_pilot(*key, pilot_holder(claim), context.clock.now())


def release_pilot(claim: NodeClaim, context: FlowContext) -> None:
    """Give back the lease of a launched claim, if it holds one."""
    if explores(claim):
        context.capacity.release_pilot(
            claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash, pilot_holder(claim)
        )


def fail_claim(claim: NodeClaim, reason: str, context: FlowContext) -> NodeClaim:
    """Write down that a claim failed, and tell. Raises ConditionFailed, StoreError."""
    now = context.clock.now()
    claim = context.state.advance(claim, ClaimState.FAILED, failure=reason, changed_at=now)
    context.meter.count("ClaimsFailed")
    _LOG.warning("claim failed: %s", reason, extra=facts(claim))
    context.publish(claim_events.of_claim(claim_events.FAILED, claim, now, reason=reason))
    return claim


class InstanceOwners:
    """Finds which claims of a cluster have, or may still get, which instances."""

    def __init__(self, claims: Iterable[NodeClaim]) -> None:
        claims = tuple(claims)
        living = [claim for claim in claims if claim.state not in FINAL]
        self._known = {name for claim in claims for name in (claim.name, claim.launch.token)} - {""}
        self._holders = {claim.instance_id: claim for claim in living if claim.instance_id}
        self._waiting = {name for claim in living if not claim.instance_id for name in (claim.name, claim.launch.token)}

    def of(self, instance: Instance) -> NodeClaim | None:
        """The claim that has an instance, unless it has ended."""
        return self._holders.get(instance.id)

    def is_unattributed(self, instance: Instance) -> bool:
        """True if nothing but its cluster marks the instance as ours: neither its install nor any claim."""
        return not instance.install and not self._known & {instance.claim, instance.launch}

    def is_garbage(self, instance: Instance, now: float) -> bool:
        """True if no claim has an instance of ours or will ever take it, and it is old enough for that to be certain.

        A claim that waits may get any instance of its launch. EC2 shows what was ended for minutes more, when its claim
        has long been Gone. A stranger may be another install's, from before instances said whose they are.
        """
        if instance.state == "shutting-down" or self.is_unattributed(instance):
            return False
        awaited = bool({instance.claim, instance.launch} & (self._waiting - {""}))
        return self.of(instance) is None and not awaited and instance.launched_at + GRACE_S < now
