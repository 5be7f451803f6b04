"""Commitments in simulations: the settings of a scenario, and planted defects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shiplap.flows.policies import commitments_inputs, commitments_policy
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.commitments.commitment_use import SharedUse
from shiplap.policies.policy_settings import PolicySettings
from shiplap_lab.scenarios.scenario import Scenario

Patches = list[tuple[Any, str, Any]]

_COUNTED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="100%")


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where the account owns nothing."""
    return _COUNTED if scenario.reserved_instances or scenario.savings_plans else None


def _counts_alone() -> Patches:
    """A cluster counts on commitments as if it were alone."""
    return [(SharedUse, "of_others", lambda use, cluster, now: ())]  # noqa: ARG005


def _counts_plans_alone() -> Patches:
    """A cluster counts on Savings Plans as if it were alone; Reserved Instances it shares."""
    room = commitments_inputs.commitment_room

    def act(settings: Any, known: Any, noted: SharedUse, cluster: str, facts: DecisionFacts) -> CommitmentRoom:
        shared, own = (room(settings, known, each, cluster, facts) for each in (noted, SharedUse()))
        return replace(shared, savings_plans=own.savings_plans)

    return [(commitments_policy, "commitment_room", act)]


MUTANTS = {
    "counts commitments alone": (_counts_alone, ("commitments",)),
    "counts plans alone": (_counts_plans_alone, ("commitments",)),
}
"""Planted defects by name: the patches, and the scenarios that find them."""
