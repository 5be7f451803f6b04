"""Sleep in simulations: the settings of a scenario, and planted defects."""

from __future__ import annotations

from typing import Any

from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.sleep import sleep_state
from shiplap_lab.policies.sleep_scenario import sleep_of
from shiplap_lab.scenarios.scenario import Scenario

Patches = list[tuple[Any, str, Any]]


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where nothing sleeps."""
    sleep = sleep_of(scenario)
    return None if sleep is None else sleep.settings


def _rehearses_nothing() -> Patches:
    """The first window after a change takes nodes."""
    return [(sleep_state, "_is_rehearsed", lambda *_: True)]


def _rehearses_for_ever() -> Patches:
    """No rehearsal is ever over."""
    return [(sleep_state, "_is_rehearsed", lambda *_: False)]


def _ignores_wakes() -> Patches:
    """Windows go on whoever wakes the cluster."""
    return [(sleep_state, "_woken_until", lambda *_: 0)]


MUTANTS = {
    "rehearses nothing": (_rehearses_nothing, ("sleep",)),
    "rehearses for ever": (_rehearses_for_ever, ("sleep",)),
    "ignores wakes": (_ignores_wakes, ("sleep",)),
}
"""Planted defects by name: the patches, and the scenarios that find them."""
