"""Tests the hazards of the DynamoDB adapters alone: lost answers, colliding transactions, partial batches, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.errors import ConditionFailed, EpochMoved, StoreError, StoreThrottled
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.ports import OfferingFailure, Refusals
from shiplap_lab.fakes.faults import Faults
from tests.builders.claims import changes, node_claim
from tests.integration.contracts.in_process_aws import HookedClient, aws_in_process, create_table, make_client
from tests.thoroughness import draws

NOW = 1_700_000_000.0


class LostAnswers:
    """A client every write of which is sent twice, as botocore does when the first answer is lost on the way."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)
        if operation != "put_item":
            return method

        def call(**request: Any) -> Any:
            method(**request)
            return method(**request)

        return call


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "state", tables.STATE)
        create_table(client, "capacity", tables.CAPACITY)
        yield client


def state_of(client: Any) -> DynamoState:
    return DynamoState(client, "state", sleep=lambda _: None)


def capacity_of(client: Any) -> DynamoCapacity:
    return DynamoCapacity(client, "capacity", sleep=lambda _: None)


def seen(node: str) -> Observation:
    return Observation("ami-1", "m5.large", "k1", {"memory": 1}, {"memory": 1}, NOW, "blue", node)


def test_a_move_whose_answer_was_lost_has_happened_once(dynamodb: Any) -> None:
    store = state_of(LostAnswers(dynamodb))
    store.commit("blue", 0, [node_claim(cluster="blue", name="a")])
    moved = store.advance(
        node_claim(cluster="blue", name="a"),
        ClaimState.LAUNCHING,
        **changes(node_claim(cluster="blue", name="a"), owner="us"),
    )
    assert store.claim("blue", "a") == moved
    assert moved.version == 1
    with pytest.raises(ConditionFailed):
        store.advance(
            node_claim(cluster="blue", name="a"),
            ClaimState.LAUNCHING,
            **changes(node_claim(cluster="blue", name="a"), owner="us"),
        )


def test_an_observation_whose_answer_was_lost_counts_once(dynamodb: Any) -> None:
    store = capacity_of(LostAnswers(dynamodb))
    assert store.observe(seen("a")).count == 1
    assert store.observe(seen("b")).version == 2
    assert capacity_of(dynamodb).all()[0].count == 2


def test_a_lease_whose_answer_was_lost_is_held(dynamodb: Any) -> None:
    assert capacity_of(LostAnswers(dynamodb)).acquire_pilot("ami-1", "m5.large", "k1", "us", NOW)
    assert not capacity_of(dynamodb).acquire_pilot("ami-1", "m5.large", "k1", "them", NOW)


