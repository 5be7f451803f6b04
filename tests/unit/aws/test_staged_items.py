"""Tests reading through the index on stages: what a warm reader lists, reads again, and finds late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.aws.dynamodb import staged_items
from shiplap.aws.dynamodb.staged_items import FEW, OVERLAP_S, WHOLE_LOOK_S, Stage, StagedItems, stage_key
from shiplap.aws.dynamodb.tables import STAGE_INDEX

NOW = 1_700_000_000.0
PARTITIONS = ("p", "q")


class StagedTable:
    """A table of which a test says the items; it notes which are listed and which are read by their keys."""

    def __init__(self) -> None:
        self.now = NOW
        self.items: dict[tuple[str, str], dict[str, Any]] = {}
        self.listed: list[str] = []
        self.read: list[str] = []

    def put(
        self, name: str, version: int, stage: Stage = Stage.UNSETTLED, *, partition: str = "p", late_s: float = 0.0
    ) -> None:
        """Write an item; `late_s` ago by the clock of its writer."""
        self.items[partition, name] = {
            "cluster": {"S": partition},
            "item": {"S": name},
            "version": {"N": str(version)},
            STAGE_INDEX.sort_key: {"S": stage_key(stage, name, self.now - late_s)},
        }

    def query(self, **request: Any) -> dict[str, Any]:
        values, at = request["ExpressionAttributeValues"], STAGE_INDEX.sort_key
        assert request["ConsistentRead"]
        assert request["IndexName"] == STAGE_INDEX.name
        found = [
            item
            for item in self.items.values()
            if item["cluster"] == values[":0"]
            and at in item
            and values[":1"]["S"] <= item[at]["S"] <= values[":2"]["S"]
        ]
        self.listed += [item["item"]["S"] for item in found]
        return {"Items": found}

    def batch_get_item(self, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        keys = [(key["cluster"]["S"], key["item"]["S"]) for key in RequestItems["table"]["Keys"]]
        self.read += [name for _, name in keys]
        return {"Responses": {"table": [self.items[key] for key in keys if key in self.items]}}

    def reader(self) -> StagedItems[tuple[str, str]]:
        decode = lambda item: (item["item"]["S"], item["version"]["N"])  # noqa: E731
        client: Any = self
        return StagedItems(client, "table", decode, lambda _: None, lambda: self.now)

    def forget_requests(self) -> None:
        self.listed.clear()
        self.read.clear()


def all_of(items: StagedItems[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(items.read(PARTITIONS))


@pytest.fixture
def table() -> StagedTable:
    return StagedTable()


@pytest.fixture(autouse=True)
def _many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' partitions count as large ones."""
    if "few" not in request.node.name:
        monkeypatch.setattr(staged_items, "FEW", 0)


@pytest.mark.parametrize("late", [False, True])
def test_few_items_are_listed_whole_at_each_look(table: StagedTable, *, late: bool) -> None:
    for number in range(FEW if late else FEW - 1):
        table.put(f"c{number}", 1, Stage.SETTLED)
    table.now += 2 * OVERLAP_S
    items = table.reader()
    all_of(items)
    table.now += 1
    _deleted(table, "c0")
    assert (("c0", "1") in all_of(items)) is late


def test_only_items_of_another_version_are_read_again(table: StagedTable) -> None:
    items = table.reader()
    for name in ("a", "b"):
        table.put(name, 1)
    table.put("z", 1, partition="q")
    assert all_of(items) == [("a", "1"), ("b", "1"), ("z", "1")]
    table.forget_requests()
    table.put("b", 2)
    table.put("c", 1)
    assert all_of(items) == [("a", "1"), ("b", "2"), ("c", "1"), ("z", "1")]
    assert table.read == ["b", "c"]
    table.forget_requests()
    items.read(["p"])
    assert table.read == []


def test_settled_items_are_not_listed_again_until_they_are_written(table: StagedTable) -> None:
    for number in range(50):
        table.put(f"old-{number}", 1, Stage.SETTLED)
    table.now += OVERLAP_S + 1
    items = table.reader()
    assert len(all_of(items)) == 50
    table.now += 60
    table.put("old-7", 2, Stage.SETTLED)
    table.forget_requests()
    assert ("old-7", "2") in all_of(items)
    assert (table.listed, table.read) == (["old-7"], ["old-7"])
    table.forget_requests()
    table.now += 60
    assert len(all_of(items)) == 50
    assert (table.listed, table.read) == (["old-7"], []), "within the overlap it is listed, but not read"


@pytest.mark.parametrize("before", [Stage.SETTLED, Stage.UNSETTLED, Stage.ENDED])
@pytest.mark.parametrize("after", [*Stage, None])
def test_each_change_of_the_stage_is_seen_at_once(table: StagedTable, before: Stage, after: Stage | None) -> None:
    table.put("a", 1, before)
    table.now += OVERLAP_S + 1
    items = table.reader()
    assert all_of(items) == [("a", "1")]
    table.now += 1
    if after is not None:
        table.put("a", 2, after)
    else:
        del table.items["p", "a"][STAGE_INDEX.sort_key]
    found = [] if after in (None, Stage.DONE) else [("a", "2")]
    if not (before is Stage.SETTLED and after is None):  # only one that has ended leaves the index, once it is posted
        assert all_of(items) == found
    table.now += WHOLE_LOOK_S
    assert all_of(items) == found


