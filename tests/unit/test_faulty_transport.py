"""The faults below botocore: what each looks like to a client, and that chance follows from the seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.dynamodb_local.faulty_transport import KINDS, FaultyTransport, answer_of

SESSION = botocore.session.Session()
"""It keeps the model of DynamoDB's API, which takes long to read."""

TABLE = "state"
PUTS: list[Any] = [{"Put": {"TableName": TABLE, "Item": {"cluster": {"S": name}}}} for name in "abc"]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "conflict": ("transact_write_items", {"TransactItems": PUTS}),
    "throttled action": ("transact_write_items", {"TransactItems": PUTS}),
    "throttled": ("get_item", {"TableName": TABLE, "Key": {"cluster": {"S": "a"}}}),
    "unprocessed keys": ("batch_get_item", {"RequestItems": {TABLE: {"Keys": [{"cluster": {"S": n}} for n in "abc"]}}}),
    "unprocessed items": (
        "batch_write_item",
        {"RequestItems": {TABLE: [{"PutRequest": {"Item": {"cluster": {"S": name}}}} for name in "abc"]}},
    ),
    "short page": ("query", {"TableName": TABLE, "KeyConditionExpression": "a = :a"}),
    "not sent": ("put_item", {"TableName": TABLE, "Item": {"cluster": {"S": "a"}}}),
    "answer lost": ("put_item", {"TableName": TABLE, "Item": {"cluster": {"S": "a"}}}),
}


class Server:
    """Answers every request alike, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        self.asked.append(json.loads(request.body))
        page = {"LastEvaluatedKey": {"cluster": {"S": "a"}}} if "Limit" in self.asked[-1] else {}
        return answer_of(request, 200, page)


def client_of(server: Server, seed: int, **settings: Any) -> tuple[Any, FaultyTransport]:
    client = SESSION.create_client(
        "dynamodb",
        region_name="eu-west-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(retries={"total_max_attempts": 1}),
    )
    transport = FaultyTransport(server, seed, **settings)
    transport.attach(client)
    return client, transport


def first_effect(kind: str, seen: Callable[[Any], object] = lambda items: None) -> tuple[Server, Any]:
    """Return the server with its requests and the caller's result at the first fault of this kind."""
    operation, request = CALLS[kind]
    for seed in range(200):
        server = Server()
        client, transport = client_of(server, seed, share=1.0, written=seen)
        try:
            got: Any = getattr(client, operation)(**request)
        except (ClientError, ConnectionClosedError) as error:
            got = error
        if transport.effects[kind]:
            return server, got
    raise AssertionError(f"{kind} never took effect")


@pytest.mark.parametrize(
    ("kind", "code"), [("conflict", "TransactionConflict"), ("throttled action", "ThrottlingError")]
)
def test_a_cancelled_transaction_names_one_action(kind: str, code: str) -> None:
    server, error = first_effect(kind)
    assert server.asked == []
    assert error.response["Error"]["Code"] == "TransactionCanceledException"
    assert sorted(reason["Code"] for reason in error.response["CancellationReasons"]) == ["None", "None", code]


def test_a_throttled_call_is_not_carried_out() -> None:
    server, error = first_effect("throttled")
    assert server.asked == []
    assert error.response["Error"]["Code"] in ("ProvisionedThroughputExceededException", "ThrottlingException")


def test_the_rest_of_a_batch_of_keys_comes_back() -> None:
    server, answer = first_effect("unprocessed keys")
    asked = server.asked[0]["RequestItems"][TABLE]["Keys"]
    rest = answer["UnprocessedKeys"][TABLE]["Keys"]
    assert asked
    assert rest
    assert asked + rest == CALLS["unprocessed keys"][1]["RequestItems"][TABLE]["Keys"]


def test_the_rest_of_a_batch_of_items_comes_back() -> None:
    server, answer = first_effect("unprocessed items")
    asked, rest = server.asked[0]["RequestItems"][TABLE], answer["UnprocessedItems"][TABLE]
    assert asked
    assert rest
    assert asked + rest == CALLS["unprocessed items"][1]["RequestItems"][TABLE]


def test_a_page_is_cut_short() -> None:
    server, answer = first_effect("short page")
    assert 1 <= server.asked[0]["Limit"] <= 3
    assert answer["LastEvaluatedKey"] == {"cluster": {"S": "a"}}


@pytest.mark.parametrize(("kind", "carried_out"), [("not sent", 0), ("answer lost", 1)])
def test_a_connection_breaks_before_the_write_or_after(kind: str, carried_out: int) -> None:
    durable: list[Any] = []
    server, error = first_effect(kind, durable.append)
    assert isinstance(error, ConnectionClosedError)
    assert len(server.asked) == carried_out
    assert len(durable) == carried_out


def test_a_transaction_that_is_repeated_with_its_token_is_written_once() -> None:
    """DynamoDB answers the second request as the first, and writes nothing."""
    told: list[Any] = []
    client, _ = client_of(Server(), 0, share=0.0, written=told.append)
    for token in ("first", "first", "second"):
        client.transact_write_items(TransactItems=PUTS[:1], ClientRequestToken=token)
    assert told == [[PUTS[0]["Put"]["Item"]]] * 2


def test_the_same_seed_does_the_same() -> None:
    def effects(seed: int) -> list[str]:
        found = []
        client, transport = client_of(Server(), seed, share=0.3)
        for operation, request in list(CALLS.values()) * 10:
            try:
                getattr(client, operation)(**request)
            except (ClientError, ConnectionClosedError) as error:
                found.append(type(error).__name__)
            found.append(str(sorted(transport.effects.items())))
        return found

    assert effects(1) == effects(1)
    assert effects(1) != effects(2)
    assert set(KINDS) == set(CALLS)


def test_without_a_share_nothing_is_disturbed() -> None:
    client, transport = client_of(Server(), 0, share=1.0)
    with transport.undisturbed():
        for operation, request in CALLS.values():
            getattr(client, operation)(**request)
    assert not transport.effects


def test_half_of_the_rare_batches_meet_a_fault_unless_nothing_does() -> None:
    operation, request = CALLS["unprocessed items"]
    for share, met in ((0.001, True), (0.0, False)):
        effects = 0
        for seed in range(40):
            client, transport = client_of(Server(), seed, share=share)
            with suppress(ClientError, ConnectionClosedError):
                getattr(client, operation)(**request)
            effects += sum(transport.effects.values())
        assert (effects >= 10) == met
