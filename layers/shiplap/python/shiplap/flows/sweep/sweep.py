"""The sweep: a fixed list of chores that makes up for lost messages and for changes that AWS sends no event of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from shiplap.disruption.repair.reboots import is_left_over
from shiplap.errors import AwsError
from shiplap.flows.assign_instances import name_instances
from shiplap.flows.claim_updates import CORDON, DRAIN, GARBAGE, GRACE_S, REBOOT, InstanceOwners, explores, renew_pilot
from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.learn import instance_of
from shiplap.flows.lifecycle.drain import is_cordoned
from shiplap.flows.lifecycle.pod_placement import NONE, withdraw
from shiplap.flows.live_settings import AS_DEPLOYED, ManifestState
from shiplap.flows.optional.optional_calls import LAUNCH_TEMPLATES
from shiplap.flows.planning.decision_inputs import DecisionInputs
from shiplap.flows.planning.futile_launches import record_refusals
from shiplap.flows.planning.unproven import record_kinds
from shiplap.flows.policies.active import NO_POLICIES, ActivePolicies
from shiplap.flows.policies.policy import SweptFacts
from shiplap.flows.sweep.capacity_blocks import replace_in_ending_blocks
from shiplap.flows.sweep.instance_network import correct_network
from shiplap.flows.sweep.purchase_options import update_purchase_options
from shiplap.flows.sweep.repair import repair_nodes
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Refusals
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MOST_REMINDERS = 500
"""Timers set by one sweep: each is a request, and pods that wait are planned for after them."""

_Item = TypeVar("_Item")
_TURN_S = 60.0
_REGISTERING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED})
_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED})
_RUNNING = _REGISTERING | {ClaimState.INITIALIZED, ClaimState.DISRUPTING}
_LEAVING_STEPS = {ClaimState.DRAINING: DRAIN, ClaimState.TERMINATING: "terminate"}


class _SweptCluster:
    """A cluster as one sweep reads it. `claims` by name are kept current by the chores that write them."""

    def __init__(
        self,
        settings: ClusterSettings,
        nodes: Iterable[Node],
        context: FlowContext,
        types_for: TypesFor | None,
        inputs: DecisionInputs | None,
        policies: ActivePolicies,
    ) -> None:
        self.policies = policies
        self.settings, self.name, self.context = settings, settings.name, context
        self.types_for, self.inputs = types_for, inputs
        self.now = context.clock.now()
        self.instances = context.compute.instances(self.name)  # before the claims: a claim exists before its instance
        self.claims = {claim.name: claim for claim in context.state.claims(self.name)}
        self.nodes = {instance_of(node.spec.provider_id): node for node in nodes}
        self.owners = InstanceOwners(self.claims.values())
        self.refusals: Mapping[str, Refusals] = {}


def sweep(
    settings: ClusterSettings,
    nodes: Iterable[Node],
    context: FlowContext,
    *,
    types_for: TypesFor | None = None,
    inputs: DecisionInputs | None = None,
    policies: ActivePolicies = NO_POLICIES,
    manifest_state: ManifestState = AS_DEPLOYED,
) -> Mapping[str, Refusals]:
    """Do all of `CHORES` for a cluster, in their order.

    Args:
        settings: the cluster.
        nodes: its Nodes.
        context: the ports.
        types_for: the instance types sold to a claim, asked for only where they matter; None when the cluster is gone.
        inputs: what a decision reads of the cluster; None when it is gone.
        policies: those of the cluster, with what they have read.
        manifest_state: what was found out about the cluster's manifests.

    Returns:
        Pods that do not run on nodes of theirs, as is known then. Of claims nothing: the lifecycle function reads them
        again; the sweep only decides which ones it reads.

    Raises:
        StoreError, AwsError, ClusterError: a chore failed; the rest are done by the next sweep.
    """
    cluster = _SweptCluster(settings, nodes, context, types_for, inputs, policies)
    for chore in CHORES:
        if not (manifest_state.suspended and chore in _ENDING_NODES):
            chore(cluster)
    return cluster.refusals


def renew_pilot_leases(cluster: _SweptCluster) -> None:
    """Keep the leases of pilots whose nodes have not joined yet."""
    for claim in cluster.claims.values():
        if claim.state is ClaimState.LAUNCHED and explores(claim):
            renew_pilot(claim, cluster.context)


def report_other_installs(cluster: _SweptCluster) -> None:
    """Report other installs that launch nodes in this cluster: both give nodes to the same pods, and neither knows."""
    others = cluster.context.compute.other_installs(cluster.name)
    unattributed = sum(cluster.owners.is_unattributed(instance) for instance in cluster.instances)
    if not others and not unattributed:
        return
    cluster.context.meter.count("InstancesOfOtherInstalls", sum(others.values()) + unattributed)
    about = {"cluster": cluster.name, "installs": others, "without_install": unattributed}
    _LOG.warning("instances of this cluster that are not ours are left alone", extra=about)


def set_lost_timers(cluster: _SweptCluster) -> None:
    """Set a timer for every claim that the lifecycle function should look at and may not have been told of."""
    context, now = cluster.context, cluster.now
    alive = {instance.id for instance in cluster.instances}
    reasons: dict[str, str] = {}
    for claim in cluster.claims.values():
        reason = reason_to_visit(claim, cluster.nodes, alive, now)
        if reason:
            reasons[claim.name] = reason
    for instance in cluster.instances:
        if instance.tagged and cluster.owners.is_garbage(instance, now):
            context.meter.count("InstancesWithoutClaim")
            about = {"cluster": cluster.name, "claim": instance.tagged, "instance_id": instance.id}
            _LOG.warning("instance without a claim", extra=about)
            reasons[instance.tagged] = GARBAGE
    for name in without_instance(cluster.nodes, alive, now) - cluster.claims.keys():
        reasons.setdefault(name, GARBAGE)
    for name in in_turn(sorted(reasons), now, MOST_REMINDERS)[:MOST_REMINDERS]:
        context.set_timer(cluster.name, name, reasons[name], 0)


def in_turn(items: Sequence[_Item], now: float, most: int) -> Sequence[_Item]:
    """The same items, rotated if there are more than `most` for one sweep: others come first a minute later."""
    start = int(now // _TURN_S) * most % len(items) if len(items) > most else 0
    return [*items[start:], *items[:start]]


def without_instance(nodes: Mapping[str, Node], alive: set[str], now: float) -> set[str]:
    """Names of claims whose Nodes, by instance id, have outlived their instance; or are not ours, but say so.

    Nodes end in the hundreds, and the cloud's own controller removes them as a rule: it is given time for that.
    """
    left = (node for key, node in nodes.items() if key not in alive and is_silent(node, now))
    return {name for node in left if (name := node.metadata.labels.get(labels.NODE_CLAIM, ""))}


def is_silent(node: Node, now: float) -> bool:
    """True if the node has been silent for a while."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    if ready is None:
        return True
    since = epoch(ready.last_transition_time) if ready.last_transition_time else 0.0
    return ready.status != "True" and since + GRACE_S < now


