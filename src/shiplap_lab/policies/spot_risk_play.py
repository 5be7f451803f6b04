"""Spot risk in simulations: the settings of a scenario, and planted defects."""

from __future__ import annotations

from typing import Any

from shiplap.instances.offerings import spot_lists
from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.spot_risk import safer_offerings, spot_choices
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap_lab.scenarios.scenario import Scenario

Patches = list[tuple[Any, str, Any]]


def settings(scenario: Scenario) -> PolicySettings:
    """Return the settings of each cluster of a scenario."""
    return SpotRiskSettings(scenario.spot_risk)


def _prefers_without_bound() -> Patches:
    """Because of the risk, an offering may get all of a pool's spot nodes."""
    return [(spot_choices, "most_of_pool", lambda spot_nodes: max(spot_nodes, 1))]


def _leaves_no_choice() -> Patches:
    """Lists are shortened by their risk and their prices, however short they are."""
    return [(safer_offerings, "LEAST_OFFERINGS", 1), (spot_lists, "LEAST_OFFERINGS", 1)]


MUTANTS = {
    "prefers without bound": (_prefers_without_bound, ("spot-risk",)),
    "leaves no choice of spot": (_leaves_no_choice, ("spot-risk",)),
}
"""Planted defects by name: the patches, and the scenarios that find them."""
