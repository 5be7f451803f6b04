"""The list of all policies: the name of each, and where its parts are. A part is imported when it is first needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.scheduling.model.snapshot import PolicyInput


class PolicyEntry(msgspec.Struct, frozen=True):
    """One policy: `plans` and `disrupts` are its inputs of the two kinds of decisions, `flow` its effects.

    Each part is written `module:Class`, below `shiplap.policies` and `shiplap.flows.policies`; empty if there is none.
    """

    name: str
    flow: str
    plans: str
    disrupts: str = ""


POLICIES: tuple[PolicyEntry, ...] = (
    PolicyEntry(
        "commitments",
        "commitment_policy:CommitmentPolicy",
        "commitments.commitment_input:CommitmentInput",
        "commitments.commitment_input:CommitmentsInUse",
    ),
    PolicyEntry("sleep", "sleep_policy:SleepPolicy", "sleep.sleep_input:SleepInput"),
    PolicyEntry("ceilings", "ceiling_policy:CeilingPolicy", "ceilings.ceiling_input:CeilingInput"),
    PolicyEntry("spot_risk", "spot_risk_policy:SpotRiskPolicy", "spot_risk.spot_risk_input:SpotRiskInput"),
)
"""All policies, in the order in which records hold their inputs."""


def planning_inputs() -> tuple[type[PolicyInput], ...]:
    """Return the inputs of scheduling decisions."""
    return tuple(_loaded(entry.plans) for entry in POLICIES if entry.plans)


def disruption_inputs() -> tuple[type[DisruptionInput], ...]:
    """Return the further inputs of decisions on disruption."""
    return tuple(_loaded(entry.disrupts) for entry in POLICIES if entry.disrupts)


def flow_of(name: str) -> Any:
    """Return the class of a policy's effects, a `flows.policies.policy.Policy`."""
    entry = next(entry for entry in POLICIES if entry.name == name)
    module, _, kind = entry.flow.partition(":")
    return getattr(import_module(f"shiplap.flows.policies.{module}"), kind)


@cache
def _loaded(part: str) -> Any:
    module, _, name = part.partition(":")
    return getattr(import_module(f"shiplap.policies.{module}"), name)
