"""Reading claims costs what has changed: what is known by the version that the index tells is not read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import SHARDS, DynamoState
from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import StoreThrottled
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.claims import changes, node_claim
from tests.integration.contracts.in_process_aws import aws_in_process, create_table, make_client

NOW = 1_700_000_000.0


class Counting:
    """A client that counts the items it is given, by operation; `first` is called once before a batch is read."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.items: Counter[str] = Counter()
        self.first: Any = None

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)

        def call(**request: Any) -> Any:
            if operation == "batch_get_item" and self.first is not None:
                first, self.first = self.first, None
                first()
            answer = method(**request)
            self.items[operation] += len(answer.get("Items", ())) + sum(map(len, answer.get("Responses", {}).values()))
            return answer

        return call


@pytest.fixture
def client() -> Iterator[Counting]:
    with aws_in_process():
        made = make_client("dynamodb")
        create_table(made, "state", tables.STATE)
        yield Counting(made)


def state_of(client: Any) -> DynamoState:
    return DynamoState(client, "state", sleep=lambda _: None)


def committed(client: Any, number: int) -> list[NodeClaim]:
    claims = [node_claim(cluster="blue", name=f"c{place:03d}") for place in range(number)]
    state_of(client).commit("blue", 0, claims)
    return claims


def test_what_has_not_changed_is_read_once(client: Counting) -> None:
    committed(client, 150)
    state = state_of(client)
    first = state.claims("blue")
    assert (len(first), client.items["batch_get_item"]) == (150, 150)
    assert state.claims("blue") == first
    assert state.read("blue", NOW).claims == first
    assert client.items["batch_get_item"] == 150


def test_what_others_have_changed_is_read_again(client: Counting) -> None:
    committed(client, 20)
    state, others = state_of(client), state_of(client)
    state.claims("blue")
    client.items.clear()
    others.advance(
        node_claim(cluster="blue", name="c003"),
        ClaimState.LAUNCHING,
        **changes(node_claim(cluster="blue", name="c003"), owner="them"),
    )
    others.commit("blue", 1, [node_claim(cluster="blue", name="new")])
    found = {item.name: item for item in state.claims("blue")}
    assert (found["c003"].launch.owner, found["c003"].version, len(found)) == ("them", 1, 21)
    assert client.items["batch_get_item"] == 2


def test_what_has_gone_is_forgotten_and_its_name_may_come_again(client: Counting) -> None:
    committed(client, 1)
    state = state_of(client)
    state.claims("blue")
    key = {"cluster": {"S": next(_partitions(client))}, "item": {"S": "CLAIM#c000"}}
    client.delete_item(TableName="state", Key=key)
    assert state.claims("blue") == ()
    again = node_claim(cluster="blue", name="c000", node_pool="another", node_class="default")
    state_of(client).commit("blue", 1, [again])
    assert state.claims("blue") == (again,)


def _partitions(client: Counting) -> Iterator[str]:
    for item in client.scan(TableName="state")["Items"]:
        if item["item"]["S"].startswith("CLAIM#"):
            yield item["cluster"]["S"]


def test_a_claim_that_moves_while_it_is_read_is_seen_as_it_is_then(client: Counting) -> None:
    committed(client, 2)
    others = state_of(client)
    client.first = lambda: others.advance(
        node_claim(cluster="blue", name="c001"), ClaimState.FAILED, failure="no capacity"
    )
    (left,) = state_of(client).read("blue", NOW).claims
    assert left.name == "c000"
    found = state_of(client).claims("blue")
    assert [item.state for item in found] == [ClaimState.PLANNED, ClaimState.FAILED]


def test_the_index_holds_nothing_but_keys_and_versions(client: Counting) -> None:
    committed(client, 1)
    for shard in range(SHARDS):
        page = client.query(
            TableName="state",
            IndexName=tables.STAGE_INDEX.name,
            KeyConditionExpression="#c = :c",
            ExpressionAttributeNames={"#c": "cluster"},
            ExpressionAttributeValues={":c": {"S": f"blue#{shard}"}},
        )
        for item in page["Items"]:
            assert set(item) == {"cluster", "item", "stage", "version"}


def test_commands_are_read_through_the_index_too(client: Counting) -> None:
    state = state_of(client)
    command = DisruptionCommand(
        cluster="blue", name="go", reason=Reason.EMPTY, method=Method.EMPTINESS, targets=("c",), nodes=("n",)
    )
    state.commit("blue", 0, [], [command])
    assert state.commands("blue") == state.commands("blue") == (command,)
    assert client.items["batch_get_item"] == 1


def test_a_table_that_gives_only_parts_is_asked_again_and_at_last_throttled(client: Counting) -> None:
    committed(client, 3)
    given = client._client.batch_get_item

    class Sparing:
        def __init__(self, gives: int) -> None:
            self.gives = gives

        def __getattr__(self, operation: str) -> Any:
            return getattr(client, operation)

        def batch_get_item(self, RequestItems: Any) -> Any:  # noqa: N803 - as boto3 names it
            keys = RequestItems["state"]["Keys"]
            if not self.gives:
                return {"Responses": {}, "UnprocessedKeys": RequestItems}
            answer = given(RequestItems={"state": {**RequestItems["state"], "Keys": keys[:1]}})
            rest = {"state": {**RequestItems["state"], "Keys": keys[1:]}} if keys[1:] else {}
            return {**answer, "UnprocessedKeys": rest}

    assert len(state_of(Sparing(1)).claims("blue")) == 3
    with pytest.raises(StoreThrottled, match="could not be read"):
        state_of(Sparing(0)).claims("blue")
