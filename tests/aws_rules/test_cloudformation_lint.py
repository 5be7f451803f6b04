"""The templates, held against CloudFormation's resource schemas and rules by cfn-lint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.aws_rules.cloud_assembly import REGION, Template

IGNORED = {
    "W3005": "the CDK writes a dependency on a role beside that on its policy; naming it twice changes nothing",
}
"""Rules that are not held, with the reason."""


def findings(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Errors and warnings of cfn-lint."""
    ignored = ["--ignore-checks", *IGNORED] if IGNORED else []
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--format", "json", "--regions", REGION, *ignored, "--"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout.startswith("["), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _kinds(assembly: list[Template]) -> list[Path]:
    """One template of each kind: nested stacks made alike differ in names only."""
    kinds = {frozenset((item.type, frozenset(item.properties)) for item in one.resources()): one for one in assembly}
    return [one.path for one in kinds.values()]


def test_no_template_breaks_a_rule_of_cfn_lint(assembly: list[Template]) -> None:
    found = findings(_kinds(assembly))

    assert [(item["Rule"]["Id"], item["Location"]["Path"]["Path"], item["Message"]) for item in found] == []


def test_a_property_that_does_not_exist_is_found(tmp_path: Path) -> None:
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueNames": "wrong"}}
    path = tmp_path / "wrong.template.json"
    path.write_text(json.dumps({"Resources": {"Queue": queue}}))

    assert [item["Rule"]["Id"] for item in findings([path])] == ["E3002"]