def test_no_table_of_a_test_expires_by_the_time_of_this_machine(dynamodb: Any) -> None:
    for name in ("state", "capacity"):
        asked = dynamodb.describe_time_to_live(TableName=name)
        assert asked["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED"


def test_claims_are_spread_over_partitions_and_the_epoch_stands_apart(dynamodb: Any) -> None:
    store = state_of(dynamodb)
    store.commit("blue", 0, [node_claim(cluster="blue", name=f"claim-{number}") for number in range(60)])
    items = dynamodb.scan(TableName="state")["Items"]
    partitions = {item["cluster"]["S"] for item in items if item["item"]["S"].startswith("CLAIM#")}
    assert partitions == {f"blue#{shard}" for shard in range(8)}
    assert [item["cluster"]["S"] for item in items if item["item"]["S"] == "EPOCH"] == ["blue"]


def test_planning_does_not_read_claims_that_became_nodes(dynamodb: Any) -> None:
    store = state_of(dynamodb)
    store.commit("blue", 0, [node_claim(cluster="blue", name="node"), node_claim(cluster="blue", name="flight")])
    item = node_claim(cluster="blue", name="node")
    for to in (ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED):
        item = store.advance(item, to, **changes(item, instance_id="i-1"))
    read: list[str] = []

    class Watched:
        def __getattr__(self, operation: str) -> Any:
            def call(**request: Any) -> Any:
                answer = getattr(dynamodb, operation)(**request)
                assert request.get("RequestItems", {}).get("state", request)["ConsistentRead"] is True
                items = answer["Responses"]["state"] if "Responses" in answer else answer["Items"]
                read.extend(each["item"]["S"] for each in items)
                return answer

            return call

    assert [each.name for each in state_of(Watched()).read("blue", NOW).claims] == ["flight"]
    assert sorted(read) == ["CLAIM#flight", "CLAIM#flight", "EPOCH"]  # once in the index and once itself


def test_large_claims_are_committed_in_more_transactions(dynamodb: Any) -> None:
    calls: list[int] = []

    class Counted:
        def __getattr__(self, operation: str) -> Any:
            def call(**request: Any) -> Any:
                if operation == "transact_write_items":
                    calls.append(len(request["TransactItems"]))
                return getattr(dynamodb, operation)(**request)

            return call

    pods = tuple(
        PodReference("namespace", "x" * 250, f"{number:036}") for number in range(850)
    )  # just short of what is compressed
    names = [f"claim-{number:02}" for number in range(20)]
    assert (
        state_of(Counted()).commit("blue", 0, [node_claim(cluster="blue", name=name, pods=pods) for name in names])
        == len(calls)
        == 2
    )
    assert sum(calls) == 20 + 2
    assert [each.name for each in state_of(dynamodb).read("blue", NOW).claims] == names


def test_refusals_of_an_older_version_are_read(dynamodb: Any) -> None:
    item = {"cluster": {"S": "blue"}, "item": {"S": "REFUSED#uid"}, "claims": {"SS": ["b", "a"]}, "at": {"N": str(NOW)}}
    dynamodb.put_item(TableName="state", Item={**item, "expiresAt": {"N": str(int(NOW) + 100)}})
    (known,) = state_of(dynamodb).read("blue", NOW).refused.values()
    assert known == Refusals(("a", "b"), NOW)
    assert known.number == 2


def test_what_cannot_be_read_as_a_claim_is_a_store_error(dynamodb: Any) -> None:
    store = state_of(dynamodb)
    store.commit("blue", 0, [node_claim(cluster="blue", name="a")])
    (item,) = (each for each in dynamodb.scan(TableName="state")["Items"] if each["item"]["S"] == "CLAIM#a")
    dynamodb.put_item(TableName="state", Item={**item, "claim": {"S": '{"state": "Sailing"}'}})
    with pytest.raises(StoreError, match="CLAIM#a cannot be read"):
        store.read("blue", NOW)


def test_what_cannot_be_read_as_learned_capacity_is_a_store_error(dynamodb: Any) -> None:
    key = {"ami": {"S": "ami-1"}, "item": {"S": "m5.large#k1"}}
    dynamodb.put_item(TableName="capacity", Item={**key, "learned": {"S": "{}"}, "version": {"N": "1"}})
    with pytest.raises(StoreError, match=r"ami-1/m5\.large#k1 cannot be read"):
        capacity_of(dynamodb).all()


def test_a_table_that_does_not_exist_is_a_store_error(dynamodb: Any) -> None:
    with pytest.raises(StoreError, match="read table elsewhere"):
        DynamoState(dynamodb, "elsewhere").read("blue", NOW)
    with pytest.raises(StoreError, match="write table elsewhere"):
        DynamoState(dynamodb, "elsewhere").commit("blue", 0, [node_claim(cluster="blue", name="a")])
    with pytest.raises(StoreError, match="write table elsewhere"):
        DynamoCapacity(dynamodb, "elsewhere").release_pilot("ami-1", "m5.large", "k1", "us")


def canceled(*codes: str) -> dict[str, Any]:
    return {
        "service_error_code": "TransactionCanceledException",
        "service_message": "Transaction cancelled",
        "modeled_fields": {"CancellationReasons": [{"Code": code} for code in codes]} if codes else {},
    }


def requests_of(client: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    client.meta.events.register("provide-client-params.dynamodb.*", lambda params, **_: sent.append(dict(params)))
    return sent


def test_a_transaction_that_ran_into_another_is_tried_again_under_the_same_token() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    sent = requests_of(client)
    with Stubber(client) as stub:
        stub.add_client_error("transact_write_items", **canceled("TransactionConflict", "None"))
        stub.add_client_error("transact_write_items", **canceled("None", "ThrottlingError"))
        stub.add_response("transact_write_items", {}, {"ClientRequestToken": ANY, "TransactItems": ANY})
        assert state_of(client).commit("blue", 0, [node_claim(cluster="blue", name="a")]) == 1
    assert len({request["ClientRequestToken"] for request in sent}) == 1
    assert len(sent) == 3


def test_two_deciders_with_the_same_claims_use_different_tokens() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    sent = requests_of(client)
    with Stubber(client) as stub:
        for _ in range(2):
            stub.add_response("transact_write_items", {})
            state_of(client).commit("blue", 0, [node_claim(cluster="blue", name="a")])
    assert len({request["ClientRequestToken"] for request in sent}) == 2


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("ConditionalCheckFailed", "None"), EpochMoved),
        (("ConditionalCheckFailed", "ConditionalCheckFailed"), EpochMoved),
        (("None", "ConditionalCheckFailed"), ConditionFailed),
        (("None", "ValidationError"), StoreError),
        ((), StoreError),
    ],
)
def test_why_a_transaction_was_cancelled(codes: tuple[str, ...], expected: type[StoreError]) -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    with Stubber(client) as stub:
        stub.add_client_error("transact_write_items", **canceled(*codes))
        with pytest.raises(expected) as caught:
            state_of(client).commit("blue", 0, [node_claim(cluster="blue", name="a")])
    assert type(caught.value) is expected


