"""Finds what nobody will be reminded of any more: claims whose messages were lost, instances nobody has a claim to."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from shiplap.errors import AwsError
from shiplap.flows.assign_instances import name_instances
from shiplap.flows.claim_updates import CORDON, DRAIN, GARBAGE, GRACE_S, InstanceOwners, explores, renew_pilot
from shiplap.flows.context import FlowContext
from shiplap.flows.learn import instance_of
from shiplap.flows.lifecycle.drain import is_cordoned
from shiplap.flows.lifecycle.pod_placement import NONE, withdraw
from shiplap.flows.planning.decision_inputs import DecisionInputs
from shiplap.flows.planning.futile_launches import record_refusals
from shiplap.flows.planning.unproven_pods import record_kinds
from shiplap.flows.sweep.capacity_blocks import replace_in_ending_blocks
from shiplap.flows.sweep.instance_network import correct_network
from shiplap.flows.sweep.purchase_options import TypesFor, update_purchase_options
from shiplap.flows.sweep.repair import repair_nodes
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance, Refusals
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MOST_REMINDERS = 500
"""Timers set by one sweep: each is a request, and pods that wait are planned for after them."""

_TURN_S = 60.0
_REGISTERING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED})
_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED})
_RUNNING = _REGISTERING | {ClaimState.INITIALIZED, ClaimState.DISRUPTING}
_LEAVING_STEPS = {ClaimState.DRAINING: DRAIN, ClaimState.TERMINATING: "terminate"}


def sweep(
    settings: ClusterSettings,
    nodes: Iterable[Node],
    context: FlowContext,
    *,
    types_for: TypesFor | None = None,
    inputs: DecisionInputs | None = None,
) -> Mapping[str, Refusals]:
    """Set a timer for every claim that the lifecycle function should look at and may not have been told of; then have
    nodes replaced that are sick, or in a capacity block about to end.

    Args:
        settings: the cluster.
        nodes: its Nodes.
        context: the ports.
        types_for: what is sold to a claim, asked for only where it matters; None when the cluster is gone.
        inputs: what was seen of the cluster; None when it is gone.

    Returns:
        Pods that do not run on nodes of theirs, as is known then. Of claims nothing: the lifecycle function looks again
        itself; what is decided here is only where.

    Raises:
        StoreError, AwsError: claims or instances cannot be listed.
    """
    now = context.clock.now()
    cluster = settings.name
    instances = context.compute.instances(cluster)  # before the claims: a claim always exists before its instance
    claims = {claim.name: claim for claim in context.state.claims(cluster)}
    joined = {instance_of(node.spec.provider_id): node for node in nodes}
    alive = {instance.id for instance in instances}
    reasons: dict[str, str] = {}
    for claim in claims.values():
        reason = _reason(claim, joined, alive, now)
        if reason:
            reasons[claim.name] = reason
        if claim.state is ClaimState.LAUNCHED and explores(claim):
            renew_pilot(claim, context)
    holders = InstanceOwners(claims.values())
    for instance in instances:
        if instance.tagged and holders.is_garbage(instance, now):
            context.meter.count("InstancesWithoutClaim")
            about = {"cluster": cluster, "claim": instance.tagged, "instance_id": instance.id}
            _LOG.warning("instance without a claim", extra=about)
            reasons[instance.tagged] = GARBAGE
    _tell_of_others(cluster, holders, instances, context)
    for name in _without_instance(joined, alive, now) - claims.keys():
        reasons.setdefault(name, GARBAGE)
    for name in _in_turn(sorted(reasons), now):
        context.set_timer(cluster, name, reasons[name], 0)
    held = (holders.of(instance) for instance in instances if not instance.claim)
    name_instances([claim for claim in held if claim is not None], context)
    claims |= correct_network(claims, instances, context)
    _sweep_templates(cluster, context)
    replace_in_ending_blocks(settings, claims.values(), context)
    repair_nodes(settings, tuple(claims.values()), joined, context)
    if types_for is not None:
        update_purchase_options(settings, claims.values(), instances, joined, types_for, context)
    if inputs is None:
        return {}
    if settings.placement != NONE:
        withdraw(claims.values(), inputs.view, context)
    if settings.unproven_pod_nodes:
        record_kinds(cluster, tuple(claims.values()), inputs.view, inputs.state, context)
    return record_refusals(cluster, claims.values(), inputs.view, inputs.state, context)


def _tell_of_others(cluster: str, holders: InstanceOwners, instances: Iterable[Instance], context: FlowContext) -> None:
    """Say that another install launches nodes in this cluster: both give nodes to the same pods, and neither knows."""
    others = context.compute.other_installs(cluster)
    strangers = sum(holders.is_unattributed(instance) for instance in instances)
    if not others and not strangers:
        return
    context.meter.count("InstancesOfOtherInstalls", sum(others.values()) + strangers)
    about = {"cluster": cluster, "installs": others, "without_install": strangers}
    _LOG.warning("instances of this cluster that are not ours are left alone", extra=about)


def _in_turn(names: Sequence[str], now: float) -> Sequence[str]:
    """As many as one sweep reminds of; where there are more, the next ones have their turn a minute later."""
    start = int(now // _TURN_S) * MOST_REMINDERS % len(names) if len(names) > MOST_REMINDERS else 0
    return [*names[start:], *names[:start]][:MOST_REMINDERS]


def _without_instance(nodes: Mapping[str, Node], alive: set[str], now: float) -> set[str]:
    """Names of claims whose Nodes, by instance id, have outlived their instance; or are not ours, but say so.

    Nodes end in the hundreds, and the cloud's own controller removes them as a rule: it is given time for that.
    """
    left = (node for key, node in nodes.items() if key not in alive and _is_silent(node, now))
    return {name for node in left if (name := node.metadata.labels.get(labels.NODE_CLAIM, ""))}


def _is_silent(node: Node, now: float) -> bool:
    """Whether nothing has been heard of the node for a while."""
    ready = next((item for item in node.status.conditions if item.type == "Ready"), None)
    if ready is None:
        return True
    since = epoch(ready.last_transition_time) if ready.last_transition_time else 0.0
    return ready.status != "True" and since + GRACE_S < now


def _sweep_templates(cluster: str, context: FlowContext) -> None:
    try:
        deleted = context.compute.sweep_templates(cluster)
    except AwsError as error:  # there are thousands to spare, and there will be another sweep
        context.meter.count("LaunchTemplatesNotSwept")
        _LOG.warning("launch templates not swept: %s", error, extra={"cluster": cluster, "code": error.code})
        return
    if deleted:
        context.meter.count("LaunchTemplatesDeleted", deleted)


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
    """Why a claim whose own timer may have been lost should be looked at."""
    if claim.state in _IN_SERVICE and 0 < claim.deadline_at <= now:
        return "node gone"
    if claim.state in _RUNNING and claim.instance_id not in alive and claim.changed_at + GRACE_S < now:
        return "vanished"
    if claim.state is ClaimState.LAUNCHED and claim.deadline_at <= now:
        return "join"
    return ""
