"""The template of an install that reads manifests from a cluster: what it has more than others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.infra.synthesised import actions, resources, started, statements

if TYPE_CHECKING:  # the CDK's binding starts Node.js when it is imported
    from aws_cdk.assertions import Template

WRITTEN = """\
region: eu-west-1
clusters:
  - name: live
    manifests: cluster
    nodeRoles: [shiplap-node-live, another]
    imageParameters: [/images/node]
    volumeKeys: [alias/volumes]
    sleep:
      nodePools: [dev]
      mostNodes: 10
      windows: [{when: "Mon-Fri 19:00-07:00 Europe/Berlin"}]
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Template:
    from aws_cdk.assertions import Template  # noqa: PLC0415 - as above

    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415 - as above

    folder = tmp_path_factory.mktemp("live")
    (folder / "shiplap.yaml").write_text(WRITTEN)
    app = build(read(folder / "shiplap.yaml"), outdir=str(folder / "cdk.out"))
    app.synth()  # cdk-nag finds nothing
    return Template.from_stack(app.node.find_child("Shiplap"))


def of_manifests(template: Template) -> dict[str, list[str]]:
    """Return the actions that each function may take on manifests that were read from clusters."""
    names = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "widget")
    found = {name: [item for item in statements(template, name) if item.get("Sid") == "Manifests"] for name in names}
    return {
        name: sorted(action for item in items for action in actions(item)) for name, items in found.items() if items
    }


def test_only_schedule_writes_what_was_read_and_the_functions_that_decide_on_it_read_it(live: Template) -> None:
    assert of_manifests(live) == {
        "schedule": ["s3:GetObject", "s3:PutObject"],
        "lifecycle": ["s3:GetObject"],
        "interrupt": ["s3:GetObject"],
        "catalog": ["s3:GetObject"],
        "disrupt": ["s3:GetObject"],
    }


def test_the_listed_roles_and_nothing_else_may_be_passed(live: Template) -> None:
    passed = [item["Resource"] for item in statements(live, "schedule") if "iam:PassRole" in actions(item)]
    assert "role/another" in str(passed)
    assert "role/shiplap/eu-west-1/shiplap/*" in str(passed)


def test_a_new_node_class_is_inspected_at_once(live: Template) -> None:
    rules = [item["Properties"] for item in resources(live, "AWS::Events::Rule").values()]
    (rule,) = [item for item in rules if item["EventPattern"].get("detail-type") == ["InspectionDue"]]
    (target,) = rule["Targets"]
    assert target["Input"] == '{"kind":"inspect"}'
    assert started(live, target["Arn"]["Ref"]) == "catalog"


def test_sleep_in_doubt_is_told_of(live: Template) -> None:
    alarms = [item["Properties"] for item in resources(live, "AWS::CloudWatch::Alarm").values()]
    (alarm,) = [item for item in alarms if item["AlarmName"] == "shiplap-sleep-in-doubt"]
    assert alarm["AlarmDescription"].endswith("docs/how-to/operations.md#sleep-in-doubt")


def test_a_suspended_cluster_is_told_of(live: Template) -> None:
    alarms = [item["Properties"] for item in resources(live, "AWS::CloudWatch::Alarm").values()]
    (alarm,) = [item for item in alarms if item.get("MetricName") == "ClustersSuspended"]
    assert alarm["AlarmDescription"].endswith("docs/how-to/operations.md#suspended-clusters")


def test_an_install_without_has_none_of_it(template: Template) -> None:
    assert of_manifests(template) == {}
    rules = [item["Properties"]["EventPattern"] for item in resources(template, "AWS::Events::Rule").values()]
    assert all(item.get("detail-type") != ["InspectionDue"] for item in rules)
