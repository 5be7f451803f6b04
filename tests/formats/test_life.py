"""Tests the functions' requests to AWS, events, logs and object changes while a node is launched, joins and ends.

Tags, names of launch templates, client tokens, keys of the bucket, events with all that is told, labels and taints.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.formats.golden import Golden
from tests.formats.life import Life, lived

_MASKS = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b(i|subnet|sg|lt|vpc|fleet|r)-[0-9a-f]{8,17}\b", r"\1-ID"),
        (r"\bip-10-[0-9-]+\b", "ip-ADDRESS"),
        (r"\b(general)-[a-z0-9]{8}\b", r"\1-CLAIM"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
        (r"\b[0-9a-f]{64}\b", "DIGEST-64"),
        (r"\b[0-9a-f]{32}\b", "DIGEST-32"),
        (r"\b[0-9a-f]{16,20}\b", "DIGEST-16"),
        (r"\b[0-9a-f]{12}\b(?!:)", "DIGEST-12"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "TIME"),
        (r"\d{4}-\d\d-\d\d/\d{6}", "DATE/TIME"),
        (r"\b17\d{8}(\.\d+)?\b", "TIME"),
    )
)


def masked(value: Any) -> Any:
    """Ids, names made of content, and moments, which differ from run to run."""
    if isinstance(value, dict):
        return {masked(key): "USER-DATA" if key == "UserData" else masked(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [masked(entry) for entry in value]
    if isinstance(value, float | int) and not isinstance(value, bool) and value > 1_600_000_000:
        return "TIME"
    if isinstance(value, str):
        for pattern, mask in _MASKS:
            value = pattern.sub(mask, value)
    return value


def distinct(values: list[Any]) -> list[Any]:
    """Each once, in the order of their text."""
    return [json.loads(text) for text in sorted({json.dumps(value, sort_keys=True) for value in values})]


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return lived(tmp_path_factory.mktemp("life"))


def requests(life: Life, service: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for _, name, operation, parameters in life.calls:
        if name == service:
            found.setdefault(operation, []).append(masked(parameters))
    return {operation: distinct(values) for operation, values in found.items()}


def test_requests_to_ec2(life: Life, golden: Golden) -> None:
    found = requests(life, "ec2")
    assert {"CreateFleet", "CreateLaunchTemplate", "TerminateInstances"} <= found.keys()
    golden.holds("life/ec2", found)


def test_events(life: Life, golden: Golden) -> None:
    entries = [
        masked({**entry, "Detail": json.loads(entry["Detail"])})
        for _, _, operation, parameters in life.calls
        if operation == "PutEvents"
        for entry in parameters["Entries"]
    ]
    golden.holds("life/events", distinct(entries))


def test_timers(life: Life, golden: Golden) -> None:
    bodies = [masked(entry) for entry in requests(life, "sqs")["SendMessage"]]
    golden.holds("life/timers", distinct(bodies))


def test_keys_of_the_bucket(life: Life, golden: Golden) -> None:
    keys = {f"{operation} {masked(parameters['Key'])}" for _, name, operation, parameters in life.calls if name == "s3"}
    golden.holds("life/bucket-keys", keys)


def test_keys_of_the_tables(life: Life, golden: Golden) -> None:
    """Partitions and items that are read and written one by one; names of claims decide on the shard."""
    keys = set()
    for _, name, operation, parameters in life.calls:
        if name == "dynamodb" and operation in ("GetItem", "PutItem"):
            held = parameters["Key" if operation == "GetItem" else "Item"]
            key = "/".join(held[part]["S"] for part in ("cluster", "ami", "item") if part in held)
            keys.add(f"{parameters['TableName']}: {re.sub(r'#[0-7]/', '#SHARD/', masked(key))}")
    golden.holds("life/table-keys", keys)


def test_lines_of_the_log(life: Life, golden: Golden) -> None:
    """Fields of all lines together, and what metrics are documents of."""
    lines = [line for line in life.lines if "_aws" not in line]
    metrics = [metric for line in life.lines if "_aws" in line for metric in line["_aws"]["CloudWatchMetrics"]]
    documents = [{"Namespace": item["Namespace"], "Dimensions": item["Dimensions"]} for item in metrics]
    golden.holds(
        "life/log",
        {
            "fields": {field for line in lines for field in line},
            "level": distinct([line["level"] for line in lines]),
            "metrics": distinct(documents),
            "metric fields": {field for line in life.lines if "_aws" in line for field in line if field.islower()},
        },
    )


def test_objects_of_the_cluster(life: Life, golden: Golden) -> None:
    (node,) = life.objects["nodes"]
    marks = {name: node["metadata"].get(name, {}) for name in ("labels", "annotations", "finalizers")}
    pods = [(pod["spec"].get("nodeName", ""), "nominatedNodeName" in pod["status"]) for pod in life.objects["pods"]]
    kept = ("type", "reason", "message", "source", "reportingComponent", "involvedObject")
    events = [{name: event.get(name) for name in kept} for event in life.objects["events"]]
    golden.holds(
        "life/objects",
        masked({"node": marks | {"taints": node["spec"].get("taints", [])}, "pods": pods, "events": distinct(events)}),
    )
