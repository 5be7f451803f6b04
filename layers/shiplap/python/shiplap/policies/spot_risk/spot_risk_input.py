"""The risk of spot within decisions: planned claims ask for the offerings that are interrupted less often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk
from shiplap.policies.spot_risk.spot_choices import with_spot_risk
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot


class SpotRiskInput(PolicyInput, frozen=True):
    """The rate at which each spot offering is interrupted, as far as it is known."""

    known: KnownSpotRisk

    stage: ClassVar[PlanStage] = PlanStage.LAUNCHES
    recorded_as: ClassVar[str] = "spot_risk"

    def marked(self, claims: Sequence[PlannedClaim], snapshot: Snapshot) -> Sequence[PlannedClaim]:
        """Return the claims with what the risk means for the launches that will be spot."""
        return with_spot_risk(claims, snapshot, self.known)
