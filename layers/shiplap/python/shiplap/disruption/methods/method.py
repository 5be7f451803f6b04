"""The interface of a method of disruption, after Karpenter's `disruption.Method`.

A method considers nodes, and proposes commands for one reason. `decide.methods_of` has the methods in order. Its reason
says whether protected pods keep a node (`commands.EVENTUAL`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method
from shiplap.disruption.decision_progress import DecisionProgress


class DisruptionMethod:
    """A pure function of the nodes that earlier methods leave. A `PolicyInput` may be one, too.

    `uses_budgets` is false where nodes go whatever the budgets of their NodePool say. `waits_for` names methods: while
    they have commands, this one is not asked.
    """

    __slots__ = ()
    uses_budgets: ClassVar[bool] = True
    waits_for: ClassVar[frozenset[Method]] = frozenset()

    @abstractmethod
    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """Choose among these nodes. Note in `progress` what goes, and why other nodes stay."""

    def wait(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> None:
        """Note in `progress` why these nodes stay while a method that this one waits for has commands."""