def test_transactions_that_keep_colliding_end_in_an_error() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    with Stubber(client) as stub:
        for _ in range(8):
            stub.add_client_error("transact_write_items", **canceled("TransactionConflict", "None"))
        with pytest.raises(StoreThrottled, match="too many at once"):
            state_of(client).commit("blue", 0, [node_claim(cluster="blue", name="a")])
        stub.assert_no_pending_responses()


def test_what_of_a_batch_was_not_written_is_written_again() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    sent = requests_of(client)
    rest = {"state": [{"PutRequest": {"Item": {"cluster": {"S": "blue"}, "item": {"S": "POD#b"}}}}]}
    with Stubber(client) as stub:
        stub.add_response("batch_write_item", {"UnprocessedItems": rest})
        stub.add_response("batch_write_item", {})
        state_of(client).mark_missed("blue", ["a", "b"], NOW)
    assert [len(request["RequestItems"]["state"]) for request in sent] == [2, 1]


def test_a_batch_that_is_never_written_is_an_error() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
    rest = {"state": [{"PutRequest": {"Item": {"cluster": {"S": "blue"}, "item": {"S": "POD#b"}}}}]}
    with Stubber(client) as stub:
        for _ in range(8):
            stub.add_response("batch_write_item", {"UnprocessedItems": rest})
        with pytest.raises(StoreThrottled, match="1 missed pods"):
            state_of(client).mark_missed("blue", ["a", "b"], NOW)


class AlwaysBeaten:
    """A client whose conditional writes always come second."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.writes = 0

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    def put_item(self, **_: Any) -> Any:
        self.writes += 1
        raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")


def test_contention_is_bounded(dynamodb: Any) -> None:
    beaten = AlwaysBeaten(dynamodb)
    with pytest.raises(StoreThrottled, match="observed by too many"):
        capacity_of(beaten).observe(seen("a"))
    with pytest.raises(StoreThrottled, match="marked by too many"):
        state_of(beaten).mark_unavailable([OfferingFailure("m5.large", "a", "spot", "ICE")], NOW)
    assert beaten.writes == 16 + 8


@settings(derandomize=True, deadline=None, max_examples=draws(15))
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), max_size=6))
def test_however_observers_interleave_nothing_is_lost(interruptions: list[tuple[int, int]]) -> None:
    """At random writes, others slip in before or after; each of them may be interrupted in turn."""
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "capacity", tables.CAPACITY)
        faults = Faults()
        store = capacity_of(HookedClient(client, faults))
        for number, (nth, when) in enumerate(interruptions):
            name = f"rival-{number}"
            faults.on("before" if when else "after", "put_item", lambda n=name: store.observe(seen(n)), nth=nth)
        for number in range(3):
            store.observe(seen(f"node-{number}"))
        happened = {f"rival-{number}" for number in range(len(interruptions))} - _waiting(faults, interruptions)
        (learned,) = store.all()
        assert {each.node for each in learned.recent} == {"node-0", "node-1", "node-2"} | happened
        assert learned.count == learned.version == 3 + len(happened)


def _waiting(faults: Faults, interruptions: list[tuple[int, int]]) -> set[str]:
    """Rivals whose moment never came: fewer writes happened than they waited for."""
    passed = {when: sum(point == f"{when} put_item" for point in faults.points) for when in ("before", "after")}
    return {
        f"rival-{number}"
        for number, (nth, when) in enumerate(interruptions)
        if passed["before" if when else "after"] < nth
    }
