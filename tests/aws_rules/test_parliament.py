"""Policies, read by parliament: grammar, operators and types of conditions. It is a program of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.aws_rules.cloud_assembly import Template
from tests.aws_rules.iam_statements import statements

PYTHON = Path(__file__).parents[2] / "build" / "parliament" / "bin" / "python"

ACCEPTED = {
    "RESOURCE_MISMATCH": "it wants all resources of an action in one statement; ours differ in conditions, "
    "and test_service_authorization.py looks at each type",
    "RESOURCE_STAR": "test_service_authorization.py holds the list of what is allowed on everything",
    "UNKNOWN_CONDITION_FOR_ACTION lambda:SourceFunctionArn": "IAM documents it for every request of a function's code",
    "UNKNOWN_CONDITION_FOR_ACTION kms:ResourceAliases": "its data of 2025 lack a key that KMS documents for all keys",
}
"""Findings that are not held against a policy, with the reason; an issue, or one with a condition key."""

_READ = """
import json, sys
import parliament

for policy in json.load(sys.stdin):
    for finding in parliament.analyze_policy_string(json.dumps(policy)).findings:
        print(json.dumps([finding.issue, str(finding.detail)]))
"""


def findings(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Issue and detail of each finding that is not accepted."""
    if not PYTHON.exists():
        pytest.skip("parliament is not installed: `make setup`")
    policies = [{"Version": "2012-10-17", "Statement": [statement]} for statement in found]
    done = subprocess.run(  # noqa: S603 - our own
        [PYTHON, "-W", "ignore", "-c", _READ], input=json.dumps(policies), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    return [(issue, detail) for issue, detail in said if not _accepted(issue, detail)]


def _accepted(issue: str, detail: str) -> bool:
    return any(
        issue == accepted and (not key or f" {key} " in detail)
        for accepted, _, key in (item.partition(" ") for item in ACCEPTED)
    )


def test_parliament_finds_nothing_else_in_any_policy(assembly: list[Template]) -> None:
    """Policies of identities only: it expects a resource everywhere, and takes whole numbers only."""
    found = [statement for _, statement in statements(assembly) if "Principal" not in statement]

    assert findings(found) == []
    assert len(found) > 40


_INSTANCE = "arn:aws:ec2:eu-west-1:123456789012:instance/*"


@pytest.mark.parametrize(
    ("wrong", "issue"),
    [
        ({"Effect": "Permit", "Action": "ec2:TerminateInstances", "Resource": _INSTANCE}, "MALFORMED"),
        ({"Effect": "Allow", "Action": "ec2:EndInstances", "Resource": _INSTANCE}, "UNKNOWN_ACTION"),
        (
            {
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": "arn:aws:s3:::bucket/*",
                "Condition": {"NumericLessThan": {"aws:SecureTransport": "x"}},
            },
            "MISMATCHED_TYPE",
        ),
        (
            {
                "Effect": "Allow",
                "Action": "ec2:TerminateInstances",
                "Resource": _INSTANCE,
                "Condition": {"StringSame": {"aws:ResourceTag/team": "a"}},
            },
            "UNKNOWN_OPERATOR",
        ),
    ],
)
def test_parliament_finds_what_is_wrong(wrong: dict[str, Any], issue: str) -> None:
    assert issue in {found for found, _ in findings([wrong])}
