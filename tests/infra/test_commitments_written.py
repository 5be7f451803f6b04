"""The catalogue's role where only written Savings Plans are counted on, simulated: it may look at others' instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap_cdk.install_document import read

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tests.infra.roles_of_options import PLAIN, roles_of, written
from tests.infra.synthesised import FUNCTIONS
from tests.permissions.evaluator import allowed
from tests.permissions.story import Story, told

WRITTEN = """\
commitments:
  countedBy: eu-west-1/shiplap
  written: [{dollarsPerHour: 1.0, discount: 28%, end: 2999-01-01}]
"""
_SHOWN = ("ec2:DescribeReservedInstances", "savingsplans:")


def refresh(story: Story) -> None:
    story._setting()
    story.recording.invoke("catalog", {})


def test_only_the_instances_of_others_are_asked_for_and_that_is_allowed(tmp_path: Path) -> None:
    document = written(tmp_path, PLAIN + WRITTEN)
    roles = roles_of(document)
    with told(read(document), roles, FUNCTIONS, tmp_path, tell=refresh) as recording:
        asked = recording.aws["catalog"]
    statements = roles.statements("catalog")
    assert "ec2:DescribeInstances" in {request.action for request in asked}
    assert [request for request in asked if not allowed(statements, request)] == []
    assert [request.action for request in asked if request.action.startswith(_SHOWN)] == []
    listed = [statement["Action"] for statement in statements if statement.get("Sid") == "LookAtCommitments"]
    assert listed in (["ec2:DescribeInstances"], [["ec2:DescribeInstances"]])
