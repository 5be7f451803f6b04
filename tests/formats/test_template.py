"""Tests the visible parts of the stack: alarms, dashboard metrics, variables, rules, schedules, tables, names.

`tests/infra/test_layout.py` holds logical ids and names of what keeps state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.formats.golden import Golden
from tests.infra.synthesised import INSTALL

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build

Resource = dict[str, Any]


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> list[Resource]:
    """Of the stack and those inside it, without code: layers are made for this machine."""
    folder = tmp_path_factory.mktemp("cdk.out")
    build(read(INSTALL), local=True, outdir=str(folder)).synth()
    found = [json.loads(path.read_text())["Resources"] for path in sorted(folder.glob("*.template.json"))]
    return [item for part in found for item in part.values()]


def of_type(resources: list[Resource], kind: str) -> Iterator[Resource]:
    return (item.get("Properties", {}) for item in resources if item["Type"] == kind)


def plain(value: Any) -> Any:
    """Without logical ids, parameters and digests: names of resources within the stack are held elsewhere."""
    if isinstance(value, dict):
        if set(value) & {"Ref", "Fn::GetAtt", "Fn::Sub", "Fn::Select", "Fn::ImportValue"}:
            return "REFERENCE"
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value


def joined(value: Any) -> Any:
    """A text that CloudFormation joins, with references marked."""
    if isinstance(value, dict) and "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return separator.join(part if isinstance(part, str) else "REFERENCE" for part in parts)
    return value


def test_alarms(resources: list[Resource], golden: Golden) -> None:
    kept = ("MetricName", "Namespace", "Statistic", "Period", "Threshold", "EvaluationPeriods", "TreatMissingData")
    alarms = {}
    for item in of_type(resources, "AWS::CloudWatch::Alarm"):
        dimensions = {entry["Name"]: plain(entry["Value"]) for entry in item.get("Dimensions", ())}
        alarms[item["AlarmName"]] = {name: item.get(name) for name in kept} | {"Dimensions": dimensions}
    golden.holds("template/alarms", alarms)


def seen(metric: list[Any]) -> list[Any]:
    """A metric of a graph: its names and dimensions, and how it is made of others."""
    kept = ("expression", "stat")
    return [{name: part[name] for name in kept if name in part} if isinstance(part, dict) else part for part in metric]


def test_metrics_on_the_dashboard(resources: list[Resource], golden: Golden) -> None:
    (dashboard,) = of_type(resources, "AWS::CloudWatch::Dashboard")
    widgets = json.loads(joined(dashboard["DashboardBody"]))["widgets"]
    shown = [[seen(metric) for metric in widget["properties"].get("metrics", ())] for widget in widgets]
    golden.holds("template/dashboard", {"name": joined(dashboard["DashboardName"]), "metrics": shown})


def test_functions_and_their_variables(resources: list[Resource], golden: Golden) -> None:
    golden.holds(
        "template/functions",
        {
            item["FunctionName"]: {
                "handler": item["Handler"],
                "variables": {
                    name: joined(plain(value)) if name.startswith("SHIPLAP") else "SET"
                    for name, value in item.get("Environment", {}).get("Variables", {}).items()
                },
            }
            for item in of_type(resources, "AWS::Lambda::Function")
            if "FunctionName" in item
        },
    )


def test_rules_and_schedules(resources: list[Resource], golden: Golden) -> None:
    rules = [
        {"pattern": plain(item["EventPattern"]), "on": "its own bus" if "EventBusName" in item else "default"}
        for item in of_type(resources, "AWS::Events::Rule")
    ]
    schedules = [
        {"every": item["ScheduleExpression"], "input": joined(item["Target"].get("Input"))}
        for item in of_type(resources, "AWS::Scheduler::Schedule")
    ]
    golden.holds("template/rules", sorted(rules, key=str))
    golden.holds("template/schedules", sorted(schedules, key=str))


def test_keys_and_indexes_of_tables(resources: list[Resource], golden: Golden) -> None:
    kept = (
        "KeySchema",
        "AttributeDefinitions",
        "LocalSecondaryIndexes",
        "GlobalSecondaryIndexes",
        "TimeToLiveSpecification",
    )
    tables = [
        {name: plain(item[name]) for name in kept if name in item}
        for item in of_type(resources, "AWS::DynamoDB::GlobalTable")
    ]
    golden.holds("template/tables", sorted(tables, key=str))


def test_tags(resources: list[Resource], golden: Golden) -> None:
    tags: set[tuple[str, str]] = set()
    for item in resources:
        written = item.get("Properties", {}).get("Tags", [])
        pairs = written.items() if isinstance(written, dict) else ((tag["Key"], tag["Value"]) for tag in written)
        tags |= {(key, str(plain(value))) for key, value in pairs}
    golden.holds("template/tags", sorted(list(tag) for tag in tags))
