"""Gangs within flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplap.flows.policies.policy import DecisionFacts, Policy
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gangs_settings import GangSettings

if TYPE_CHECKING:
    from shiplap.policies.gangs.gang_input import GangInput


class GangPolicy(Policy):
    """Gangs: nothing is launched for one that cannot have all that it needs."""

    def planning_input(self, facts: DecisionFacts) -> GangInput:  # noqa: ARG002 - pods say the rest
        """Return what is known of gangs beside their pods."""
        from shiplap.policies.gangs.gang_input import GangInput  # noqa: PLC0415 - only what decides needs the planner

        settings = self.settings.policy(GangSettings) or GangSettings()
        return GangInput(KnownGangs(settings.wait_s))
