"""The disruption decision: which nodes go now, what replaces them, and why every other node stays."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.methods.climb_back import ClimbBack
from shiplap.disruption.methods.emptiness import Emptiness
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.methods.replacement import Replacement
from shiplap.disruption.methods.scale_down import ScaleDown
from shiplap.disruption.methods.terminate_first import TerminateFirst
from shiplap.disruption.methods.underutilization import Underutilization
from shiplap.disruption.methods.zone_balance import ZoneRebalance

BEFORE_POLICIES: tuple[DisruptionMethod, ...] = (ScaleDown(), Emptiness())
AFTER_POLICIES: tuple[DisruptionMethod, ...] = (
    Replacement(),
    TerminateFirst(),
    Underutilization(),
    ClimbBack(),
    ZoneRebalance(),
)
"""The methods in order. Methods of optional features come between: a node that one removes needs no replacement. All
share the budgets of a NodePool."""


def decide(snapshot: DisruptionSnapshot, clock: DecisionClock | None = None) -> Decision:
    """Decide what to disrupt. A pure function of the snapshot.

    Args:
        snapshot: all inputs.
        clock: learns until when time alone does not change the decision.

    Raises:
        InvalidInput: as `planner.plan`.
    """
    progress = DecisionProgress(snapshot, clock or DecisionClock(snapshot.scheduling.now))
    return ask(methods_of(snapshot), progress)


def methods_of(snapshot: DisruptionSnapshot) -> tuple[DisruptionMethod, ...]:
    """The methods that decide about a cluster, in order."""
    of_policies = (policy for policy in snapshot.scheduling.policies if isinstance(policy, DisruptionMethod))
    return (*BEFORE_POLICIES, *of_policies, *AFTER_POLICIES)


def ask(methods: Sequence[DisruptionMethod], progress: DecisionProgress) -> Decision:
    """Ask these methods, each for the nodes that those before it leave."""
    commands: list[DisruptionProposal] = []
    budgeted: set[str] = set()
    for method in methods:
        candidates = progress.left(commands)
        if not method.waits_for.isdisjoint(command.method for command in commands):
            method.wait(progress, candidates)
            continue
        found = method.commands(progress, candidates)
        commands += found
        budgeted.update(node for command in found if method.uses_budgets for node in command.nodes)
    return progress.decision(commands, budgeted)
