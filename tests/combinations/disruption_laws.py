"""Laws of disruption: a cluster whose pods have partly gone is consolidated, and then left alone."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from shiplap.disruption.commands import Decision, Reason
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations.carrying_out import after_command, carried_out
from tests.combinations.laws import Decided, KnownDefect, Law
from tests.rules import KIND, TYPE, ZONE

_SAVING = frozenset({Reason.EMPTY, Reason.UNDERUTILIZED})
_MOST_DECISIONS = 12
"""Decisions, beside one for each node, within which a cluster comes to rest: a budget may allow one node at a time."""


def _half_empty(before: Decided, rng: Random) -> Snapshot | None:
    """The plan carried out, and half of the pods gone. Claims in flight and sleep have laws of their own."""
    snapshot = before.snapshot
    if snapshot.sleep is not None or any(not claim.node_name for claim in snapshot.claims):
        return None
    done = carried_out(snapshot, before.plan)
    stay = tuple(pod for pod in done.view.pods if rng.random() < 0.5)
    return replace(done, view=replace(done.view, pods=stay))


def _comes_to_rest(_: Decided, after: Decided) -> str:
    """Commands save money, leave every pod that had a node with one, and end."""
    snapshot, moved_in = after.snapshot, dict[str, float]()
    for _step in range(_MOST_DECISIONS + len(snapshot.view.nodes)):
        decided = _decision(snapshot, moved_in)
        if not decided.commands:
            return ""
        changed = _carried_out(snapshot, decided, moved_in)
        if wrong := problem(snapshot, decided, changed):
            return wrong
        snapshot = changed
    return f"does not come to rest: {[command.detail for command in decided.commands]}"


def _rests_at_once(_: Decided, after: Decided) -> str:
    """Where budgets allow everything, one decision finds everything there is to do at that moment."""
    moved_in = dict[str, float]()
    decided = _decision(after.snapshot, moved_in)
    again = _decision(_carried_out(after.snapshot, decided, moved_in), moved_in)
    if not decided.commands:
        return ""
    more = [f"{command.reason} {command.nodes}" for command in again.commands]
    return f"after {[command.nodes for command in decided.commands]} also {more}" if more else ""


def _decision(snapshot: Snapshot, moved_in: dict[str, float]) -> Decision:
    return decide(
        DisruptionSnapshot(
            scheduling=snapshot,
            pod_disruption_budgets=snapshot.view.pod_disruption_budgets,
            histories=tuple(NodeHistory(node, moved_in_at=at) for node, at in sorted(moved_in.items())),
            settings=DisruptionSettings(improve_s=0.0),
        )
    )


def _carried_out(snapshot: Snapshot, decided: Decision, moved_in: dict[str, float]) -> Snapshot:
    for command in decided.commands:
        snapshot = after_command(snapshot, command)
        moved_in |= dict.fromkeys([claim.name for claim in command.replacements], snapshot.now)
        moved_in |= dict.fromkeys([place.name for place in command.placements], snapshot.now)
    return snapshot


def problem(before: Snapshot, decided: Decision, after: Snapshot) -> str:
    """What is wrong with a decision that has been carried out: a pod without its node, or nothing saved."""
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


_IN_STEPS = KnownDefect("consolidation takes several decisions", 5, 60)

DISRUPTION_LAWS = (
    Law("consolidation saves, strands nobody and comes to rest", _half_empty, _comes_to_rest),
    Law("after a consolidation there is nothing more to do at that moment", _half_empty, _rests_at_once, _IN_STEPS),
)
