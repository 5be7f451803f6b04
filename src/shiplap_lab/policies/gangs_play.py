"""Gangs in simulations: the settings of a scenario."""

from __future__ import annotations

from typing import Any

from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.policy_settings import PolicySettings
from shiplap_lab.scenarios.scenario import Scenario


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where gangs are off."""
    if scenario.gangs != WHOLE:
        return None
    return GangSettings(WHOLE, provisioning_requests=bool(scenario.provisioning_requests))


MUTANTS: dict[str, Any] = {}
"""No planted defects."""
