"""DynamoDB itself deletes items that are remembered for a while: each such item holds its expiry time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.join_log import DynamoJoins
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.errors import StoreThrottled
from shiplap.instances.offerings.unavailability import FIRST_WAIT_S
from shiplap.ports import FUTILE_FOR_S, OfferingFailure, Refusals
from shiplap.ports.state import ADDRESSES_S, MISSED_FOR_S, PROVEN_FOR_S, REFUSED_FOR_S

NOW = 1_700_000_000.0


class Table:
    """Takes items; the first so many of a batch are left unprocessed at the first try."""

    def __init__(self, unprocessed: int = 0) -> None:
        self.items: list[dict[str, Any]] = []
        self.batches: list[int] = []
        self.puts: list[dict[str, Any]] = []
        self.unprocessed = unprocessed

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def update_item(self, **request: Any) -> None:
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        assert "#until = :until" in request["UpdateExpression"]
        self.items.append({names["#until"]: values[":until"]})

    def put_item(self, **request: Any) -> dict[str, Any]:
        self.puts.append(request)
        self.items.append(request["Item"])
        return {}

    def batch_write_item(self, *, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's name
        ((name, asked),) = RequestItems.items()
        self.batches.append(len(asked))
        kept = asked[self.unprocessed :]
        left, self.unprocessed = asked[: self.unprocessed], max(0, self.unprocessed - 1)
        self.items += [each["PutRequest"]["Item"] for each in kept]
        return {"UnprocessedItems": {name: left}} if left else {}


def state(table: Any) -> DynamoState:
    return DynamoState(table, "state", sleep=lambda _: None)


def test_what_launches_take_of_subnets_is_forgotten() -> None:
    table = Table()
    state(table).reserve_addresses("t", {"subnet-b": 2, "subnet-a": 1}, NOW)
    (item,) = table.items
    assert item["addresses"] == {"S": '{"subnet-a":1,"subnet-b":2}'}
    assert float(item["until"]["N"]) == NOW + ADDRESSES_S
    assert float(item[EXPIRY]["N"]) >= NOW + ADDRESSES_S


def test_pods_that_missed_are_written_in_batches_and_forgotten() -> None:
    table = Table()
    uids = [f"u{number:02}" for number in range(26)]
    state(table).mark_missed("demo", [*uids, "u00"], NOW)
    assert table.batches == [25, 1]
    assert [item["item"]["S"] for item in table.items] == [f"POD#{uid}" for uid in uids]
    assert {float(item[EXPIRY]["N"]) >= NOW + MISSED_FOR_S for item in table.items} == {True}


def test_what_a_batch_leaves_is_written_again_and_a_table_that_goes_on_refusing_is_throttled() -> None:
    table = Table(unprocessed=2)
    state(table).mark_missed("demo", ["a", "b", "c"], NOW)
    assert table.batches == [3, 2, 1]
    assert sorted(item["item"]["S"] for item in table.items) == ["POD#a", "POD#b", "POD#c"]
    busy = Table(unprocessed=100)
    with pytest.raises(StoreThrottled, match="3 missed pods"):
        state(busy).mark_missed("demo", ["a", "b", "c"], NOW)
    assert len(busy.batches) == 8


def test_what_is_known_of_pods_and_nodes_in_vain_is_forgotten_in_its_time() -> None:
    table = Table()
    noted = Refusals(("b", "a"), NOW, 3, NOW - 5, "kind")
    store = state(table)
    store.mark_refused("demo", "u", noted)
    store.mark_futile("demo", {"y": NOW - 1, "x": NOW})
    store.mark_proven("demo", ["k2", "k1"], NOW)
    refused, futile_x, futile_y, *proven = table.items
    assert refused["claims"] == {"SS": ["a", "b"]}
    assert (float(refused["at"]["N"]), refused["tries"], refused["like"]) == (NOW, {"N": "3"}, {"S": "kind"})
    assert float(refused["launched_at"]["N"]) == NOW - 5
    assert float(refused[EXPIRY]["N"]) >= NOW + REFUSED_FOR_S
    assert [item["item"]["S"] for item in (futile_x, futile_y)] == ["FUTILE#x", "FUTILE#y"]
    assert float(futile_y["created_at"]["N"]) == NOW - 1
    assert float(futile_x[EXPIRY]["N"]) >= NOW + FUTILE_FOR_S
    assert [item["item"]["S"] for item in proven] == ["PROVEN#k1", "PROVEN#k2"]
    assert {float(item["at"]["N"]) for item in proven} == {NOW}
    assert min(float(item[EXPIRY]["N"]) for item in proven) >= NOW + PROVEN_FOR_S
    assert {request["TableName"] for request in table.puts} == {"state"}


HOUR_S, DAY_S = 3600, 24 * 3600


@pytest.mark.parametrize(
    ("write", "lasts_s"),
    [
        (lambda table: state(table).take_reserved("cr-1", "t", 2, 5, NOW), ADDRESSES_S),
        (
            lambda table: state(table).mark_unavailable([OfferingFailure("m5.large", "a", "spot", "ICE")], NOW),
            FIRST_WAIT_S + FIRST_WAIT_S,
        ),
        (lambda table: DynamoCapacity(table, "capacity").acquire_pilot("ami", "m5.large", "k", "us", NOW), HOUR_S / 4),
        (lambda table: DynamoJoins(table, "state").failed("demo", "ami", "m5.large", NOW - 60, NOW), 30 * DAY_S),
        (lambda table: DynamoJoins(table, "state").initialized("demo", "pool", [60.0], NOW), 30 * DAY_S),
    ],
    ids=["reservation", "offering", "pilot", "failed joins", "joins"],
)
def test_what_is_written_for_a_while_outlives_it_by_a_second(write: Callable[[Any], object], lasts_s: float) -> None:
    table = Table()
    write(table)
    assert [float(item[EXPIRY]["N"]) for item in table.items] == [NOW + lasts_s + 1]
