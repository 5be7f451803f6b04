"""Assigns instances to claims: one write for all claims of a launch, so that no instance is given away twice.

A launch of many answers with instances, not with who gets which. Whoever knows of some gives them, by id, to the claims
that have none, by name. Two functions may do so at the same time and know of different instances; hence every claim
that still waits takes part in the write, and whoever comes second reads what the first one wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from shiplap.errors import AwsError
from shiplap.flows import claim_events
from shiplap.flows.claim_updates import facts, pilot_holder
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import INSTANCE_NAMES
from shiplap.flows.policies.active import needs_zone_ids
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, LaunchedInstance, NodeClaim
from shiplap.ports import Instance, Move
from shiplap.scheduling.supply.existing_nodes import assumed_allocatable
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MOST_TIMERS = 10
"""Timers set for one launch. For more, whoever does not join is left to the sweep, which looks every minute."""

MOST_NAMES = 25
"""Instances given their claim's name at once: each is a request of its own, and EC2 takes few of them per second."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One invocation: who it is, when it ends at the latest (epoch seconds), how long its nodes may take to join.

    While `frozen`, nothing that was begun is launched. `join_timeouts` holds what was learned, by NodePool;
    `join_timeout_s` bounds the others.
    `strategies` are the allocation strategies of NodePools that have one of their own, by the pool's name.
    """

    owner: str
    deadline: float
    join_timeout_s: int
    strategies: dict[str, str] = {}
    join_timeouts: Mapping[str, float] = {}
    frozen: bool = False

    def patience_s(self, pool: str) -> float:
        """Seconds after which a node of the NodePool that has not joined is given up."""
        return self.join_timeouts.get(pool, self.join_timeout_s)


def assign_instances(
    claims: Sequence[NodeClaim],
    instances: Sequence[Instance],
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    context: FlowContext,
    *,
    failure: str = "",
) -> tuple[tuple[NodeClaim, ...], tuple[NodeClaim, ...]]:
    """Give instances to Launching claims, tell about it, and have the lifecycle look at them in time.

    Args:
        claims: all claims of one token that have no instance.
        instances: those no claim has.
        types: what the claims' NodeClass sells, by name.
        attempt: who launched.
        context: the ports.
        failure: why there are no more instances; empty when there may be some, and claims without one stay as they are.

    Returns:
        The claims that got an instance; the others, Failed or still Launching.

    Raises:
        ConditionFailed: a claim is somebody else's by now; nothing was written.
    """
    now = context.clock.now()
    claims = sorted(claims, key=lambda claim: claim.name)
    instances = sorted(instances, key=lambda instance: instance.id)[: len(claims)]
    moves = []
    for claim, instance in zip(claims, instances, strict=False):
        changes = launch_changes(claim, instance, types.get(instance.instance_type))
        if needs_zone_ids(context):
            _add_zone_id(changes, instance, types.get(instance.instance_type))
        changes |= {"changed_at": now, "deadline_at": now + attempt.patience_s(claim.plan.node_pool)}
        moves.append(Move(claim, ClaimState.LAUNCHED, changes))
    for claim in claims[len(instances) :]:
        ending = Move(claim, ClaimState.FAILED, {"failure": failure, "changed_at": now})
        moves.append(ending if failure else Move(claim, claim.state))
    written = context.state.advance_all(moves)
    launched, others = written[: len(instances)], written[len(instances) :]
    for claim in launched:
        release_leases(claim, types, context, keep=claim.known_instance.type)
        context.meter.count("NodesLaunched")
        _LOG.info(
            "launched",
            extra={**facts(claim), "instance_type": claim.known_instance.type, "zone": claim.known_instance.zone},
        )
    if launched:
        context.publish(*(claim_events.of_claim(claim_events.LAUNCHED, claim, now) for claim in launched))
    for claim in launched if len(launched) <= MOST_TIMERS else ():
        context.set_timer(claim.cluster, claim.name, "join", attempt.patience_s(claim.plan.node_pool))
    if failure:
        _report_failed(others, types, context)
    return launched, others


def fail_claims(
    claims: Sequence[NodeClaim], reason: str, types: Mapping[str, InstanceType], context: FlowContext
) -> tuple[NodeClaim, ...]:
    """Write down that claims failed, and tell.

    Raises:
        ConditionFailed: a claim is somebody else's by now; nothing was written.
    """
    ending: ClaimChanges = {"failure": reason, "changed_at": context.clock.now()}
    failed = context.state.advance_all([Move(claim, ClaimState.FAILED, ending) for claim in claims])
    _report_failed(failed, types, context)
    return failed


def name_instances(claims: Sequence[NodeClaim], settings: ClusterSettings, context: FlowContext) -> None:
    """Tag instances that were launched together as their claims', as many as EC2 may be asked for at once.

    People read these tags; Shiplap does not need them, so whatever is refused is left for the next sweep. A Name that
    the EC2NodeClass gives its instances stays.
    """
    named = {item.metadata.name for item in settings.manifests.node_classes if "Name" in item.spec.tags}
    for claim in claims[:MOST_NAMES]:
        try:
            context.within(INSTANCE_NAMES, context.compute).name(claim, keeps_name=claim.plan.node_class in named)
        except AwsError as error:
            context.meter.count("InstancesNotNamed")
            _LOG.warning("instances are named later: %s", error, extra={**facts(claim), "code": error.code})
            return


def _report_failed(failed: Sequence[NodeClaim], types: Mapping[str, InstanceType], context: FlowContext) -> None:
    if not failed:
        return
    context.meter.count("ClaimsFailed", len(failed))
    for claim in failed:
        release_leases(claim, types, context)
        _LOG.warning("claim failed: %s", claim.failure, extra=facts(claim))
    now = context.clock.now()
    context.publish(*(claim_events.of_claim(claim_events.FAILED, claim, now, reason=claim.failure) for claim in failed))


def launch_changes(claim: NodeClaim, instance: Instance, instance_type: InstanceType | None) -> ClaimChanges:
    """Return the changes to a claim that a launch settles."""
    launched = LaunchedInstance(
        id=instance.id,
        type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        ami=instance.ami,
        subnet=instance.subnet,
        security_groups=instance.security_groups,
    )
    changes: ClaimChanges = {"instance": launched, "hourly": price_of_instance(claim, instance, instance_type)}
    if instance_type is not None:
        ami, own_hash = instance.ami or instance_type.ami, instance_type.kubelet_hash
        bought = offering_of(instance, instance_type)
        changes["instance"] = msgspec.structs.replace(launched, ami=ami, kubelet_hash=own_hash)
        reserved = bought.reservation_labels if bought is not None else {}
        changes["plan"] = msgspec.structs.replace(
            claim.plan,
            allocatable=assumed_allocatable(instance_type, claim),
            # Of several reservations that it might have been launched into, the node is in one.
            labels={**_settled_labels(instance, instance_type), **claim.plan.labels, **reserved},
        )
    return changes


def _add_zone_id(changes: ClaimChanges, instance: Instance, instance_type: InstanceType | None) -> None:
    """Evidence about spot names zones by their ids."""
    bought = offering_of(instance, instance_type)
    if bought is not None:
        changes["instance"] = msgspec.structs.replace(changes["instance"], zone_id=bought.zone_id)


def release_leases(
    claim: NodeClaim, types: Mapping[str, InstanceType], context: FlowContext, *, keep: str = ""
) -> None:
    """Give back the claim's pilot leases, all but that of the type `keep`."""
    for name in claim.plan.relies_on_estimate:
        if name != keep and name in types:
            instance_type = types[name]
            context.capacity.release_pilot(
                instance_type.ami, instance_type.name, instance_type.kubelet_hash, pilot_holder(claim)
            )


