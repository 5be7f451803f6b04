"""Laws of disruption: a cluster whose pods have partly gone is consolidated, and then left alone."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from random import Random

from msgspec.structs import replace

from shiplap.disruption.commands import Decision, Reason
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import Budget, NodePool
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.combinations.carrying_out import after_command, carried_out
from tests.combinations.laws import Decided, Law, lets_pods_wait
from tests.policy_parts import policy_parts
from tests.rules import KIND, TYPE, ZONE

_SAVING = frozenset({Reason.EMPTY, Reason.UNDERUTILIZED})
_MOST_DECISIONS = 12
"""Decisions, beside one for each node, within which a cluster comes to rest: a budget may allow one node at a time."""


def _half_empty(before: Decided, rng: Random) -> Snapshot | None:
    """The plan carried out, and half of the pods gone. Claims in flight and sleep have laws of their own."""
    snapshot = before.snapshot
    if lets_pods_wait(snapshot) or any(not claim.node_name for claim in snapshot.claims):
        return None
    done = carried_out(snapshot, before.plan)
    stay = tuple(pod for pod in done.view.pods if rng.random() < 0.5)
    return replace(done, view=replace(done.view, pods=stay))


def _half_empty_without_bounds(before: Decided, rng: Random) -> Snapshot | None:
    """A cluster half empty whose NodePools have no limits and let all their nodes go at once.

    A node that goes uses up a budget, and counts for a limit, until it is gone.
    """
    snapshot = _half_empty(before, rng)
    if snapshot is None:
        return None
    pools = tuple(map(_without_bounds, snapshot.manifests.node_pools))
    return replace(snapshot, manifests=replace(snapshot.manifests, node_pools=pools))


def _without_bounds(pool: NodePool) -> NodePool:
    disruption = replace(pool.spec.disruption, budgets=(Budget(nodes="100%"),))
    return replace(pool, spec=replace(pool.spec, disruption=disruption, limits={}))


def _comes_to_rest(_: Decided, after: Decided) -> str:
    """Commands save money, leave every pod that had a node with one, and end; nodes that stay have a reason."""
    snapshot, moved_in = after.snapshot, dict[str, float]()
    for _step in range(_MOST_DECISIONS + len(snapshot.view.nodes)):
        decided = decision(snapshot, moved_in)
        if silent := _silent(snapshot, decided):
            return f"says nothing of {silent}"
        if not decided.commands:
            return ""
        changed = _carried_out(snapshot, decided, moved_in)
        if wrong := problem(snapshot, decided, changed):
            return wrong
        snapshot = changed
    return f"does not come to rest: {[command.detail for command in decided.commands]}"


def _silent(snapshot: Snapshot, decided: Decision) -> list[str]:
    """The nodes of NodePools that a decision neither removes nor names with a reason why they stay."""
    pools = {pool.metadata.name for pool in snapshot.manifests.node_pools}
    named = _nodes_of(decided).union(entry.node for entry in decided.blocked)
    ours = (node for node in snapshot.view.nodes if node.metadata.labels.get(labels.NODE_POOL) in pools)
    return sorted({node.metadata.name for node in ours} - named)


def _rests_at_once(_: Decided, after: Decided) -> str:
    """A decision that replaces no node for another reason finds every saving by one or two nodes more.

    Consolidation waits while nodes drift, expire or climb back. So what replaces nodes is carried out before, and so
    are plans for pods that wait.
    """
    snapshot, moved_in = after.snapshot, dict[str, float]()
    for _step in range(_MOST_DECISIONS + len(snapshot.view.nodes)):
        before, moved_before = _planned(snapshot), dict(moved_in)
        decided = decision(before, moved_in)
        if not decided.commands:
            return ""
        snapshot = _carried_out(before, decided, moved_in)
        saves = all(command.reason in _SAVING for command in decided.commands)
        if saves and _planned(snapshot) == snapshot:
            return overlooked(before, moved_before, decided, decision(snapshot, moved_in))
    return ""  # that it ends is a law of its own


def overlooked(before: Snapshot, moved_in: dict[str, float], decided: Decision, again: Decision) -> str:
    """One or two nodes of a second decision that a first one has overlooked: looking at just these it removes them too.

    The pods of all nodes of a decision are planned at once. So a second decision still finds what needs the first one
    to have come true: room on a replacement, an estimate that one claim at a time may rely on, or room that a plan for
    all pods gives to other ones. It also finds three and more nodes that gain something only together.
    """
    going = _nodes_of(decided)
    more = sorted(_nodes_of(again) - going)
    for some in (*combinations(more, 1), *combinations(more, 2)):
        closely = decision(_with_candidates(before, going.union(some)), moved_in)
        if _nodes_of(closely) > going and _saved_by(closely) > _saved_by(decided) + 1e-9:
            found = [f"{command.reason} {command.nodes}" for command in closely.commands]
            return f"not only {[command.nodes for command in decided.commands]} but {found}"
    return ""


def _nodes_of(decision: Decision) -> frozenset[str]:
    return frozenset(node for command in decision.commands for node in command.nodes)


def _saved_by(decision: Decision) -> float:
    return sum(command.savings_hourly for command in decision.commands)


def _with_candidates(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The cluster in which no node but these may be disrupted."""

    def kept(node: Node) -> Node:
        if node.metadata.name in names:
            return node
        annotations = {**node.metadata.annotations, labels.DO_NOT_DISRUPT: "true"}
        return replace(node, metadata=replace(node.metadata, annotations=annotations))

    return replace(snapshot, view=replace(snapshot.view, nodes=tuple(map(kept, snapshot.view.nodes))))


