"""Decides which pods a decision plans, which pods it leaves alone, and why.

A pod needs a place elsewhere if its node is on its way out. So claims are paired with their Nodes here, and nodes that
leave or must stay are found. Nothing here needs numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import TERMINAL_PHASES, Event, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget, never_evicted
from shiplap.kubernetes.taints import DISRUPTED, untolerated
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.claim_rules import ClaimRule, is_claimed
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, LEAVING, ClaimState, NodeClaim
from shiplap.manifests.times import go_seconds
from shiplap.scheduling.model.snapshot import ClusterView

STARTING_S = 900.0
"""How long a foreign node that is not Ready counts as one that is about to be, and any node as one on which its CSI
drivers are about to register."""


def pair(nodes: Sequence[Node], claims: Sequence[NodeClaim]) -> tuple[dict[str, NodeClaim], list[NodeClaim]]:
    """Match claims with the Nodes they became, by node name, label or instance id.

    Names are made of addresses, and addresses are used again: a Node of another instance is not the claim's.

    Returns the claims by node name, and those in flight that have no Node yet. Claims that are over count for nothing.
    """
    by_name = {node.metadata.name: node for node in nodes}
    by_label = {node.metadata.labels.get(labels.NODE_CLAIM, ""): node for node in nodes}
    by_instance = {_instance_of(node): node for node in nodes}
    paired: dict[str, NodeClaim] = {}
    waiting = []
    for claim in sorted(claims, key=lambda claim: claim.name):
        if claim.state in FINAL:
            continue
        node = by_name.get(claim.node_name) or by_label.get(claim.name)
        if node is None or not may_be_of(node, claim):
            node = by_instance.get(claim.instance_id) if claim.instance_id else None
        if node is not None:
            paired[node.metadata.name] = claim
        else:
            waiting.append(claim)
    return paired, waiting


def may_be_of(node: Node, claim: NodeClaim) -> bool:
    """True if nothing shows that a Node found by its name belongs to another instance than the claim's."""
    instance_id = _instance_of(node)
    return not instance_id or not claim.instance_id or instance_id == claim.instance_id


def _instance_of(node: Node) -> str:
    return node.spec.provider_id.rpartition("/")[2]


def leaving(nodes: Iterable[Node], paired: Mapping[str, NodeClaim]) -> frozenset[str]:
    """Names of nodes that are being deleted: their pods need room elsewhere."""
    return frozenset(
        node.metadata.name
        for node in nodes
        if node.metadata.deletion_timestamp
        or (node.metadata.name in paired and paired[node.metadata.name].state in LEAVING)
    )


def is_initialized(node: Node) -> bool:
    """True if a node is in service: all that its NodePool promises is there."""
    return node.metadata.labels.get(labels.INITIALIZED) == "true"


def reports_ready(node: Node) -> bool:
    """True if a node reports that it is Ready, or reports nothing, as in a manifest from a file."""
    return all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")


def why_it_stays(  # noqa: PLR0911 - a list of reasons
    node: Node, claim: NodeClaim | None, pool: NodePool | None, *, busy: bool = False, nominated: bool = False
) -> str:
    """Return why a node of a NodePool must not be disrupted, whatever the reason for it would be, or nothing.

    Args:
        node: the node.
        claim: its claim, if there is one.
        pool: its NodePool, if it is known.
        busy: whether a disruption command is under way for it.
        nominated: whether a pending pod is on its way to it.
    """
    meta = node.metadata
    if claim is None:
        return "has no NodeClaim: it is left alone"
    if claim.newer:
        return "has a NodeClaim that a newer release wrote: it is left alone"
    if pool is None:
        return f"NodePool {meta.labels.get(labels.NODE_POOL, '')!r} is not known: the node is left alone"
    if busy or claim.state is ClaimState.DISRUPTING:
        return "is part of a disruption command under way"
    if meta.deletion_timestamp or claim.state in LEAVING:
        return "is being deleted"
    if claim.is_rebooting:
        return "is being rebooted"
    if not is_initialized(node) or claim.state is not ClaimState.INITIALIZED:
        return "is not initialized"
    if meta.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return f"has the annotation {labels.DO_NOT_DISRUPT}=true"
    if nominated:
        return "is nominated for a pending pod"
    return ""


