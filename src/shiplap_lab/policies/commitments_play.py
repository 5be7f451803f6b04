"""Commitments in simulations: the settings of a scenario."""

from __future__ import annotations

from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.policy_settings import PolicySettings
from shiplap_lab.policies.policy_plays import PlantedDefect
from shiplap_lab.scenarios.scenario import Scenario

_COUNTED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="100%")


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where the account owns nothing."""
    return _COUNTED if scenario.reserved_instances or scenario.savings_plans else None


MUTANTS: dict[str, PlantedDefect] = {}
"""Planted defects by name; those of commitments are still among those of the trunk."""
