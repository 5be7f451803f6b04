"""Conditions of an EC2NodeClass from its problems."""

from __future__ import annotations

from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import Condition


def statuses(*problems: NodeClassProblem) -> dict[str, str]:
    return {item.type: item.status for item in nodeclass_status.conditions(problems)}


def test_without_problems_all_is_ready() -> None:
    found = nodeclass_status.conditions(())
    assert [item.type for item in found] == [
        *nodeclass_status.DEPENDENCIES,
        nodeclass_status.VALIDATION,
        nodeclass_status.READY,
    ]
    assert {item.status for item in found} == {"True"}


def test_a_missing_dependency_keeps_the_rest_from_being_validated() -> None:
    found = {
        item.type: item
        for item in nodeclass_status.conditions((NodeClassProblem(nodeclass_status.SUBNETS, "SubnetsNotFound", "m"),))
    }
    assert found[nodeclass_status.SUBNETS] == Condition(nodeclass_status.SUBNETS, "False", "SubnetsNotFound", "m")
    assert found[nodeclass_status.VALIDATION].reason == "DependenciesNotReady"
    assert nodeclass_status.SUBNETS in found[nodeclass_status.VALIDATION].message
    assert found[nodeclass_status.READY] == Condition(nodeclass_status.READY, "False", "SubnetsNotFound", "m")
    assert found[nodeclass_status.AMIS].status == "True"


def test_what_fails_validation_is_the_reason_of_ready() -> None:
    wrong = NodeClassProblem(nodeclass_status.VALIDATION, "KubeletExpressionEvaluationFailed", "division by zero")
    assert statuses(wrong) == dict.fromkeys(nodeclass_status.DEPENDENCIES, "True") | {
        nodeclass_status.VALIDATION: "False",
        nodeclass_status.READY: "False",
    }


def test_the_first_problem_of_a_condition_counts() -> None:
    found = nodeclass_status.conditions(
        (NodeClassProblem(nodeclass_status.AMIS, "A", "a"), NodeClassProblem(nodeclass_status.AMIS, "B", "b"))
    )
    assert found[0].reason == "A"


def test_when_aws_could_not_be_asked() -> None:
    assert {item.status for item in nodeclass_status.unknown_conditions("RequestLimitExceeded", "slow down")} == {
        "Unknown"
    }
