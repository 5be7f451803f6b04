"""The templates, held against CloudFormation's resource schemas and rules by cfn-lint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.aws_rules.cfn_lint import brief, findings
from tests.aws_rules.cloud_assembly import Template

pytestmark = pytest.mark.thorough


def _kinds(assembly: list[Template]) -> list[Path]:
    """One template of each kind: nested stacks made alike differ in names only."""
    kinds = {frozenset((item.type, frozenset(item.properties)) for item in one.resources()): one for one in assembly}
    return [one.path for one in kinds.values()]


def test_no_template_breaks_a_rule_of_cfn_lint(assembly: list[Template]) -> None:
    assert brief(findings(_kinds(assembly))) == []


def test_a_property_that_does_not_exist_is_found(tmp_path: Path) -> None:
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueNames": "wrong"}}
    path = tmp_path / "wrong.template.json"
    path.write_text(json.dumps({"Resources": {"Queue": queue}}))

    assert [item["Rule"]["Id"] for item in findings([path])] == ["E3002"]