def _planned(snapshot: Snapshot) -> Snapshot:
    """The cluster once what is planned for waiting pods has been carried out; the same if that is nothing."""
    made = plan(snapshot)
    names = {node.metadata.name for node in snapshot.view.nodes}
    placed = any(place.pods for place in made.existing_nodes if place.name in names)
    return carried_out(snapshot, made) if placed or made.node_claims else snapshot


def decision(snapshot: Snapshot, moved_in: dict[str, float]) -> Decision:
    return decide(
        DisruptionSnapshot(
            scheduling=snapshot,
            pod_disruption_budgets=snapshot.view.pod_disruption_budgets,
            histories=tuple(NodeHistory(node, moved_in_at=at) for node, at in sorted(moved_in.items())),
            settings=DisruptionSettings(improve_s=0.0),
            policies=tuple(
                made
                for module in policy_parts("combinations", "laws")
                if hasattr(module, "disruption_inputs")
                for made in module.disruption_inputs(snapshot)
            ),
        )
    )


def _carried_out(snapshot: Snapshot, decided: Decision, moved_in: dict[str, float]) -> Snapshot:
    for command in decided.commands:
        snapshot = after_command(snapshot, command)
        moved_in |= dict.fromkeys([claim.name for claim in command.replacements], snapshot.now)
        moved_in |= dict.fromkeys([place.name for place in command.placements], snapshot.now)
    return snapshot


def problem(before: Snapshot, decided: Decision, after: Snapshot) -> str:
    """Return the fault of a decision that has been carried out: a pod has lost its node, or nothing is saved."""
    nodes = {node.metadata.name for node in after.view.nodes}
    static = {pool.metadata.name for pool in before.manifests.node_pools if pool.spec.replicas is not None}
    kept = {claim.node_name for claim in before.claims if claim.plan.node_pool not in static}
    homeless = [pod.key for pod in after.view.pods if pod.spec.node_name in kept and pod.spec.node_name not in nodes]
    if homeless:
        return f"{homeless[:3]} have lost their nodes to {[command.nodes for command in decided.commands]}"
    saving = all(command.reason in _SAVING for command in decided.commands)
    if saving and _hourly(after) >= _hourly(before) - 1e-9:
        return f"saves nothing: {_hourly(before):.4f} became {_hourly(after):.4f}"
    return ""


def _hourly(snapshot: Snapshot) -> float:
    """USD per hour of all nodes, at the prices of their types."""
    prices = {
        (item.name, offer.zone, offer.capacity_type): offer.price
        for catalog in snapshot.catalogs
        for item in catalog.instance_types
        for offer in item.offerings
    }
    marks = [node.metadata.labels for node in snapshot.view.nodes]
    return sum(prices.get((mark.get(TYPE, ""), mark.get(ZONE, ""), mark.get(KIND, "")), 0.0) for mark in marks)


DISRUPTION_LAWS = (
    Law("consolidation saves, strands nobody and comes to rest", _half_empty, _comes_to_rest),
    Law(
        "after a consolidation there is nothing more to do at that moment",
        _half_empty_without_bounds,
        _rests_at_once,
    ),
)