def reason_to_visit(claim: NodeClaim, joined: Mapping[str, Node], alive: set[str], now: float) -> str:
    """Return why a claim needs a visit now; empty if it needs none."""
    node = joined.get(claim.instance_id)
    if claim.state in _LEAVING_STEPS:
        return _LEAVING_STEPS[claim.state]
    if claim.state in _REGISTERING and node is not None:
        return "register" if claim.state is ClaimState.LAUNCHED else "initialize"
    if claim.state in _IN_SERVICE and (node is not None) == bool(claim.deadline_at):
        return "returned" if claim.deadline_at else "node gone"
    if claim.cordoned and node is not None and not is_cordoned(node):
        return CORDON
    if claim.is_rebooting or (node is not None and is_left_over(claim, node)):
        return REBOOT
    return _overdue(claim, alive, now)


def _overdue(claim: NodeClaim, alive: set[str], now: float) -> str:
    """Return why a claim whose own timer may have been lost should be looked at; empty if it need not be."""
    if claim.state in _IN_SERVICE and 0 < claim.deadline_at <= now:
        return "node gone"
    if claim.state in _RUNNING and claim.instance_id not in alive and claim.changed_at + GRACE_S < now:
        return "vanished"
    if claim.state is ClaimState.LAUNCHED and claim.deadline_at <= now:
        return "join"
    return ""


