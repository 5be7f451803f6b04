"""The conditions of an EC2NodeClass, by the names and reasons that Karpenter gives them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem

AMIS = "AMIsReady"
SUBNETS = "SubnetsReady"
SECURITY_GROUPS = "SecurityGroupsReady"
INSTANCE_PROFILE = "InstanceProfileReady"
PLACEMENT_GROUP = "PlacementGroupReady"
CAPACITY_RESERVATIONS = "CapacityReservationsReady"
VALIDATION = "ValidationSucceeded"
READY = "Ready"

DEPENDENCIES = (AMIS, SUBNETS, SECURITY_GROUPS, INSTANCE_PROFILE, PLACEMENT_GROUP, CAPACITY_RESERVATIONS)
"""What must hold before the rest can be validated."""

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """As in the status of a Kubernetes object; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


def conditions(problems: Iterable[NodeClassProblem]) -> tuple[Condition, ...]:
    """Every condition, Ready last: False with the first problem of its type, else True.

    While a dependency is missing, what needs it cannot be validated, and ValidationSucceeded says so.
    """
    first: dict[str, NodeClassProblem] = {}
    for problem in problems:
        first.setdefault(problem.condition, problem)
    missing = [name for name in DEPENDENCIES if name in first]
    if missing:
        waits = NodeClassProblem(VALIDATION, "DependenciesNotReady", f"not validated: {', '.join(missing)} first")
        first.setdefault(VALIDATION, waits)
    found = [_condition(name, first.get(name)) for name in (*DEPENDENCIES, VALIDATION)]
    wrong = [condition for condition in found if condition.status != TRUE]
    if not wrong:
        return (*found, Condition(READY, TRUE))
    return (*found, Condition(READY, FALSE, wrong[0].reason, wrong[0].message))


def unknown_conditions(reason: str, message: str) -> tuple[Condition, ...]:
    """Every condition when AWS could not be asked."""
    return tuple(Condition(name, UNKNOWN, reason, message) for name in (*DEPENDENCIES, VALIDATION, READY))


def _condition(name: str, problem: NodeClassProblem | None) -> Condition:
    if problem is None:
        return Condition(name, TRUE)
    return Condition(name, FALSE, problem.reason, problem.message)
