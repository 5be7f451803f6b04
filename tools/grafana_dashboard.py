"""Writes docs/grafana-cloudwatch.json: a Grafana dashboard on the metrics that Shiplap writes to CloudWatch.

It shows what the CloudWatch dashboard shows, by the same names for people. Data source, Region and install are chosen
in Grafana.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from shiplap.ports import INSTALL_DIMENSION, METRICS_NAMESPACE
from shiplap_cdk.constructs.dashboard import BROKEN, COMMANDS, FAILURES, LABELS, LIFE

FILE = Path(__file__).parents[1] / "docs/grafana-cloudwatch.json"

_SOURCE = {"type": "cloudwatch", "uid": "${datasource}"}
_PER_MINUTE = "60"
_WIDTH, _HEIGHT, _BIG_HEIGHT = 24, 8, 4

_BIG = (
    ("Nodes", ("Nodes",), "none"),
    ("Pods that wait for a node", ("PodsWaiting",), "none"),
    ("USD per hour", ("HourlyCost",), "currencyUSD"),
)
_GRAPHS: tuple[tuple[tuple[str, Sequence[str], str, str], ...], ...] = (
    (
        ("Pods that wait", ("PodsWaiting",), "Sum", "none"),
        ("The oldest pod that waits", ("OldestPodWaiting",), "Maximum", "s"),
        ("From a pod's event to its node, median", ("EventToLaunch", "EventToReady"), "p50", "s"),
    ),
    (
        ("Nodes", ("Nodes",), "Sum", "none"),
        ("Pods on nodes", ("Pods",), "Sum", "none"),
        ("Steps of nodes", LIFE, "Sum", "none"),
    ),
    (
        ("USD per hour, paid and listed", ("HourlyCost", "HourlyListPrice"), "Sum", "currencyUSD"),
        ("Disruption commands", COMMANDS, "Sum", "none"),
        ("USD per hour saved by commands", ("SavingsHourly",), "Sum", "currencyUSD"),
        ("Spent and reserved, part of a ceiling", ("CeilingUse",), "Maximum", "percent"),
    ),
    (
        ("Offerings that EC2 refused, by cause", FAILURES, "Sum", "none"),
        ("What went wrong", BROKEN, "Sum", "none"),
        ("Age of the catalogue", ("CatalogAge",), "Maximum", "s"),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "Shiplap",
        "uid": "shiplap-cloudwatch",
        "description": "Nodes, waiting pods, dollars and failures of one install of Shiplap, from CloudWatch.",
        "tags": ["shiplap", "kubernetes"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [*_variables()]},
        "annotations": {"list": []},
        "panels": [*_panels()],
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "cloudwatch",
        "current": {"text": "default", "value": "default"},
    }
    for name, label, query in (
        ("region", "Region", "regions()"),
        (
            INSTALL_DIMENSION,
            "Install",
            f"dimension_values($region, {METRICS_NAMESPACE}, CatalogAge, {INSTALL_DIMENSION})",
        ),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": False,
            "includeAll": False,
        }


def _panels() -> Iterator[dict[str, Any]]:
    ids = count(1)
    for place, (title, names, unit) in enumerate(_BIG):
        where = {"x": place * _WIDTH // len(_BIG), "y": 0, "w": _WIDTH // len(_BIG), "h": _BIG_HEIGHT}
        yield _panel(next(ids), "stat", title, where, names, "Sum", unit)
    for row, graphs in enumerate(_GRAPHS):
        for place, (title, metrics, statistic, unit) in enumerate(graphs):
            wide = _WIDTH // len(graphs)
            where = {"x": place * wide, "y": _BIG_HEIGHT + row * _HEIGHT, "w": wide, "h": _HEIGHT}
            yield _panel(next(ids), "timeseries", title, where, metrics, statistic, unit)


def _panel(
    id_: int, kind: str, title: str, where: dict[str, int], names: Sequence[str], statistic: str, unit: str
) -> dict[str, Any]:
    return {
        "id": id_,
        "type": kind,
        "title": title,
        "description": f"CloudWatch metrics: {', '.join(names)}. docs/reference/events.md says what each counts.",
        "datasource": _SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {},
        "targets": [_target(chr(ord("A") + place), name, statistic) for place, name in enumerate(names)],
    }


def _target(reference: str, name: str, statistic: str) -> dict[str, Any]:
    return {
        "refId": reference,
        "datasource": _SOURCE,
        "queryMode": "Metrics",
        "metricQueryType": 0,
        "metricEditorMode": 0,
        "region": "$region",
        "namespace": METRICS_NAMESPACE,
        "metricName": name,
        "dimensions": {INSTALL_DIMENSION: f"${INSTALL_DIMENSION}"},
        "statistic": statistic,
        "period": _PER_MINUTE,
        "matchExact": True,
        "label": LABELS[name],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n")
