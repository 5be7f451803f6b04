"""Conditions of an EC2NodeClass from its problems."""

from __future__ import annotations

from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness import conditions
from shiplap.instances.readiness.conditions import Condition


def statuses(*problems: NodeClassProblem) -> dict[str, str]:
    return {item.type: item.status for item in conditions.conditions(problems)}


def test_without_problems_all_is_ready() -> None:
    found = conditions.conditions(())
    assert [item.type for item in found] == [*conditions.DEPENDENCIES, conditions.VALIDATION, conditions.READY]
    assert {item.status for item in found} == {"True"}


def test_a_missing_dependency_keeps_the_rest_from_being_validated() -> None:
    found = {
        item.type: item
        for item in conditions.conditions((NodeClassProblem(conditions.SUBNETS, "SubnetsNotFound", "m"),))
    }
    assert found[conditions.SUBNETS] == Condition(conditions.SUBNETS, "False", "SubnetsNotFound", "m")
    assert found[conditions.VALIDATION].reason == "DependenciesNotReady"
    assert conditions.SUBNETS in found[conditions.VALIDATION].message
    assert found[conditions.READY] == Condition(conditions.READY, "False", "SubnetsNotFound", "m")
    assert found[conditions.AMIS].status == "True"


def test_what_fails_validation_is_the_reason_of_ready() -> None:
    wrong = NodeClassProblem(conditions.VALIDATION, "KubeletExpressionEvaluationFailed", "division by zero")
    assert statuses(wrong) == dict.fromkeys(conditions.DEPENDENCIES, "True") | {
        conditions.VALIDATION: "False",
        conditions.READY: "False",
    }


def test_the_first_problem_of_a_condition_counts() -> None:
    found = conditions.conditions(
        (NodeClassProblem(conditions.AMIS, "A", "a"), NodeClassProblem(conditions.AMIS, "B", "b"))
    )
    assert found[0].reason == "A"


def test_when_aws_could_not_be_asked() -> None:
    assert {item.status for item in conditions.unknown_conditions("RequestLimitExceeded", "slow down")} == {"Unknown"}
