"""The role of the catalogue where commitments are counted on: what it may look at of them, and of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiplap_cdk.install_document import read

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tests.infra.roles_of_options import PLAIN, roles_of, written
from tests.infra.synthesised import FUNCTIONS, actions, statements, template_with
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


SHOWN = {
    "ec2:DescribeReservedInstances",
    "savingsplans:DescribeSavingsPlanRates",
    "savingsplans:DescribeSavingsPlans",
}
OTHERS = {"ec2:DescribeInstances"}


@pytest.mark.parametrize(
    ("counted", "wanted"),
    [
        ("share: 80%, written: WRITTEN", SHOWN | OTHERS),
        ("share: 80%", SHOWN | OTHERS),
        ("written: WRITTEN", OTHERS),
        ("", set()),
    ],
)
def test_only_the_catalogue_asks_for_commitments_and_only_for_what_is_counted_on(
    tmp_path: Path, counted: str, wanted: set[str]
) -> None:
    written = counted.replace("WRITTEN", "[{dollarsPerHour: 1.0, discount: 28%, end: 2027-06-30}]")
    settings = f"commitments: {{countedBy: eu-west-1/shiplap, {written}}}" if counted else ""
    template = template_with(tmp_path, settings)

    allowed = [
        (function, action)
        for function in FUNCTIONS
        for statement in statements(template, function)
        if statement.get("Sid") in ("LookAtCommitments", "ReadSavingsPlans")
        for action in sorted(actions(statement))
    ]
    assert sorted(allowed) == [("catalog", action) for action in sorted(wanted)]
    assert ("savingsplans" in json.dumps(template.to_json())) == (wanted > OTHERS)