def _settled_labels(instance: Instance, instance_type: InstanceType) -> dict[str, str]:
    """Return the labels that the launch settled.

    They are every label the type has one value of, and where and how it was bought.
    """
    settled = {
        requirement.key: next(iter(requirement.values))
        for requirement in instance_type.requirements
        if not requirement.complement and len(requirement.values) == 1
    }
    bought = {labels.INSTANCE_TYPE: instance.instance_type, labels.ZONE: instance.zone}
    return {**settled, **bought, labels.CAPACITY_TYPE: instance.capacity_type}


def price_of_instance(claim: NodeClaim, instance: Instance, instance_type: InstanceType | None) -> float:
    """USD per hour of the offering the instance runs on.

    Where the catalogue knows none, the highest price of its type in other zones, or else what was planned.
    """
    bought = offering_of(instance, instance_type)
    if bought is not None:
        return bought.price
    offerings = instance_type.offerings if instance_type is not None else ()
    elsewhere = (item.price for item in offerings if item.capacity_type == instance.capacity_type)
    return max(elsewhere, default=claim.hourly)


def offering_of(instance: Instance, instance_type: InstanceType | None) -> Offering | None:
    """The offering an instance runs on, available or not; None when the catalogue does not know it any more."""
    offerings = instance_type.offerings if instance_type is not None else ()
    wanted = (instance.zone, instance.capacity_type, instance.reservation)
    return next((item for item in offerings if (item.zone, item.capacity_type, item.reservation_id) == wanted), None)
