"""The Grafana dashboard: as its tool writes it, on metrics that are written, and by the rules of Grafana's linter."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported


from tests.infra.written_dashboards import written
from tools.grafana_dashboard import FILE, dashboard


@pytest.fixture(scope="module")
def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["panels"]
    return found


def test_the_file_is_as_the_tool_writes_it() -> None:
    assert json.loads(FILE.read_text()) == dashboard(), "python tools/grafana_dashboard.py"


def test_every_metric_is_written_by_the_functions(panels: list[dict[str, Any]]) -> None:
    named = {target["metricName"] for panel in panels for target in panel["targets"]}

    assert named >= {"Nodes", "PodsWaiting", "HourlyCost", "FailedForCapacity", "CatalogAge"}
    assert named <= written()


def test_panels_have_titles_units_targets_and_places_of_their_own(panels: list[dict[str, Any]]) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert len({target["label"] for target in panel["targets"]}) == len(panel["targets"]) <= 6
        where = panel["gridPos"]
        taken = {(where["x"] + x, where["y"] + y) for x in range(where["w"]) for y in range(where["h"])}
        assert not cells & taken
        assert where["x"] + where["w"] <= 24
        cells |= taken
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_data_source_region_and_install_are_chosen_by_the_reader(panels: list[dict[str, Any]]) -> None:
    variables = {item["name"]: item for item in dashboard()["templating"]["list"]}

    assert variables.keys() == {"datasource", "region", "install"}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels:
        assert {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])} == {
            "${datasource}"
        }
        assert {target["region"] for target in panel["targets"]} == {"$region"}
        assert {json.dumps(target["dimensions"]) for target in panel["targets"]} == {'{"install": "$install"}'}
