"""Recorded decisions: two that were recorded before are decided alike, and are recorded again as they were."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.formats.doors import recorded_again, shiplap, whole_records
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


def test_records_that_share_chunks_are_read_and_written_as_they_were(tmp_path: Path) -> None:
    """Two decisions of one process; the second names a list of the first that has changed a little."""
    folder = GIVEN / "bucket"
    bucket = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = whole_records(bucket)
    assert len(found) == 2
    again = recorded_again(*found, least_bytes=0)
    chunks, records = [[_below(prefix, items) for items in (bucket, again)] for prefix in ("chunks/", "records/")]
    assert {key: zlib.decompress(body) for key, body in chunks[0].items()} == {
        key: zlib.decompress(body) for key, body in chunks[1].items()
    }
    stored = [[plain(body) for _, body in sorted(items.items())] for items in records]
    same(stored[0], stored[1], "given/bucket/records")
    for number, document in enumerate(found):
        copy = tmp_path / str(number)
        copy.write_bytes(document)
        answer = json.loads(shiplap("explain", "decision", str(copy), "-o", "json").out)
        assert (answer["same"], answer["recordedBy"]) == (True, "0.1.0")


def _below(prefix: str, objects: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: body for key, body in objects.items() if key.startswith(prefix)}


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_is_decided_alike(kind: str) -> None:
    found = shiplap("explain", "decision", str(GIVEN / f"{kind}.record"), "-o", "json")
    assert (found.code, found.err) == (0, "")
    answer = json.loads(found.out)
    assert (answer["kind"], answer["same"]) == (kind, True)
