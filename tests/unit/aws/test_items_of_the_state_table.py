"""Tests the items of claims and commands, their number in one transaction, and the meaning of a cancelled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb import state_table
from shiplap.aws.dynamodb.staged_items import Stage
from shiplap.aws.dynamodb.state_table import (
    DynamoState,
    claim_of_item,
    command_of_item,
    item_of_claim,
    item_of_command,
    raise_cancelled_commit,
    raise_cancelled_moves,
    refusals_of_item,
    transactions_of,
)
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.errors import ConditionFailed, EpochMoved, StoreError, StoreThrottled
from shiplap.manifests.nodeclaim import FORGET_AFTER_S, UNSETTLED, ClaimState
from shiplap.ports import COMMIT_BYTES, COMMIT_GROUP, MISSED_FOR_S, Move, Refusals
from tests.builders.claims import node_claim

NOW = 1_700_000_000.0


def cancelled(*codes: str, known: bool = True) -> ClientError:
    answer: Any = {"Error": {"Code": "TransactionCanceledException", "Message": "no"}}
    if known:
        answer["CancellationReasons"] = [{"Code": code} if code else {} for code in codes]
    return ClientError(answer, "TransactWriteItems")


REPEATABLE = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]


@pytest.mark.parametrize("code", REPEATABLE)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_transaction_that_ran_into_another_may_be_tried_again(code: str, place: int) -> None:
    codes, counters = ["None", "", "None"], 1
    codes[place] = code
    raise_cancelled_commit(cancelled(*codes), "demo", 3, counters)
    raise_cancelled_moves(cancelled(*codes), [Move(node_claim(name="a"), ClaimState.FAILED)])


@pytest.mark.parametrize(
    ("codes", "counters", "kind"),
    [
        (("ConditionalCheckFailed", "None"), 0, EpochMoved),
        (("ConditionalCheckFailed", "ConditionalCheckFailed"), 0, EpochMoved),
        (("None", "ConditionalCheckFailed"), 0, ConditionFailed),
        (("None", "ConditionalCheckFailed"), 1, EpochMoved),
        (("None", "None", "ConditionalCheckFailed"), 1, ConditionFailed),
        (("None", "None", "ConditionalCheckFailed"), 2, EpochMoved),
        (("TransactionConflict", "ConditionalCheckFailed"), 0, ConditionFailed),
        (("ValidationError", "None"), 0, StoreError),
        (("TransactionConflict", "ItemCollectionSizeLimitExceeded"), 0, StoreError),
        ((), 0, StoreError),
    ],
)
def test_what_a_cancelled_commit_means(codes: Sequence[str], counters: int, kind: type[StoreError]) -> None:
    with pytest.raises(StoreError) as told:
        raise_cancelled_commit(cancelled(*codes), "demo", 3, counters)
    assert type(told.value) is kind


def test_a_cancellation_without_reasons_is_an_error() -> None:
    with pytest.raises(StoreError, match="could not be written"):
        raise_cancelled_commit(cancelled(known=False), "demo", 3, 0)


def test_of_claims_that_move_together_the_one_that_has_changed_is_named() -> None:
    moves = [Move(node_claim(name=name, version=4), ClaimState.FAILED) for name in "abc"]
    with pytest.raises(ConditionFailed, match="claim b is no longer at version 4"):
        raise_cancelled_moves(cancelled("None", "ConditionalCheckFailed", "None"), moves)
    with pytest.raises(StoreError, match="could not be written"):
        raise_cancelled_moves(cancelled("None", "ValidationError", "None"), moves)


def sized(*lengths: int) -> list[Any]:
    return [{"claim": {"S": "x" * length}, "place": number} for number, length in enumerate(lengths)]


def portions(*lengths: int, beside: int = 0) -> list[list[int]]:
    found = transactions_of(sized(*lengths), beside)
    return [[int(str(item["place"])) for item in group] for group in found]


def test_a_transaction_holds_so_many_items_and_so_many_bytes() -> None:
    most = COMMIT_BYTES
    assert portions() == []
    assert portions(1) == [[0]]
    assert portions(most) == [[0]]
    assert portions(most, 1) == [[0], [1]]
    assert portions(most - 1, 1, 1) == [[0, 1], [2]]
    assert portions(1, most, 1) == [[0], [1], [2]]
    assert [len(group) for group in portions(*[1] * (2 * COMMIT_GROUP + 1))] == [COMMIT_GROUP, COMMIT_GROUP, 1]
    assert [len(group) for group in portions(*[1] * (COMMIT_GROUP + 97), beside=2)] == [COMMIT_GROUP - 2, 99]
    half = most // 2
    assert portions(half, half, half, half, 1) == [[0, 1], [2, 3], [4]]


def test_a_command_counts_by_its_own_text() -> None:
    commands: list[Any] = [{"command": {"S": "x" * COMMIT_BYTES}}, {"command": {"S": "y"}}]
    assert [len(group) for group in transactions_of(commands, 0)] == [1, 1]


@pytest.mark.parametrize("state", list(ClaimState))
def test_the_stage_of_a_claim_says_who_has_to_read_it(state: ClaimState) -> None:
    claim = node_claim(cluster="demo", name="c", state=state, instance_id="i-1", changed_at=NOW, version=3)
    item = item_of_claim(claim, NOW)
    assert claim_of_item(item) == claim
    assert (item["state"], item["version"]) == ({"S": str(state)}, {"N": "3"})
    assert item[state_table.INSTANCE_ID_INDEX.partition_key] == {"S": "i-1"}
    over = state in (ClaimState.GONE, ClaimState.FAILED)
    assert item.get(EXPIRY) == ({"N": f"{int(NOW + FORGET_AFTER_S) + 1}"} if over else None)
    timed = "Done" if state is ClaimState.GONE else "Settled"
    expected = "Unsettled#c" if state in UNSETTLED else f"{timed}#~{NOW:.0f}000#c"
    assert item[state_table.STAGE_INDEX.sort_key] == {"S": expected}, "a release finds the claims of the one before it"


def test_a_claim_that_a_ledger_has_to_post_is_ended_but_not_done() -> None:
    claim = node_claim(name="c", state=ClaimState.GONE, instance_id="i-1", most_hourly=0.5)
    assert item_of_claim(claim, NOW)[state_table.STAGE_INDEX.sort_key] == {"S": f"{Stage.ENDED}#c"}


def test_a_claim_without_an_instance_has_no_key_of_one() -> None:
    assert state_table.INSTANCE_ID_INDEX.partition_key not in item_of_claim(node_claim(name="c"), NOW)


@pytest.mark.parametrize("state", list(CommandState))
def test_a_command_is_found_while_it_is_under_way_and_forgotten_some_time_after(state: CommandState) -> None:
    command = DisruptionCommand(
        cluster="demo",
        name="k",
        reason=Reason.DRIFTED,
        method=Method.DRIFT,
        targets=("a",),
        nodes=("n",),
        state=state,
        changed_at=NOW,
        version=2,
    )
    item = item_of_command(command)
    assert command_of_item(item) == command
    over = state in (CommandState.DONE, CommandState.UNDONE)
    assert (state_table.STAGE_INDEX.sort_key in item) is not over
    assert (EXPIRY in item) is over
    assert (item["state"], item["version"]) == ({"S": str(state)}, {"N": "2"})


@pytest.mark.parametrize("stored", [{"S": "{"}, {"S": "[]"}, {"B": b"no zlib"}])
def test_an_item_that_cannot_be_read_is_named(stored: Mapping[str, Any]) -> None:
    with pytest.raises(StoreError, match="claim#c cannot be read as a NodeClaim"):
        claim_of_item({"item": {"S": "claim#c"}, "claim": dict(stored)})
    with pytest.raises(StoreError, match="command#k cannot be read as a command"):
        command_of_item({"item": {"S": "command#k"}, "command": {"S": "{"}})


def test_refusals_of_older_releases_are_read() -> None:
    old: Any = {"claims": {"SS": ["b", "a"]}, "at": {"N": "7.5"}}
    assert refusals_of_item(old) == Refusals(("a", "b"), 7.5)
    new = {**old, "tries": {"N": "4"}, "launched_at": {"N": "6.5"}, "like": {"S": "k"}}
    assert refusals_of_item(new) == Refusals(("a", "b"), 7.5, 4, 6.5, "k")


class Batches:
    """A client whose batch writes leave so many items unprocessed, call by call."""

    def __init__(self, *left: int) -> None:
        self._left = list(left)
        self.written: list[list[str]] = []
        self.items: list[dict[str, Any]] = []

    def batch_write_item(self, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:  # noqa: N803 - DynamoDB's name
        ((table, requests),) = RequestItems.items()
        self.written.append([request["PutRequest"]["Item"]["item"]["S"] for request in requests])
        self.items += (request["PutRequest"]["Item"] for request in requests)
        left = self._left.pop(0) if self._left else 0
        return {"UnprocessedItems": {table: requests[:left]}} if left else {}


def state(client: Batches) -> tuple[DynamoState, list[float]]:
    pauses: list[float] = []
    made = DynamoState(client, "table", sleep=pauses.append)  # type: ignore[arg-type]
    return made, pauses


def test_marks_are_written_in_portions_each_once() -> None:
    client = Batches()
    made, pauses = state(client)
    made.mark_missed("demo", [*(f"u{number:02}" for number in range(60)), "u00"], NOW)
    assert [len(some) for some in client.written] == [25, 25, 10]
    assert client.written[0][0].endswith("#u00")
    assert len({name for some in client.written for name in some}) == 60
    assert {item[EXPIRY]["N"] for item in client.items} == {f"{int(NOW + MISSED_FOR_S) + 1}"}
    assert {item["cluster"]["S"] for item in client.items} == {"demo"}
    assert pauses == []


def test_what_was_not_written_is_written_again_after_a_pause() -> None:
    client = Batches(2, 1)
    made, pauses = state(client)
    made.mark_missed("demo", ["a", "b", "c"], NOW)
    assert [len(some) for some in client.written] == [3, 2, 1]
    assert len(pauses) == 2


def test_what_is_never_written_is_an_error() -> None:
    client = Batches(*[1] * 50)
    made, pauses = state(client)
    with pytest.raises(StoreThrottled, match="1 missed pods"):
        made.mark_missed("demo", ["a"], NOW)
    assert len(client.written) == len(pauses) + 1


def test_a_claim_survives_its_item_whatever_its_size() -> None:
    large = node_claim(name="c", reasons=tuple(f"reason {number}" for number in range(20_000)))
    assert claim_of_item(item_of_claim(large, NOW)) == large
    assert msgspec.json.encode(large)


class Transactions:
    """A client whose transactions are cancelled so many times."""

    def __init__(self, *errors: ClientError) -> None:
        self._errors = list(errors)
        self.requests: list[dict[str, Any]] = []

    def transact_write_items(self, **request: Any) -> None:
        self.requests.append(request)
        if self._errors:
            raise self._errors.pop(0)


def test_a_commit_in_conflict_is_repeated_as_the_same_transaction_after_pauses() -> None:
    client = Transactions(cancelled("TransactionConflict", "None"), cancelled("None", "ThrottlingError"))
    made, pauses = state(client)  # type: ignore[arg-type]
    assert made.commit("demo", 4, [node_claim(cluster="demo", name="c")]) == 5
    assert len(pauses) == 2
    first, *others = client.requests
    assert others == [first] * 2
    assert len(first["ClientRequestToken"]) == 32
    epoch, put = first["TransactItems"]
    assert epoch["Update"]["ExpressionAttributeValues"] == {":expected": {"N": "4"}, ":next": {"N": "5"}}
    assert epoch["Update"]["ConditionExpression"] == "#epoch = :expected"
    assert put["Put"]["ConditionExpression"] == "attribute_not_exists(#item)"


def test_the_first_commit_of_a_cluster_needs_no_epoch_yet() -> None:
    client = Transactions()
    made, _ = state(client)  # type: ignore[arg-type]
    assert made.commit("demo", 0, [node_claim(cluster="demo", name="c")]) == 1
    condition = client.requests[0]["TransactItems"][0]["Update"]["ConditionExpression"]
    assert condition == "attribute_not_exists(#epoch) OR #epoch = :expected"


def test_a_transaction_that_is_always_in_conflict_is_throttled() -> None:
    client = Transactions(*[cancelled("TransactionConflict")] * 50)
    made, pauses = state(client)  # type: ignore[arg-type]
    with pytest.raises(StoreThrottled):
        made.commit("demo", 4, [node_claim(cluster="demo", name="c")])
    assert len(client.requests) == len(pauses) + 1 == 8


def test_claims_that_move_together_are_written_over_their_versions() -> None:
    client = Transactions()
    made, _ = state(client)  # type: ignore[arg-type]
    moves = [Move(node_claim(cluster="demo", name=name, version=3), ClaimState.LAUNCHING) for name in "ab"]
    after = made.advance_all(moves)
    assert [(claim.name, claim.state, claim.version) for claim in after] == [
        ("a", ClaimState.LAUNCHING, 4),
        ("b", ClaimState.LAUNCHING, 4),
    ]
    for action in client.requests[0]["TransactItems"]:
        assert action["Put"]["ConditionExpression"] == "#version = :version"
        assert action["Put"]["ExpressionAttributeValues"] == {":version": {"N": "3"}}
        assert action["Put"]["Item"]["version"] == {"N": "4"}
