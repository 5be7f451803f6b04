"""Emptiness: nodes go together if no pod needs them."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod


class Emptiness(DisruptionMethod):
    """Nodes without a pod that it costs anything to move."""

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """One command for all empty nodes that the budgets allow, dearest first."""
        empty = [candidate for candidate in candidates if candidate.empty and progress.may_consolidate(candidate)]
        allowed = progress.within_budgets(sorted(empty, key=lambda item: (-item.price, item.name)), Reason.EMPTY)
        if not allowed:
            return ()
        progress.use_budget(allowed)
        names = tuple(sorted(candidate.name for candidate in allowed))
        savings = round(sum(candidate.price for candidate in allowed), 6)
        moved = sum(len(candidate.pods) for candidate in allowed)
        why = "no pod needs them" if not moved else "no pod that it costs anything to move needs them"
        return (DisruptionProposal(Reason.EMPTY, Method.EMPTINESS, names, (), (), savings, moved, why),)
