"""The dashboard and the alarms: they name only what is written, stay quiet at rest, and lead to a runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from aws_cdk.assertions import Template

from shiplap_cdk.constructs.dashboard import LABELS, MOST_LINES, MOST_METRICS
from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build
from tests.infra.written_dashboards import ROOT, written

INSTALL = ROOT / "tests" / "infra" / "install" / "shiplap.yaml"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:platform-alarms"

Alarm = dict[str, Any]


@pytest.fixture(scope="module")
def widgets(template: Template) -> list[dict[str, Any]]:
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    parts = dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
    body = "".join(part if isinstance(part, str) else "reference" for part in parts)
    found: list[dict[str, Any]] = json.loads(body)["widgets"]
    return found


@pytest.fixture(scope="module")
def alarms(template: Template) -> dict[str, Alarm]:
    found = (item["Properties"] for item in template.find_resources("AWS::CloudWatch::Alarm").values())
    return {item["AlarmName"].removeprefix("shiplap-"): item for item in found}


def shown(widgets: list[dict[str, Any]]) -> Iterator[str]:
    for widget in widgets:
        for metric in widget["properties"].get("metrics", ()):
            if metric[0] == "Shiplap":
                yield metric[1]


def test_every_metric_of_ours_on_the_dashboard_is_written_by_the_code(widgets: list[dict[str, Any]]) -> None:
    names = set(shown(widgets))

    assert names >= {"Nodes", "Pods", "HourlyCost", "EventToReady", "FailedForCapacity", "CatalogAge"}
    assert names <= written()
    assert LABELS.keys() <= written()


def test_a_row_of_big_numbers_comes_first(widgets: list[dict[str, Any]]) -> None:
    first = [widget for widget in widgets if widget["y"] == 0]

    assert [widget["properties"]["view"] for widget in first] == ["singleValue"] * 4
    assert sum(widget["width"] for widget in first) == 24
    assert [widget["properties"]["title"] for widget in first] == [
        "Nodes",
        "Pods that wait for a node",
        "USD per hour",
        "USD per hour below on-demand list prices",
    ]


def test_people_read_words_and_at_most_six_lines_a_graph(widgets: list[dict[str, Any]]) -> None:
    words = written()
    for widget in widgets:
        visible = [
            metric[-1]
            for metric in widget["properties"].get("metrics", ())
            if not isinstance(metric[-1], dict) or metric[-1].get("visible", True)
        ]
        assert len(visible) <= MOST_LINES == 6, widget["properties"]["title"]
        labels = [options["label"] for options in visible]
        assert len(set(labels)) == len(labels)
        assert not set(labels) & words


def test_what_was_saved_is_shown_over_weeks_in_dollars_per_day(widgets: list[dict[str, Any]]) -> None:
    (weeks,) = (widget for widget in widgets if "start" in widget["properties"])

    assert weeks["properties"]["start"] == "-P4W"
    drawn = [metric[0] for metric in weeks["properties"]["metrics"] if isinstance(metric[0], dict)]
    assert [(item["expression"], item["label"], item["period"]) for item in drawn] == [
        ("hourlycost / 60", "paid", 86400),
        ("hourlylistprice / 60", "on-demand list price", 86400),
    ]


def test_the_map_of_the_clusters_is_drawn_by_the_version_in_service(
    template: Template, widgets: list[dict[str, Any]]
) -> None:
    (drawn,) = (widget for widget in widgets if widget["type"] == "custom")
    assert (drawn["x"], drawn["width"]) == (0, 24)
    assert drawn["properties"]["updateOn"] == {"refresh": True, "resize": True, "timeRange": False}
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    references = [
        part.get("Ref", "")
        for part in dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
        if isinstance(part, dict)
    ]
    aliases = template.find_resources("AWS::Lambda::Alias")
    (alias,) = (aliases[name] for name in references if name in aliases)
    function = template.find_resources("AWS::Lambda::Function")[alias["Properties"]["FunctionName"]["Ref"]]
    assert function["Properties"]["FunctionName"] == "shiplap-widget"
    assert alias["Properties"]["Name"] == "live"


def test_nobody_is_called_because_the_widget_fails(alarms: dict[str, Alarm]) -> None:
    assert not [name for name in alarms if "widget" in name]


def test_every_widget_shows_something_and_none_covers_another(widgets: list[dict[str, Any]]) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in widgets:
        if widget["type"] == "metric":
            assert widget["properties"]["metrics"], widget["properties"]["title"]
        cells = {
            (widget["x"] + column, widget["y"] + row)
            for column in range(widget["width"])
            for row in range(widget["height"])
        }
        assert not cells & taken
        assert widget["x"] + widget["width"] <= 24
        taken |= cells


def test_it_costs_nothing_within_the_free_tier_and_searches_nothing(widgets: list[dict[str, Any]]) -> None:
    """The metrics stay within the free tier, and no widget searches.

    Each metric that a search finds counts, so there is no search. To be on the safe side, a metric that is shown twice
    is counted twice, and a metric that only an expression uses is counted as well.
    """
    listed = [metric for widget in widgets for metric in widget["properties"].get("metrics", ())]
    expressions = [metric[0]["expression"] for metric in listed if isinstance(metric[0], dict)]

    assert all(re.fullmatch(r"([a-z]+|\(listed - paid\)) / (5|60)", expression) for expression in expressions)
    assert len(listed) - len(expressions) <= MOST_METRICS == 50


def test_figures_are_of_all_clusters_together(widgets: list[dict[str, Any]]) -> None:
    text = json.dumps(widgets)

    assert '"HourlyCost", "install", "shiplap"' in text
    assert "production" not in text


def test_ceilings_are_shown_where_they_are_written(tmp_path: Path, widgets: list[dict[str, Any]]) -> None:
    install = tmp_path / "shiplap.yaml"
    text = INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/")
    install.write_text(text + "ceilings: [{monthly: 500}]\n")

    app = build(read(install), outdir=str(tmp_path / "cdk.out"))
    template = Template.from_stack(app.node.find_child("Shiplap"))
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    body = json.dumps(dashboard["Properties"]["DashboardBody"])
    assert "CeilingUse" in body
    assert "CeilingsReached" in body
    assert "CeilingUse" not in set(shown(widgets))


def test_without_a_dashboard_none_is_made(tmp_path: Path) -> None:
    install = tmp_path / "shiplap.yaml"
    install.write_text(INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/") + "dashboard: false\n")

    app = build(read(install), outdir=str(tmp_path / "cdk.out"))

    template = Template.from_stack(app.node.find_child("Shiplap"))
    assert not template.find_resources("AWS::CloudWatch::Dashboard")
    assert template.find_resources("AWS::CloudWatch::Alarm")


def test_every_alarm_of_ours_watches_a_metric_that_is_written(alarms: dict[str, Alarm]) -> None:
    watched = {item["MetricName"] for item in alarms.values() if item.get("Namespace") == "Shiplap"}

    assert watched == {
        "CatalogAge",
        "NodeClassNotReady",
        "LaunchesFruitless",
        "InstancesOfOtherInstalls",
        "NodesNotJoined",
        "NodeClaimsMissed",
        "RepairsStopped",
    }
    assert watched <= written()


def test_alarms_are_quiet_at_rest(alarms: dict[str, Alarm]) -> None:
    missing = {name: item["TreatMissingData"] for name, item in alarms.items()}

    assert missing.pop("catalog-stale") == "missing"
    assert set(missing.values()) == {"notBreaching"}
    assert {item["ComparisonOperator"] for item in alarms.values()} == {"GreaterThanThreshold"}
    assert min(item["Threshold"] for item in alarms.values()) == 0


def test_every_alarm_leads_to_a_section_of_the_runbook(alarms: dict[str, Alarm]) -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "how-to" / "operations.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    for name, item in alarms.items():
        section = re.search(r"docs/how-to/operations\.md#([\w-]+)$", item["AlarmDescription"])
        assert section is not None, name
        assert section[1] in anchors, name


def test_messages_that_lambda_drops_as_a_loop_raise_an_alarm(alarms: dict[str, Alarm]) -> None:
    alarm = alarms["lifecycle-recursion"]

    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "RecursiveInvocationsDropped")
    assert alarm["Dimensions"][0]["Name"] == "FunctionName"
    assert (alarm["Statistic"], alarm["Threshold"], alarm["EvaluationPeriods"]) == ("Sum", 0, 1)


def test_a_function_without_an_alarm_on_its_errors_has_one_on_its_queue(alarms: dict[str, Alarm]) -> None:
    """Failed invocations leave their messages behind: they grow old or end as dead letters, in time."""
    assert {name.removesuffix("-errors") for name in alarms if name.endswith("-errors")} == {
        "audit",
        "catalog",
        "disrupt",
        "lifecycle",
        "watch",
    }
    for queue in ("provisioning", "interruption"):
        assert alarms[f"{queue}-dead-letters"]["EvaluationPeriods"] == 1
        age = alarms[f"{queue}-queue-age"]
        assert age["Threshold"] + age["EvaluationPeriods"] * age["Period"] <= 15 * 60


def test_alarms_and_their_ends_are_told_to_the_topic(alarms: dict[str, Alarm]) -> None:
    assert len(alarms) == 3 + 3 + 5 + 1 + 7
    for item in alarms.values():
        assert item["AlarmActions"] == item["OKActions"] == [TOPIC]


def test_without_a_topic_alarms_only_show(tmp_path: Path) -> None:
    install = tmp_path / "shiplap.yaml"
    text = INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/")
    install.write_text("".join(line for line in text.splitlines(keepends=True) if "alarmTopic" not in line))

    app = build(read(install), outdir=str(tmp_path / "cdk.out"))

    found = Template.from_stack(app.node.find_child("Shiplap")).find_resources("AWS::CloudWatch::Alarm")
    assert found
    assert all("AlarmActions" not in item["Properties"] for item in found.values())