_AUTOSCALER = "cluster-autoscaler"
_NODE_BOUND_OWNERS = {"DaemonSet": "belongs to a DaemonSet", "Node": "is a static pod"}


class SortedPods(msgspec.Struct):
    """The pods of a cluster by what a decision does with them.

    `bound` maps a node's name to the pods that use it, `nominated` to the pods that kube-scheduler promised it.
    """

    pending: list[Pod] = msgspec.field(default_factory=list)
    ignored: list[tuple[Pod, str]] = msgspec.field(default_factory=list)
    bound: dict[str, list[Pod]] = msgspec.field(default_factory=dict)
    nominated: dict[str, list[Pod]] = msgspec.field(default_factory=dict)


def sort_pods(
    pods: Sequence[Pod],
    *,
    nodes: Collection[str],
    leaving: Collection[str],
    held: Collection[str] = (),
    now: float = 0.0,
    budgets: Sequence[PodDisruptionBudget] = (),
    rules: Sequence[ClaimRule] = (),
) -> SortedPods:
    """Sort pods into planned, ignored and bound.

    A pod without a node is planned when kube-scheduler found it unschedulable, or has said nothing about it at all (as
    in a manifest from a file). Pods on nodes that are being deleted are planned too, if they would be evicted and
    recreated.

    Args:
        pods: all pods of the cluster.
        nodes: names of the nodes that exist; a nomination to any other counts for nothing.
        leaving: names of the nodes that are being deleted.
        held: `namespace/name` of pods another autoscaler has just launched for.
        now: epoch seconds, for pods that must not be disrupted for some time.
        budgets: PodDisruptionBudgets; a pod that they never let go needs no room elsewhere.
        rules: which pods without a node are ours. Pods whose node leaves are planned in any case: it was one of ours.

    Raises:
        ValueError: the selector of a budget is malformed.
    """
    result = SortedPods()
    for pod in pods:
        status = pod.status
        if status.phase in TERMINAL_PHASES:
            continue
        node = pod.spec.node_name
        nominated = status.nominated_node_name
        if node:
            on_node = result.bound.get(node)
            if on_node is None:
                result.bound[node] = [pod]
            else:
                on_node.append(pod)
            if node in leaving and needs_room_elsewhere(pod, now) and not (budgets and never_evicted(pod, budgets)):
                result.pending.append(pod)
            continue
        if pod.metadata.deletion_timestamp:
            continue
        if nominated and nominated in nodes and nominated not in leaving:
            result.nominated.setdefault(nominated, []).append(pod)
            result.ignored.append((pod, f"waits for node {nominated}, which it is nominated to"))
            continue
        reason = _reason_to_ignore(pod)
        if not reason and held and pod.key in held:
            reason = "Cluster Autoscaler has just launched a node for it (TriggeredScaleUp)"
        if not reason and rules and not is_claimed(pod, rules):
            reason = "outside the cluster's claim rules"
        if reason:
            result.ignored.append((pod, reason))
        else:
            result.pending.append(pod)
    return result


def sort_pods_of_view(
    view: ClusterView,
    *,
    nodes: Collection[str],
    leaving: Collection[str],
    held: Collection[str] = (),
    now: float = 0.0,
    rules: Sequence[ClaimRule] = (),
) -> SortedPods:
    """The pods of a view, sorted. Where no node leaves, those that run are not looked at again.

    The lists of `bound` belong to the view. Raises as `sort_pods`.
    """
    if leaving:
        budgets = view.pod_disruption_budgets
        return sort_pods(view.pods, nodes=nodes, leaving=leaving, held=held, now=now, budgets=budgets, rules=rules)
    result = sort_pods(view.unbound, nodes=nodes, leaving=leaving, held=held, now=now, rules=rules)
    result.bound = dict(view.of_pods(running))
    return result


