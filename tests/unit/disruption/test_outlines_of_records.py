"""Tests the readable parts of a record in any version, and of a spoilt record."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidInput
from shiplap.records.disruption_record import Outline, OutlinedClaim, is_disruption, outline_with, read

CLAIM = {
    "name": "c",
    "nodePool": "flex",
    "launch": {"instanceType": "m5.large", "zone": "a", "capacityType": "spot", "price": 0.25, "later": 1},
    "pods": [{"name": "p"}, {"name": "q"}],
    "unknown": {},
}
OUTLINED = OutlinedClaim("c", "flex", "m5.large", "a", "spot", 0.25, 2)
SNAPSHOT = {"cluster": "blue", "now": 7.5, "epoch": 41, "view": {"pods": [1, 2, 3], "nodes": [1, 2]}}


def packed(value: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value))


def outline(value: object) -> Outline:
    return read(packed(value), "here").outline


def test_a_plan_of_any_version() -> None:
    found = outline({"snapshot": SNAPSHOT, "plan": {"nodeClaims": [CLAIM], "unschedulable": [{}, {}]}, "version": "99"})
    assert found == Outline("schedule", "blue", 7.5, 41, 3, 2, (OUTLINED,), (), 2)


def test_commands_of_any_version() -> None:
    commands = [{"nodes": ["n1", "n2"], "replacements": [CLAIM]}, {"nodes": ["n3"]}]
    found = outline({"snapshot": {"scheduling": SNAPSHOT}, "decision": {"commands": commands}})
    assert found == Outline("disrupt", "blue", 7.5, 41, 3, 2, (OUTLINED,), ("n1", "n2", "n3"), 0)


@pytest.mark.parametrize(
    "snapshot", [{}, {"view": 3, "now": "soon", "epoch": "x"}, {"view": {"pods": 1, "nodes": None}, "epoch": 1.5}]
)
def test_what_is_missing_or_malformed_is_left_out(snapshot: dict[str, Any]) -> None:
    odd = {"name": 5, "launch": {"price": "much"}, "pods": 3}
    found = outline({"snapshot": snapshot, "plan": {"nodeClaims": [odd, 7], "unschedulable": {}}})
    assert found == Outline("schedule", claims=(OutlinedClaim("5"), OutlinedClaim()))
    assert OutlinedClaim() == OutlinedClaim("", "", "", "", "", 0.0, 0)


@pytest.mark.parametrize("version", ["", "99.1"])
def test_a_record_that_cannot_be_decoded_says_by_whom_it_was_written(version: str) -> None:
    found = read(packed({"version": version, "snapshot": {"view": 3}, "plan": {"nodeClaims": 7}}), "here")
    assert (found.record, found.snapshot, found.version) == (None, None, version)
    assert (f"version {version}" if version else "a version that did not say which") in found.problem
    assert msgspec.msgpack.decode(found.written) == {"nodeClaims": 7}


@pytest.mark.parametrize(
    "document",
    [
        b"nothing",
        zlib.compress(b"\xc1"),
        packed({}),
        packed({"snapshot": {}}),
        packed({"plan": {}}),
        packed({"plan": {}, "snapshot": []}),
        packed([]),
    ],
)
def test_what_is_no_record_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidInput, match="here: not a recorded decision"):
        read(document, "here")


def test_another_decision_is_shown_on_the_same_snapshot() -> None:
    document = packed({"snapshot": SNAPSHOT, "plan": {"nodeClaims": []}})
    other = outline_with(document, msgspec.msgpack.encode({"nodeClaims": [CLAIM]}))
    assert (other.cluster, other.claims) == ("blue", (OUTLINED,))
    document = packed({"snapshot": {"scheduling": SNAPSHOT}, "decision": {"commands": []}})
    other = outline_with(document, msgspec.msgpack.encode({"commands": [{"nodes": ["n"]}]}))
    assert (other.kind, other.removed) == ("disrupt", ("n",))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blue/2023-11-14/221320-41-disrupt-abc", True),
        ("blue/2023-11-14/221320-41-abc", False),
        ("a-disrupt-b/2023-11-14/221320-41-abc", False),
    ],
)
def test_an_id_says_what_was_decided(name: str, expected: bool) -> None:
    assert is_disruption(name) is expected
