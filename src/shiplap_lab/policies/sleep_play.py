"""Sleep in simulations: the settings of a scenario."""

from __future__ import annotations

from shiplap.policies.policy_settings import PolicySettings
from shiplap_lab.policies.policy_plays import PlantedDefect
from shiplap_lab.scenarios.scenario import Scenario


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where nothing sleeps."""
    return None if scenario.sleep is None else scenario.sleep.settings


MUTANTS: dict[str, PlantedDefect] = {}
"""Planted defects by name; those of sleep are still among those of the trunk."""
