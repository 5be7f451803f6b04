"""Recorded decisions: two that were recorded before are decided alike, and are recorded again as they were."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.formats.doors import recorded_again, shiplap
from tests.formats.golden import same

GIVEN = Path(__file__).parent / "given"
KEYS = {
    "schedule": r"records/test/2027-01-15/080000-7-[0-9a-f]{12}",
    "disrupt": r"records/files/2026-01-31/120000-0-disrupt-[0-9a-f]{12}",
}


def plain(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.msgpack.decode(zlib.decompress(document))
    assert isinstance(found.pop("version"), str)
    return found


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_is_written_as_it_was_and_under_its_key(kind: str) -> None:
    document = (GIVEN / f"{kind}.record").read_bytes()
    ((key, again),) = recorded_again(document).items()
    assert re.fullmatch(KEYS[kind], key), key
    same(plain(document), plain(again), f"given/{kind}.record")


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_is_decided_alike(kind: str) -> None:
    found = shiplap("explain", "decision", str(GIVEN / f"{kind}.record"), "-o", "json")
    assert (found.code, found.err) == (0, "")
    answer = json.loads(found.out)
    assert (answer["kind"], answer["same"]) == (kind, True)
