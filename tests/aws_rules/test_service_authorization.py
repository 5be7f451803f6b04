"""Policies and the tests' own idea of what AWS authorises, held against the Service Authorization Reference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.aws_rules.cloud_assembly import Template
from tests.aws_rules.iam_statements import statements
from tests.aws_rules.service_authorization import acts_on_anything, statement_problems

ANYWHERE = {
    "ec2:CreateNetworkInterface": "Lambda calls it, on subnets and groups of which it names no resources",
    "ec2:DeleteNetworkInterface": "Lambda calls it, on interfaces whose ids it makes",
    "ec2:AssignPrivateIpAddresses": "Lambda calls it, on interfaces whose ids it makes",
    "ec2:UnassignPrivateIpAddresses": "Lambda calls it, on interfaces whose ids it makes",
}
"""Actions on `*` that could be bound to resources, with the reason why they are not."""


def test_every_statement_names_actions_resources_and_condition_keys_that_belong_together(
    assembly: list[Template],
) -> None:
    found = statements(assembly)
    problems = sorted({f"{where}: {problem}" for where, one in found for problem in statement_problems(one)})

    assert problems == []
    assert len(found) > 60


def test_nothing_is_allowed_on_everything_that_could_be_bound(assembly: list[Template]) -> None:
    found = {action for _, statement in statements(assembly) for action in acts_on_anything(statement)}

    assert found - set(ANYWHERE) == set()


def statement(action: str, resource: str, condition: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource} | ({"Condition": condition} if condition else {})


_INSTANCE = "arn:aws:ec2:eu-west-1:123456789012:instance/*"
_CLUSTER = "arn:aws:eks:eu-west-1:123456789012:cluster/production"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (statement("ec2:LaunchInstances", _INSTANCE), "no such action"),
        (statement("nothing:DoIt", "*"), "no such action"),
        (statement("ec2:TerminateInstances", "arn:aws:ec2:eu-west-1:123456789012:volume/*"), "instance/"),
        (statement("arc-zonal-shift:GetManagedResource", _CLUSTER), "loadbalancer/"),
        (statement("s3:GetObject", "arn:aws:s3:eu-west-1:123456789012:bucket/key"), "is authorised on"),
        (
            statement("ec2:TerminateInstances", _INSTANCE, {"StringEquals": {"aws:RequestTag/team": "a"}}),
            "no condition key aws:RequestTag/team",
        ),
        (
            statement("eks:DescribeCluster", _CLUSTER, {"StringEquals": {"eks:clusterName": "production"}}),
            "no condition key eks:clusterName",
        ),
        ({"Effect": "Allow", "NotAction": "ec2:*", "Resource": "*"}, "does not understand"),
        ({"Effect": "Allow", "Action": "sqs:SendMessage"}, "no resource"),
    ],
)
def test_a_statement_that_never_matches_is_found(wrong: dict[str, Any], told: str) -> None:
    (problem,) = [line for line in statement_problems(wrong) if "no action of this statement" not in line]

    assert told in problem


@pytest.mark.parametrize(
    "right",
    [
        statement("ec2:TerminateInstances", _INSTANCE, {"StringEquals": {"aws:ResourceTag/team": "a"}}),
        statement("ec2:RunInstances", "arn:aws:ec2:eu-west-1::image/*"),
        statement("s3:*", "arn:aws:s3:::bucket/*", {"Bool": {"aws:SecureTransport": "false"}}),
        statement("kms:CreateGrant", "arn:aws:kms:*:*:key/*", {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
)
def test_a_statement_as_aws_documents_it_passes(right: dict[str, Any]) -> None:
    assert statement_problems(right) == []


def test_everything_is_said_of_what_could_be_bound_and_is_not() -> None:
    assert acts_on_anything(statement("ec2:TerminateInstances", "*")) == ["ec2:TerminateInstances"]
    assert acts_on_anything(statement("ec2:DescribeInstances", "*")) == []
    bound = {"StringEquals": {"aws:ResourceTag/team": "a"}}
    assert acts_on_anything(statement("ec2:TerminateInstances", "*", bound)) == []