def test_what_is_gone_is_forgotten_so_that_a_new_item_of_its_name_is_read(table: StagedTable) -> None:
    items = table.reader()
    table.put("a", 1)
    all_of(items)
    del table.items["p", "a"]
    assert all_of(items) == []
    table.put("a", 1)
    table.forget_requests()
    assert all_of(items) == [("a", "1")]
    assert table.read == ["a"]


def test_a_look_at_some_stages_forgets_nothing_of_the_others(table: StagedTable) -> None:
    items = table.reader()
    table.put("a", 1)
    table.put("b", 1, Stage.SETTLED)
    assert len(all_of(items)) == 2
    table.forget_requests()
    assert items.read(["p"], Stage.UNSETTLED) == [("a", "1")]
    assert len(all_of(items)) == 2
    assert table.read == []


def test_an_item_that_left_its_stage_meanwhile_is_left_out(table: StagedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    items, reads = table.reader(), table.batch_get_item
    table.put("a", 1)
    table.put("b", 1)

    def changed(**request: Any) -> Any:
        table.put("a", 2, Stage.SETTLED)
        del table.items["p", "b"][STAGE_INDEX.sort_key]
        return reads(**request)

    monkeypatch.setattr(table, "batch_get_item", changed)
    assert items.read(["p"], Stage.UNSETTLED) == []
    assert all_of(items) == [("a", "2")]


def _written_late(table: StagedTable) -> None:
    table.put("a", 2, Stage.SETTLED, late_s=OVERLAP_S + 120)


def _written_by_an_older_release(table: StagedTable) -> None:
    table.put("a", 2, Stage.SETTLED)
    table.items["p", "a"][STAGE_INDEX.sort_key] = {"S": "Settled#a"}


def _failed_in_an_older_release(table: StagedTable) -> None:
    table.put("a", 2, Stage.SETTLED)
    table.items["p", "a"][STAGE_INDEX.sort_key] = {"S": "Failed#a"}


def _ended_by_an_older_release(table: StagedTable) -> None:
    del table.items["p", "a"][STAGE_INDEX.sort_key]


def _deleted(table: StagedTable, name: str = "a") -> None:
    del table.items["p", name]


@pytest.mark.parametrize(
    "lost",
    [
        _written_late,
        _written_by_an_older_release,
        _failed_in_an_older_release,
        _ended_by_an_older_release,
        _deleted,
    ],
)
def test_a_look_at_the_whole_finds_what_was_lost(table: StagedTable, lost: Any) -> None:
    table.put("a", 1, Stage.SETTLED)
    table.now += 2 * OVERLAP_S
    items = table.reader()
    assert all_of(items) == [("a", "1")]
    table.now += 60
    lost(table)
    assert all_of(items) == [("a", "1")], "lost"
    table.now += WHOLE_LOOK_S - 61
    assert all_of(items) == [("a", "1")]
    table.now += 1
    assert all_of(items) == all_of(table.reader())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "post", "wait", "read", "part"]),
        st.integers(0, 5),
        st.sampled_from(list(Stage)),
        st.floats(0, OVERLAP_S / 2),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_warm_reader_finds_what_a_cold_one_finds(steps: list[tuple[str, int, Stage, float]]) -> None:
    table = StagedTable()
    items, versions = table.reader(), [0] * 6
    for what, number, stage, seconds in steps:
        name, partition = f"c{number}", PARTITIONS[number % 2]
        held = table.items.get((partition, name), {}).get(STAGE_INDEX.sort_key, {"S": ""})["S"]
        if what == "put" and not held.startswith((Stage.DONE, Stage.ENDED)):
            versions[number] += 1
            table.put(name, versions[number], stage, partition=partition, late_s=seconds)
        elif what == "post" and held.startswith(Stage.ENDED):
            del table.items[partition, name][STAGE_INDEX.sort_key]
        elif what == "wait":
            table.now += 3 * seconds
        elif what == "read":
            assert all_of(items) == all_of(table.reader())
        elif what == "part":
            found = sorted(items.read(PARTITIONS, Stage.UNSETTLED))
            assert found == sorted(table.reader().read(PARTITIONS, Stage.UNSETTLED))
    assert all_of(items) == all_of(table.reader())


def test_two_looks_at_once_lose_nothing_of_each_other(table: StagedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    items, reads = table.reader(), table.batch_get_item
    for name in "ab":
        table.put(name, 1, Stage.SETTLED)
    inner: list[list[tuple[str, str]]] = []

    def meanwhile(**request: Any) -> Any:
        monkeypatch.setattr(table, "batch_get_item", reads)
        inner.append(all_of(items))
        return reads(**request)

    monkeypatch.setattr(table, "batch_get_item", meanwhile)
    assert all_of(items) == inner[0] == [("a", "1"), ("b", "1")]
    assert all_of(items) == [("a", "1"), ("b", "1")]
