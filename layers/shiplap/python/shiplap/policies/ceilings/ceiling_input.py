"""Ceilings in dollars within decisions: what they refuse is launched neither for pods nor in the place of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from shiplap.policies.ceilings.ceilings import SpendingView, admit
from shiplap.policies.ceilings.launch_ceilings import within_ceilings
from shiplap.policies.ceilings.launch_costs import wanted_launches
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot


class CeilingInput(PolicyInput, frozen=True):
    """The ceilings of a cluster and how much of each is used at the moment of a decision."""

    view: SpendingView

    stage: ClassVar[PlanStage] = PlanStage.ADMISSION
    recorded_as: ClassVar[str] = "spending"

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        """Plan, and leave out what ceilings refuse; its pods get smaller or cheaper nodes where these fit."""
        return within_ceilings(snapshot, self.view, decide(snapshot), decide)

    def admit(self, claims: Sequence[PlannedClaim], snapshot: Snapshot) -> tuple[str, CeilingInput]:
        """Return the ceiling that refuses replacements, or nothing, and what they leave of the ceilings."""
        verdicts = admit(self.view, wanted_launches(snapshot, self.view, claims, replaces=True))
        if verdicts.refused:
            return next(iter(verdicts.refused.values())), self
        return "", CeilingInput(verdicts.after)