def name_untagged_instances(cluster: _SweptCluster) -> None:
    """Tag instances that were launched together with the names of their claims."""
    owners = (cluster.owners.of(instance) for instance in cluster.instances if not instance.claim)
    name_instances([claim for claim in owners if claim is not None], cluster.settings, cluster.context)


def correct_networks(cluster: _SweptCluster) -> None:
    """Write to claims which subnet and security groups their instances are in."""
    cluster.claims |= correct_network(cluster.claims, cluster.instances, cluster.context)


def delete_launch_templates(cluster: _SweptCluster) -> None:
    """Delete launch templates that nothing uses any more; one that cannot be deleted is left for another sweep."""
    context = cluster.context
    try:
        deleted = context.within(LAUNCH_TEMPLATES, context.compute).sweep_templates(cluster.name)
    except AwsError as error:  # there are thousands to spare
        context.meter.count("LaunchTemplatesNotSwept")
        _LOG.warning("launch templates not swept: %s", error, extra={"cluster": cluster.name, "code": error.code})
        return
    if deleted:
        context.meter.count("LaunchTemplatesDeleted", deleted)


def leave_capacity_blocks(cluster: _SweptCluster) -> None:
    """Replace nodes in capacity blocks that are about to end."""
    replace_in_ending_blocks(cluster.settings, cluster.claims.values(), cluster.context)


def repair(cluster: _SweptCluster) -> None:
    """Replace nodes that are sick, or whose instances AWS will change."""
    noted = cluster.inputs.state.sick if cluster.inputs is not None else {}
    repair_nodes(cluster.settings, tuple(cluster.claims.values()), cluster.nodes, cluster.context, noted)


def follow_purchases(cluster: _SweptCluster) -> None:
    """Write to claims and Nodes what their instances are paid as."""
    if cluster.types_for is not None:
        update_purchase_options(
            cluster.settings,
            cluster.claims.values(),
            cluster.instances,
            cluster.nodes,
            cluster.types_for,
            cluster.context,
        )


def withdraw_nominations(cluster: _SweptCluster) -> None:
    """Take back nominations of pods that came to nothing."""
    if cluster.inputs is not None and cluster.settings.placement != NONE:
        withdraw(cluster.claims.values(), cluster.inputs.view, cluster.context)


def record_proven_pods(cluster: _SweptCluster) -> None:
    """Write down which kinds of pods nodes have run."""
    if cluster.inputs is not None and cluster.settings.unproven_pod_nodes:
        claims, inputs = tuple(cluster.claims.values()), cluster.inputs
        record_kinds(cluster.name, claims, inputs.view, inputs.state, cluster.context)


def record_pods_refused(cluster: _SweptCluster) -> None:
    """Write down which pods wait although nodes of theirs are complete."""
    if cluster.inputs is not None:
        claims, inputs = cluster.claims.values(), cluster.inputs
        cluster.refusals = record_refusals(cluster.name, claims, inputs.view, inputs.state, cluster.context)


def sweep_of_policies(cluster: _SweptCluster) -> None:
    """Do the chores of optional features."""
    if cluster.inputs is not None:
        inputs = cluster.inputs
        claims = tuple(cluster.claims.values())
        cluster.policies.sweep(SweptFacts(inputs.state, inputs.view, claims, cluster.types_for))


CHORES: tuple[Callable[[_SweptCluster], None], ...] = (
    renew_pilot_leases,
    report_other_installs,
    set_lost_timers,
    name_untagged_instances,
    correct_networks,
    delete_launch_templates,
    leave_capacity_blocks,
    repair,
    follow_purchases,
    withdraw_nominations,
    record_proven_pods,
    record_pods_refused,
    sweep_of_policies,
)
"""What a sweep does, in this order. Timers come before what may fail for one kind of objects."""

_ENDING_NODES = (leave_capacity_blocks, repair)
"""What is left out while a cluster is suspended: nothing could take the place of these nodes."""