def running(view: ClusterView) -> dict[str, list[Pod]]:
    """The unfinished pods of each node that has any: a question to ask of pods."""
    by_node = {}
    for node, on_node in view.by_node.items():
        if pods := [pod for pod in on_node if pod.status.phase not in TERMINAL_PHASES]:
            by_node[node] = pods
    return by_node


def held_by_cluster_autoscaler(events: Sequence[Event], now: float, hold_s: float) -> frozenset[str]:
    """`namespace/name` of the pods that Cluster Autoscaler launched a node for less than `hold_s` seconds ago."""
    held = set()
    for event in events:
        if event.reason != "TriggeredScaleUp" or event.involved_object.kind not in ("", "Pod"):
            continue
        if _AUTOSCALER not in (event.source.component, event.reporting_component):
            continue
        said_at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        if said_at and now - epoch(said_at) < hold_s:
            held.add(namespaced_name(event.involved_object.namespace, event.involved_object.name))
    return frozenset(held)


def owner_kind(pod: Pod) -> str:
    """The kind of the controller that owns a pod, or of its first owner, or nothing."""
    owners = pod.metadata.owner_references
    if not owners:
        return ""
    for owner in owners:
        if owner.controller:
            return owner.kind
    return owners[0].kind


def _reason_to_ignore(pod: Pod) -> str:
    if pod.spec.scheduling_gates:
        return f"scheduling gate {pod.spec.scheduling_gates[0].name}"
    if pod.metadata.owner_references:
        kind = owner_kind(pod)
        if kind in _NODE_BOUND_OWNERS:
            return _NODE_BOUND_OWNERS[kind]
    if not pod.status.conditions:
        return ""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled":
            if condition.status == "False" and condition.reason == "Unschedulable":
                return ""
            return f"not unschedulable: PodScheduled is {condition.status} {condition.reason}".rstrip()
    return "kube-scheduler has not looked at it yet"


def ends_with_its_node(pod: Pod) -> bool:
    """True if nobody asks a pod to leave a node that goes: a static pod, or one that tolerates the disrupted taint."""
    return owner_kind(pod) == "Node" or untolerated((DISRUPTED,), pod.spec.tolerations) is None


def do_not_disrupt(pod: Pod, now: float) -> bool:
    """True if the annotation protects a pod now: see `protected_until`."""
    return now < protected_until(pod)


def protected_until(pod: Pod) -> float:
    """Until when the annotation protects a pod, in epoch seconds: for ever by `true`, or a duration since its start.

    A value that is neither, a negative or a zero duration, protects nothing (0).
    """
    value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
    if value is None:
        return 0.0
    if value == "true":
        return inf
    try:
        lasts_s = go_seconds(value)
    except ValueError:
        return 0.0
    if lasts_s <= 0:
        return 0.0
    return epoch(pod.status.start_time) + lasts_s if pod.status.start_time else inf


def needs_room_elsewhere(pod: Pod, now: float) -> bool:
    """True if a pod of a leaving node will need room elsewhere."""
    return is_recreated(pod) and not do_not_disrupt(pod, now)


def with_pods_staying(view: ClusterView, uids: Collection[str]) -> ClusterView:
    """The view in which running pods need no room elsewhere, whatever becomes of their node.

    They count as before for everything else, as kube-scheduler counts them until they are evicted.
    """
    if not any(pod.metadata.uid in uids and pod.spec.node_name for pod in view.pods):
        return view
    return replace(
        view,
        pods=tuple(_staying(pod) if pod.metadata.uid in uids and pod.spec.node_name else pod for pod in view.pods),
    )


def _staying(pod: Pod) -> Pod:
    annotations = {**pod.metadata.annotations, labels.DO_NOT_DISRUPT: "true"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def is_recreated(pod: Pod) -> bool:
    """True if an evicted pod is made anew elsewhere.

    This is not so for a pod that its node alone calls for. Of the pods that are ending, only a StatefulSet's are.
    """
    kind = owner_kind(pod)
    if kind in _NODE_BOUND_OWNERS:
        return False
    return not pod.metadata.deletion_timestamp or kind == "StatefulSet"
