"""cfn-lint, which knows CloudFormation's resource schemas of every Region."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.aws_rules.cloud_assembly import REGION

IGNORED = {
    "W3005": "the CDK writes a dependency on a role beside that on its policy; naming it twice changes nothing",
}
"""Rules that are not held, with the reason."""


def findings(paths: Iterable[Path], region: str = REGION) -> list[dict[str, Any]]:
    """Errors and warnings of cfn-lint."""
    ignored = ["--ignore-checks", *IGNORED] if IGNORED else []
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--format", "json", "--regions", region, *ignored, "--"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.stdout.startswith("["), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def brief(found: Iterable[dict[str, Any]]) -> list[tuple[str, list[str], str]]:
    """The rule, the place and the message of each finding."""
    return [(item["Rule"]["Id"], item["Location"]["Path"]["Path"], item["Message"]) for item in found]
