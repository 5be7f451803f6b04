"""Writers in conflict: bounded retries with full jitter, and how much one request writes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from shiplap.aws.bus import EventBridgeBus
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.items import get_all, text
from shiplap.aws.dynamodb.join_log import DynamoJoins
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.ec2.request_pace import RequestPace
from shiplap.aws.failures import attempts
from shiplap.errors import AwsThrottled, StoreError
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.ports import ADDRESSES_S, BusEvent, OfferingFailure
from tests.builders.claims import node_claim


def test_pauses_come_between_attempts_and_stay_within_their_growing_bounds() -> None:
    pauses: list[float] = []
    random.seed(7)
    assert list(attempts(6, first_s=0.1, longest_s=0.5, sleep=pauses.append)) == [0, 1, 2, 3, 4, 5]
    assert len(pauses) == 5
    assert all(0 <= pause <= bound for pause, bound in zip(pauses, [0.2, 0.4, 0.5, 0.5, 0.5], strict=True))
    assert len(set(pauses)) == 5


def test_the_first_attempt_does_not_wait() -> None:
    pauses: list[float] = []
    assert next(iter(attempts(3, sleep=pauses.append))) == 0
    assert pauses == []


CONFLICT = ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")
CANCELLED = ClientError(
    {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": [{"Code": "TransactionConflict"}]},
    "TransactWriteItems",
)


class Contested:
    """A table on which another writer is always faster, and of which nothing is read in time."""

    def __init__(self) -> None:
        self.tries = 0

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def put_item(self, **_: Any) -> None:
        self.tries += 1
        raise CONFLICT

    def transact_write_items(self, **_: Any) -> None:
        self.tries += 1
        raise CANCELLED

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 - DynamoDB's name
        self.tries += 1
        return {"Responses": {}, "UnprocessedKeys": RequestItems}

    def put_events(self, *, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803 - EventBridge's name
        self.tries += 1
        return {"Entries": [{"ErrorCode": "InternalFailure"} for _ in Entries]}


FAILURE = OfferingFailure("m5.large", "a", "spot", "InsufficientInstanceCapacity", "capacity")


@pytest.mark.parametrize(
    "write",
    [
        lambda client, sleep: DynamoCapacity(client, "t", sleep=sleep).merge(LearnedCapacity("ami", "m5.large", "k")),
        lambda client, sleep: DynamoJoins(client, "t", sleep=sleep).failed("demo", "ami", "m5.large", 1.0, 2.0),
        lambda client, sleep: DynamoState(client, "t", sleep=sleep).commit(
            "demo", 1, [node_claim(cluster="demo", name="c")]
        ),
        lambda client, sleep: DynamoState(client, "t", sleep=sleep).take_reserved("cr-1", "token", 1, 5, 2.0),
        lambda client, sleep: DynamoState(client, "t", sleep=sleep).mark_unavailable([FAILURE], 2.0),
        lambda client, sleep: get_all(client, "t", [{"item": text("a")}], sleep),
        lambda client, sleep: EventBridgeBus(client, "bus", sleep=sleep).publish([BusEvent("Kind", {})]),
    ],
    ids=["learned capacity", "joins", "commit", "reservation", "offering", "many items", "events"],
)
def test_a_writer_that_always_loses_gives_up_within_seconds_and_pauses_as_it_is_told(
    write: Callable[[Any, Callable[[float], None]], object],
) -> None:
    client, pauses = Contested(), list[float]()
    with pytest.raises(StoreError):
        write(client, pauses.append)
    assert 4 < client.tries == len(pauses) + 1
    assert sum(pauses) < 8.0
    assert client.tries < 20, "an invocation that waits for one item serves nobody"


def test_a_request_whose_token_others_always_take_is_put_off_soon() -> None:
    client: Any = Contested()
    pace = RequestPace(client, "t", "eu-west-1", clock=lambda: 2.0)
    with pytest.raises(AwsThrottled):
        pace.wait("create_fleet")
    assert 4 < client.tries < 20


class Alone:
    """A table that one writer has for itself; it keeps one item."""

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = None
        self.together: list[int] = []

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {} if self.item is None else {"Item": self.item}

    def put_item(self, *, Item: dict[str, Any], **_: Any) -> None:  # noqa: N803 - DynamoDB's name
        self.item = Item

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 - DynamoDB's name
        return {"Responses": {}}

    def transact_write_items(self, *, TransactItems: list[Any], **_: Any) -> None:  # noqa: N803 - DynamoDB's name
        self.together.append(len(TransactItems))


def test_a_transaction_notes_a_hundred_offerings() -> None:
    client: Any = Alone()
    failures = [replace(FAILURE, instance_type=f"m{number}.large") for number in range(205)]
    marked = DynamoState(client, "t").mark_unavailable(failures, 2.0)
    assert client.together == [100, 100, 5]
    assert sorted(item.instance_type for item in marked) == sorted(item.instance_type for item in failures)


def test_what_launches_of_long_ago_took_of_a_reservation_is_forgotten() -> None:
    """The item of a reservation that is in use for years stays small."""
    client: Any = Alone()
    state = DynamoState(client, "t")
    assert [state.take_reserved("cr-1", token, 1, 2, 1000.0) for token in ("a", "b", "c")] == [1, 1, 0]
    assert state.take_reserved("cr-1", "d", 2, 2, 1000.0 + ADDRESSES_S) == 2
    assert list(json.loads(client.item["taken"]["S"])) == ["d"]
