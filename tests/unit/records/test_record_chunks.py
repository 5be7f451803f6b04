"""Parts of records that are stored once a day: what a record names, and that it is whole again."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.records import disruption_record as disruptions
from shiplap.records import scheduling_record as records
from shiplap.records.record_chunks import ChunkedSnapshot, ChunkMemory, chunked, whole
from shiplap.records.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.recorded import large_snapshot, seen_pods, sold_types

NOW = 1_700_000_000.5
DAY = "2023-11-14"
TYPES = sold_types()
PODS = seen_pods(f"web-{number:03}" for number in range(400))


class Recorded:
    """Records of one process: what was stored, by name."""

    def __init__(self, least_bytes: int = 65_536) -> None:
        self.memory = ChunkMemory()
        self.chunks: dict[str, bytes] = {}
        self._least_bytes = least_bytes

    def add(self, snapshot: Snapshot, day: str = DAY) -> tuple[bytes, tuple[str, ...]]:
        """The document as it is stored, and the names of the chunks that were made for it."""
        recorded = records.recorded_snapshot(snapshot)
        made: ChunkedSnapshot = chunked(recorded, day, self.memory, least_bytes=self._least_bytes)
        self.chunks |= {chunk.name: chunk.document for chunk in made.chunks}
        self.memory = made.memory
        document = records.packed({"snapshot": made.recorded, "plan": Plan()})
        return document, tuple(chunk.name for chunk in made.chunks)

    def whole(self, document: bytes) -> Any:
        return plain(whole(document, self.chunks.__getitem__))


def plain(document: bytes) -> Any:
    return msgspec.msgpack.decode(zlib.decompress(document))


def written(snapshot: Snapshot) -> Any:
    """The content of the record as one document."""
    return plain(records.encode(SchedulingRecord(snapshot, Plan())))


def test_a_record_names_its_types_and_is_whole_again() -> None:
    process, snapshot = Recorded(), large_snapshot(now=NOW, types=TYPES, pods=PODS)
    document, made = process.add(snapshot)
    assert len(made) == 3, "types, offerings and pods"
    assert all(name.startswith(f"{DAY}/") for name in made)
    assert len(document) < 600
    assert process.whole(document) == written(snapshot)


def test_the_next_record_of_a_day_names_the_same_chunks() -> None:
    process = Recorded()
    _, first = process.add(large_snapshot(now=NOW, types=TYPES))
    later = large_snapshot(now=NOW + 60, types=TYPES)
    document, second = process.add(later)
    assert (len(first), second) == (2, ())
    assert process.whole(document) == written(later)


def test_equal_types_of_another_process_have_the_same_names() -> None:
    _, mine = Recorded().add(large_snapshot(now=NOW, types=TYPES))
    _, others = Recorded().add(large_snapshot(now=NOW + 7, cluster="green", types=sold_types()))
    assert mine == others


def test_new_prices_are_one_new_chunk() -> None:
    process = Recorded()
    _, first = process.add(large_snapshot(now=NOW, types=TYPES))
    dearer = large_snapshot(now=NOW, types=sold_types(price=0.2))
    document, second = process.add(dearer)
    assert len(set(second) - set(first)) == 1
    assert process.whole(document) == written(dearer)


def test_records_of_another_day_name_chunks_of_that_day() -> None:
    """So a chunk never expires before the records that name it."""
    process = Recorded()
    _, first = process.add(large_snapshot(now=NOW, types=TYPES, pods=PODS))
    snapshot = large_snapshot(now=NOW + 86_400, types=TYPES, pods=PODS)
    document, second = process.add(snapshot, day="2023-11-15")
    assert second == tuple(name.replace(DAY, "2023-11-15") for name in first)
    assert process.whole(document) == written(snapshot)


def test_small_parts_stay_in_their_record() -> None:
    snapshot = large_snapshot(now=NOW, types=TYPES[:20], pods=PODS[:80])
    assert Recorded().add(snapshot) == (records.encode(SchedulingRecord(snapshot, Plan())), ())


def test_a_list_that_changed_a_little_holds_what_is_new() -> None:
    process = Recorded()
    process.add(large_snapshot(now=NOW, pods=PODS))
    changed = (*PODS[:100], *seen_pods(["new"]), *PODS[101:])
    snapshot = large_snapshot(now=NOW, pods=changed)
    document, made = process.add(snapshot)
    assert made == ()
    stretches = plain(document)["snapshot"]["view"]["pods"]["stretches"]
    assert [item if isinstance(item, list) else item["metadata"]["name"] for item in stretches] == [
        [0, 100],
        "new",
        [101, 400],
    ]
    assert process.whole(document) == written(snapshot)


def test_a_list_that_changed_much_gets_a_chunk_of_its_own() -> None:
    process = Recorded()
    process.add(large_snapshot(now=NOW, pods=PODS))
    others = (*PODS[:200], *seen_pods(f"new-{number}" for number in range(200)))
    document, made = process.add(large_snapshot(now=NOW, pods=others))
    assert len(made) == 1
    assert plain(document)["snapshot"]["view"]["pods"] == {"chunk": made[0]}


@given(st.lists(st.lists(st.integers(0, 90), min_size=64, max_size=120), min_size=1, max_size=4))
def test_whatever_a_list_becomes_it_is_whole_again(lists: list[list[int]]) -> None:
    """Items come, go, move and repeat."""
    process = Recorded(least_bytes=0)
    for numbers in lists:
        snapshot = large_snapshot(now=NOW, types=TYPES[:2], pods=seen_pods(map(str, numbers)))
        document, _ = process.add(snapshot)
        assert process.whole(document) == written(snapshot)


def test_a_version_that_knows_no_chunks_cannot_read_the_record() -> None:
    """It must not take the record for one without instance types."""
    document, _ = Recorded().add(large_snapshot(now=NOW, types=TYPES))
    with pytest.raises(msgspec.DecodeError):
        records.unpacked(zlib.decompress(document))


def test_a_record_read_without_its_chunks_has_its_outline_and_says_so() -> None:
    document, _ = Recorded().add(large_snapshot(now=NOW, types=TYPES))
    found = disruptions.read(document, "copy")
    assert (found.record, found.chunked, found.outline.cluster) == (None, True, "blue")
    assert "stored beside it" in found.problem


def test_what_is_no_record_is_left_alone() -> None:
    odd = {"snapshot": {"catalogs": 7, "view": [], "scheduling": 3}, "plan": {}}
    for document in (b"rubbish", zlib.compress(b"\xc1"), *(records.packed(item) for item in ({}, odd))):
        assert whole(document, {}.__getitem__) == document
    assert whole(zlib.compress(msgspec.msgpack.encode([1])), {}.__getitem__)


@pytest.mark.parametrize("content", [b"rubbish", zlib.compress(b"\x90")], ids=["not compressed", "other content"])
def test_a_damaged_chunk_is_named(content: bytes) -> None:
    process = Recorded()
    document, made = process.add(large_snapshot(now=NOW, types=TYPES))
    process.chunks[made[1]] = content
    with pytest.raises(StoreError, match=f"chunk {made[1]} of a record is damaged"):
        process.whole(document)


def test_only_the_memory_of_what_is_stored_is_kept() -> None:
    """A decision whose chunks could not be stored leaves the memory as it was."""
    before = ChunkMemory()
    made = chunked(records.recorded_snapshot(large_snapshot(now=NOW, types=TYPES)), DAY, before)
    again = chunked(records.recorded_snapshot(large_snapshot(now=NOW, types=TYPES)), DAY, before)
    assert [chunk.name for chunk in again.chunks] == [chunk.name for chunk in made.chunks]
    assert replace(before, day=DAY).catalogs == ()
