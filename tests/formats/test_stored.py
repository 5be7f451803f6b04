"""Tests the stored items of the tables and the objects of the bucket: one of each kind, every field set.

Versions before and after an update meet each other's items.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.formats.doors import fields_of_claims, shiplap_on_a_bucket, stored_items, stored_objects
from tests.formats.golden import Golden, same

SEEDS: dict[str, Any] = json.loads((Path(__file__).parent / "given" / "stored.json").read_text())


@pytest.fixture(scope="module")
def items() -> dict[str, list[dict[str, Any]]]:
    return stored_items(SEEDS)


def readable(item: dict[str, Any]) -> dict[str, Any]:
    """An item whose JSON documents are opened."""
    found = {}
    for name, value in item.items():
        ((kind, content),) = value.items()
        if name == "write":  # drawn by chance, so that a write is told from its repetition
            assert re.fullmatch(r"[0-9a-f]{32}", content)
            content = "CHANCE"
        if kind == "B":
            content = zlib.decompress(content).decode()
        found[name] = {kind: json.loads(content) if kind in "BS" and content[:1] == "{" else content}
    return found


def test_items(items: dict[str, list[dict[str, Any]]], golden: Golden) -> None:
    golden.holds("stored-items", {table: [readable(item) for item in found] for table, found in items.items()})


def test_documents_in_items_lose_nothing(items: dict[str, list[dict[str, Any]]]) -> None:
    """Each field of a claim, a command and learned capacity is read and written again under its name."""
    found: dict[str, list[Any]] = {"claim": [], "command": [], "learned": []}
    for item in (item for entries in items.values() for item in entries):
        for name in found.keys() & item.keys():
            found[name].append(json.loads(item[name]["S"]))
    for name, seeds in (("claim", SEEDS["claims"]), ("command", SEEDS["commands"])):
        written = [{**seed, "schema": 1} for seed in seeds]  # the seeds are as the release before that field left them
        same(sorted(written, key=str), sorted(found[name], key=str), name)
    same([SEEDS["learned"]], found["learned"], "learned")


def test_a_claim_has_every_field_set() -> None:
    """So that a field which is new is held as well: give it a value in `given/stored.json`."""
    assert fields_of_claims() - {"state", "schema"} <= max(SEEDS["claims"], key=len).keys()


def opened(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return msgspec.msgpack.decode(zlib.decompress(body))


def test_objects(golden: Golden) -> None:
    found, digest = {}, ""
    for key, body, metadata in stored_objects(SEEDS):
        if key.endswith("/latest"):
            digest = body.decode()
            continue
        document = opened(body)
        seed = key if key in SEEDS or not key.startswith("catalog/") else "catalog"
        if seed in SEEDS:
            same(SEEDS[seed], document, seed)
        found[re.sub(r"[0-9a-f]{32}$", "DIGEST", key)] = {"document": document, "metadata": metadata}
    assert re.fullmatch(r"[0-9a-f]{32}", digest)
    golden.holds("stored-objects", found)


def test_status_of_what_is_stored(golden: Golden) -> None:
    found = shiplap_on_a_bucket(SEEDS, "status", "-o", "json")
    answer = json.loads(found.out)
    for cluster in answer["clusters"]:
        assert isinstance(cluster.pop("ageSeconds"), int | float)
    golden.holds("commands/status", {"exit code": found.code, "answer": answer})
