"""Compares the resources that services may act for with the forms that AWS documents for each service."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aws_rules.cloud_assembly import Template
from tests.aws_rules.iam_statements import permission, statements
from tests.aws_rules.source_arns import made_arns, source_problems


def test_every_source_has_the_form_that_its_service_gives(assembly: list[Template]) -> None:
    made = made_arns(assembly)
    found = statements(assembly)
    problems = sorted({f"{where}: {problem}" for where, one in found for problem in source_problems(one, made)})

    assert problems == []
    services = {str(one["Principal"].get("Service")) for _, one in found if isinstance(one.get("Principal"), dict)}
    assert {"scheduler.amazonaws.com", "events.amazonaws.com", "lambda.amazonaws.com"} <= services


_SCHEDULER = "arn:aws:scheduler:eu-west-1:123456789012:"
_GROUPS = {"AWS::Scheduler::ScheduleGroup": {f"{_SCHEDULER}schedule-group/shiplap"}}


def trust(source: str, operator: str = "ArnLike") -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Principal": {"Service": "scheduler.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {operator: {"aws:SourceArn": source}},
    }


def test_the_schedule_group_is_the_source_of_schedules() -> None:
    assert source_problems(trust(f"{_SCHEDULER}schedule-group/shiplap"), _GROUPS) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (trust(f"{_SCHEDULER}schedule/shiplap/*"), "is not of the form"),
        (trust(f"{_SCHEDULER}schedule/shiplap/sweep"), "is not of the form"),
        (trust(f"{_SCHEDULER}schedule-group/*"), "is not of the form"),
        (trust(f"{_SCHEDULER}schedule-group/another"), "is no AWS::Scheduler::ScheduleGroup of this install"),
        (trust("arn:aws:scheduler:eu-west-1:210987654321:schedule-group/shiplap"), "is not of the form"),
        (trust(f"{_SCHEDULER}schedule-group/shiplap", "StringNotEquals"), "compared by StringNotEquals"),
        (trust("arn:aws:s3:::bucket") | {"Principal": {"Service": "new.amazonaws.com"}}, "is not in"),
        (
            {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"},
            "aws:SourceArn is missing",
        ),
        (
            permission(
                {
                    "Action": "lambda:InvokeFunction",
                    "FunctionName": "arn:aws:lambda:eu-west-1:123456789012:function:audit:live",
                    "Principal": "logs.amazonaws.com",
                    "SourceArn": "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/eks/production/cluster",
                }
            ),
            "is not of the form",
        ),
    ],
)
def test_a_source_of_another_form_is_found(wrong: dict[str, Any], told: str) -> None:
    (problem,) = source_problems(wrong, _GROUPS)

    assert told in problem
