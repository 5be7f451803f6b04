"""`shiplap status --openmetrics`: the text follows the grammar of OpenMetrics, and says what the screen says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shiplap_cli.installs.install_metrics import (
    FailedClaim,
    FunctionMetrics,
    InstallMetrics,
    LearnedCapacityValue,
    PoolUsage,
    QueueMetrics,
)
from shiplap_cli.render.openmetrics import openmetrics_text, write_openmetrics
from shiplap_cli.render.status_page import CatalogDocument, StatusDocument

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>[-+0-9.e]+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
NOTHING = StatusDocument((), ())
Sample = tuple[str, frozenset[tuple[str, str]]]


def parsed(text: str) -> dict[Sample, float]:
    """Read the text as the grammar has it: families one after the other, each with its type before its samples."""
    *lines, end, rest = text.split("\n")
    assert (end, rest) == ("# EOF", "")
    samples: dict[Sample, float] = {}
    families: list[str] = []
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind == "gauge"
            assert name not in families
            families.append(name)
        elif line.startswith("# UNIT "):
            _, _, name, unit = line.split(" ")
            assert (name, name.endswith(f"_{unit}")) == (families[-1], True)
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == families[-1]
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found["name"] == families[-1]
            labels = LABEL.findall(found["labels"] or "")
            assert ",".join(f'{name}="{value}"' for name, value in labels) == (found["labels"] or "")
            key = (found["name"], frozenset(labels))
            assert key not in samples
            samples[key] = float(found["value"])
    return samples


def value(samples: dict[Sample, float], metric: str, **labels: str) -> float:
    return samples[metric, frozenset(labels.items())]


def test_figures_of_two_clusters_with_pools_of_one_name_stay_apart() -> None:
    one = PoolUsage(
        "prod", "web", 14, 2, 1, 3.25, {"cpu": "99120m", "memory": "512Gi"}, {"cpu": "1000", "memory": "1Ti"}
    )
    two = PoolUsage("dev", "web", 1, 0, 0, 0.1, {"cpu": "2", "nodes": "1"}, {"cpu": "0", "nodes": "4"})
    samples = parsed(openmetrics_text(NOTHING, InstallMetrics(pool_use=(one, two))))
    assert value(samples, "shiplap_nodes", cluster="prod", node_pool="web") == 14
    assert value(samples, "shiplap_nodes", cluster="dev", node_pool="web") == 1
    assert value(samples, "shiplap_nodes_starting", cluster="prod", node_pool="web") == 2
    assert value(samples, "shiplap_nodes_leaving", cluster="prod", node_pool="web") == 1
    assert value(samples, "shiplap_nodes_cost_usd_per_hour", cluster="dev", node_pool="web") == 0.1
    used = "shiplap_node_pool_limit_used_ratio"
    assert value(samples, used, cluster="prod", node_pool="web", resource="cpu") == pytest.approx(0.09912)
    assert value(samples, used, cluster="prod", node_pool="web", resource="memory") == 0.5
    assert value(samples, used, cluster="dev", node_pool="web", resource="nodes") == 0.25
    assert (used, frozenset({("cluster", "dev"), ("node_pool", "web"), ("resource", "cpu")})) not in samples


def test_what_is_not_known_has_no_sample() -> None:
    function = FunctionMetrics("schedule", "7", 60, 0, None)
    metrics = InstallMetrics(functions=(function,), failures=(FailedClaim("prod", "a", "", ""),), unseen=("queues",))
    unread = StatusDocument(
        (), (CatalogDocument("eu-west-1", problem="gone"), CatalogDocument("us-east-1", age_seconds=9))
    )
    samples = parsed(openmetrics_text(unread, metrics))
    assert value(samples, "shiplap_function_invocations_last_hour", function="schedule", version="7") == 60
    assert value(samples, "shiplap_function_errors_last_hour", function="schedule", version="7") == 0
    assert [key for key in samples if "throttles" in key[0] or "nodes" in key[0]] == []
    assert [dict(labels)["region"] for name, labels in samples if "catalogue" in name] == ["us-east-1"]
    assert value(samples, "shiplap_claims_failed_last_hour") == 1
    assert value(samples, "shiplap_status_unseen") == 1
    assert value(samples, "shiplap_launches_frozen") == 0
    assert value(parsed(openmetrics_text(NOTHING, InstallMetrics(frozen_at="now"))), "shiplap_launches_frozen") == 1


def test_learned_memory_is_in_bytes_and_queues_have_their_counts() -> None:
    learned = LearnedCapacityValue(12, 345, 1.5, 0.7, 0.4)
    queue = QueueMetrics("lifecycle", 3, 12, 2, {})
    samples = parsed(openmetrics_text(NOTHING, InstallMetrics(learned=learned, queues=(queue,))))
    assert value(samples, "shiplap_learned_memory_bytes") == 1.5 * 2**30
    assert value(samples, "shiplap_queue_messages", queue="lifecycle") == 3
    assert value(samples, "shiplap_queue_messages_in_flight", queue="lifecycle") == 12
    assert value(samples, "shiplap_queue_dead_letters", queue="lifecycle") == 2


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ('a"b', 'a\\"b'),
        ("a\\b", "a\\\\b"),
        ("a\nb", "a\\nb"),
        ("a\x1b[31mb", "a\\\\x1b[31mb"),
        ("ü", "ü"),
        ("a,b}", "a,b}"),
    ],
)
def test_no_name_breaks_a_line(name: str, written: str) -> None:
    text = openmetrics_text(NOTHING, InstallMetrics(pool_use=(PoolUsage(name, "web", 1, 0, 0, 0.1, {}, {}),)))
    assert value(parsed(text), "shiplap_nodes", cluster=written, node_pool="web") == 1
    assert "\x1b" not in text


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "shiplap.prom"
    path.write_text("old")
    write_openmetrics(path, "new")
    assert (path.read_text(), [item.name for item in tmp_path.iterdir()]) == ("new", ["shiplap.prom"])
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="shiplap"):
        write_openmetrics(path, "newer")
    assert [item.name for item in tmp_path.iterdir()] == ["shiplap.prom"]
