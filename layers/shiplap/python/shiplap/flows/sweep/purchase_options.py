"""Follows how running instances are paid: an instance outlives its capacity reservation, and is on-demand from then on.

EC2 sends no event of it. The claim and the Node say what is true, so that prices, limits, shares of spot and drift are
reckoned with it. The other way round, an instance that somebody moved into a reservation which its NodePool may use
counts as reserved. So it is with the partition of a placement group, which EC2 chooses where no pod does. The claim
comes first: the Node follows whatever its claim says, in this sweep or a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from shiplap.errors import ConditionFailed, ObjectConflict, ObjectNotFound
from shiplap.flows.assign_instances import offering_of
from shiplap.flows.claim_updates import GRACE_S, facts, pool_of
from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.lifecycle.registration import is_registered, update_node
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_RESERVATION_LABELS = (labels.RESERVATION_ID, labels.RESERVATION_TYPE, labels.RESERVATION_INTERRUPTIBLE)
_CHANGEABLE = frozenset({labels.ON_DEMAND, labels.RESERVED})
_IN_USE = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING})

"""What a claim's EC2NodeClass sells as its NodePool sees it, by name."""


def update_purchase_options(
    settings: ClusterSettings,
    claims: Iterable[NodeClaim],
    instances: Sequence[Instance],
    joined: Mapping[str, Node],
    types_for: TypesFor,
    context: FlowContext,
) -> None:
    """Write into claims and Nodes what their instances are paid as, wherever that has changed.

    Args:
        settings: the cluster.
        claims: all of the cluster.
        instances: as EC2 describes them.
        joined: Nodes by instance id.
        types_for: asked only for claims that have to change.
        context: state and cluster are written.

    Raises:
        StoreError, ClusterError, AwsError: what is left is done by a later sweep.
    """
    by_id = {instance.id: instance for instance in instances}
    now = context.clock.now()
    for claim in sorted(claims, key=lambda claim: claim.name):
        if claim.state not in _IN_USE:
            continue
        instance = by_id.get(claim.instance_id)
        known = claim
        if instance is not None and _differs(claim, instance, now):
            known = _update_claim(claim, instance, settings, types_for, context)
        if instance is not None and instance.partition not in ("", known.plan.labels.get(labels.PARTITION)):
            known = _with_partition(known, instance, context)
        node = joined.get(claim.instance_id)
        if node is not None:
            _relabel_node(known, node, context)


def _differs(claim: NodeClaim, instance: Instance, now: float) -> bool:
    """True if EC2 has shown long enough that an instance is paid as something else; spot never changes."""
    changeable = claim.known_instance.capacity_type in _CHANGEABLE and instance.capacity_type in _CHANGEABLE
    if not changeable or instance.launched_at + GRACE_S > now:
        return False
    moved = bool(instance.reservation) and instance.reservation != claim.plan.labels.get(labels.RESERVATION_ID)
    return claim.known_instance.capacity_type != instance.capacity_type or moved


def _update_claim(
    claim: NodeClaim, instance: Instance, settings: ClusterSettings, types_for: TypesFor, context: FlowContext
) -> NodeClaim:
    """The claim as it is then; unchanged when another function moved it, or when its pool wants nothing reserved."""
    offering = offering_of(instance, types_for(claim).get(claim.known_instance.type))
    reserved = instance.capacity_type == labels.RESERVED
    if reserved and (offering is None or not _may_be_reserved(claim, settings)):
        return claim
    marks = {key: value for key, value in claim.plan.labels.items() if key not in _RESERVATION_LABELS}
    marks |= {labels.CAPACITY_TYPE: instance.capacity_type, **_reservation_labels(offering)}
    changes: ClaimChanges = {
        "plan": replace(claim.plan, labels=marks),
        "instance": replace(claim.known_instance, capacity_type=instance.capacity_type),
        "hourly": offering.price if offering is not None else 0.0,
    }
    try:
        changed = context.state.advance(claim, claim.state, **changes)
    except ConditionFailed as error:  # the next sweep looks again
        _LOG.info("claim has moved on: %s", error, extra=facts(claim))
        return claim
    context.meter.count("NodesPromoted" if reserved else "NodesDemoted")
    _LOG.warning(
        "paid as %s, not %s",
        changed.known_instance.capacity_type,
        claim.known_instance.capacity_type,
        extra=facts(claim),
    )
    return changed


def _with_partition(claim: NodeClaim, instance: Instance, context: FlowContext) -> NodeClaim:
    """The claim with the partition of its placement group that EC2 chose for its instance."""
    plan = replace(claim.plan, labels={**claim.plan.labels, labels.PARTITION: instance.partition})
    try:
        return context.state.advance(claim, claim.state, plan=plan)
    except ConditionFailed as error:  # the next sweep looks again
        _LOG.info("claim has moved on: %s", error, extra=facts(claim))
        return claim


def _may_be_reserved(claim: NodeClaim, settings: ClusterSettings) -> bool:
    """True if the NodePool may use reservations: else its node would have drifted by being moved into one."""
    pool = pool_of(claim, settings)
    if pool is None:
        return False
    entry = Requirements.of(pool.spec.template.spec.requirements).get(labels.CAPACITY_TYPE)
    return entry is None or entry.has(labels.RESERVED)


def _reservation_labels(offering: Offering | None) -> dict[str, str]:
    return offering.reservation_labels if offering is not None else {}


def _relabel_node(claim: NodeClaim, node: Node, context: FlowContext) -> None:
    """Give a registered Node its claim's capacity type, reservation and partition; before that, registration does."""
    held = node.metadata.labels
    wanted: dict[str, str | None] = {}
    if claim.known_instance.capacity_type in _CHANGEABLE and held.get(labels.CAPACITY_TYPE) in _CHANGEABLE:
        wanted = {
            labels.CAPACITY_TYPE: claim.known_instance.capacity_type,
            **{key: claim.plan.labels.get(key) for key in _RESERVATION_LABELS},
        }
    if labels.PARTITION in claim.plan.labels:
        wanted[labels.PARTITION] = claim.plan.labels[labels.PARTITION]
    wrong = {key: value for key, value in wanted.items() if held.get(key) != value}
    if not wrong or not is_registered(node):
        return
    try:
        update_node(node, wrong, {}, lambda current: current.spec.taints, context)
    except (ObjectNotFound, ObjectConflict) as error:  # gone, or the next sweep's
        _LOG.info("node not relabelled: %s", error, extra=facts(claim))
