"""The list of all policies: the name of each, and where its parts are. A part is imported when it is first needed.

All files of a policy are named by it, so that they are found without a list: a folder or module is called by the name
of the policy, or begins with it. Beside the parts below, a package that asks policies has one module for each, such as
`shiplap.aws.policies.spot_risk_adapters`; a policy that the package need not know has none (`part_of`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.errors import InvalidInput
from shiplap.scheduling.model.snapshot import PolicyInput


class PolicyEntry(msgspec.Struct, frozen=True):
    """One policy. Each part is written `module:Class`; empty if there is none."""

    name: str
    flow: str
    """The effects, below `shiplap.flows.policies`."""
    plans: str
    """The input of scheduling decisions, below `shiplap.policies`."""
    disrupts: str = ""
    """The further input of decisions on disruption, below `shiplap.policies`."""
    settings: str = ""
    """The settings, below `shiplap.policies`."""


POLICIES: tuple[PolicyEntry, ...] = (
    PolicyEntry(
        "commitments",
        "commitments_policy:CommitmentPolicy",
        "commitments.commitment_input:CommitmentInput",
        "commitments.commitment_input:CommitmentsInUse",
        "commitments.commitment_settings:CommitmentSettings",
    ),
    PolicyEntry(
        "gangs",
        "gangs_policy:GangPolicy",
        "gangs.gang_input:GangInput",
        settings="gangs.gangs_settings:GangSettings",
    ),
    PolicyEntry(
        "deletion_costs",
        "deletion_costs.deletion_costs_policy:DeletionCostPolicy",
        plans="",
        settings="deletion_costs.deletion_costs_settings:DeletionCostSettings",
    ),
    PolicyEntry(
        "rollouts",
        "rollouts_policy:RolloutPolicy",
        plans="",
        disrupts="rollouts.rollouts_input:RolloutsInUse",
        settings="rollouts.rollouts_settings:RolloutSettings",
    ),
    PolicyEntry(
        "sleep",
        "sleep_policy:SleepPolicy",
        "sleep.sleep_input:SleepInput",
        settings="sleep.sleep_settings:SleepSettings",
    ),
    PolicyEntry(
        "ceilings",
        "ceilings_policy:CeilingPolicy",
        "ceilings.ceiling_input:CeilingInput",
        settings="ceilings.ceilings_settings:CeilingSettings",
    ),
    PolicyEntry(
        "spot_risk",
        "spot_risk_policy:SpotRiskPolicy",
        "spot_risk.spot_risk_input:SpotRiskInput",
        settings="spot_risk.spot_risk_settings:SpotRiskSettings",
    ),
)
"""All policies, in the order in which records hold their inputs."""


def planning_inputs() -> tuple[type[PolicyInput], ...]:
    """Return the inputs of scheduling decisions."""
    return tuple(_loaded(entry.plans) for entry in POLICIES if entry.plans)


def disruption_inputs() -> tuple[type[DisruptionInput], ...]:
    """Return the further inputs of decisions on disruption."""
    return tuple(_loaded(entry.disrupts) for entry in POLICIES if entry.disrupts)


def settings_of(name: str) -> Any:
    """Return the class of a policy's settings, a `policies.policy_settings.PolicySettings`. Raises InvalidInput."""
    return _loaded(POLICIES[position_of(name)].settings)


def position_of(name: str) -> int:
    """Return the place of a policy in the registry. Raises InvalidInput: there is no such policy."""
    names = [entry.name for entry in POLICIES]
    if name not in names:
        raise InvalidInput("policy", f"{name!r} is none of {', '.join(names)}")
    return names.index(name)


def flow_of(name: str) -> Any:
    """Return the class of a policy's effects, a `flows.policies.policy.Policy`."""
    module, _, kind = POLICIES[position_of(name)].flow.partition(":")
    return getattr(import_module(f"shiplap.flows.policies.{module}"), kind)


@cache
def part_of(name: str, package: str, kind: str) -> ModuleType | None:
    """Return the module `<package>.policies.<name>_<kind>`; None if the policy has no part there."""
    module = f"{package}.policies.{name}_{kind}"
    return import_module(module) if find_spec(module) is not None else None


def parts(package: str, kind: str) -> tuple[tuple[str, ModuleType], ...]:
    """Return the modules that policies have in a package, each with the name of its policy."""
    found = ((entry.name, part_of(entry.name, package, kind)) for entry in POLICIES)
    return tuple((name, module) for name, module in found if module is not None)


@cache
def _loaded(part: str) -> Any:
    module, _, name = part.partition(":")
    return getattr(import_module(f"shiplap.policies.{module}"), name)
