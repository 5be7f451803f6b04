"""The contract of StateStore for disruption commands, held as in `test_state_contract`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.errors import ConditionFailed, EpochMoved
from shiplap.ports import COMMIT_GROUP, StateStore
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import node_claim
from tests.integration.contracts.in_process_aws import create_table, dynamodb_client

NOW = 1_700_000_000.0
CLUSTER = "blue"


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def store(request: pytest.FixtureRequest) -> Iterator[StateStore]:
    if request.param == "fake":
        yield FakeState()
        return
    with dynamodb_client(request) as client:
        create_table(client, "state", tables.STATE)
        yield DynamoState(client, "state", sleep=lambda _: None)


def command(name: str = "command", **changes: object) -> DisruptionCommand:
    first = DisruptionCommand(
        cluster=CLUSTER,
        name=name,
        reason=Reason.UNDERUTILIZED,
        method=Method.CONSOLIDATION,
        targets=("old",),
        nodes=("node-old",),
        replacements=("new",),
        receiving=("node-other",),
        created_at=NOW + 0.125,
        changed_at=NOW,
        savings_hourly=0.3,
    )
    return replace(first, **changes)


def test_a_command_is_committed_with_its_replacements(store: StateStore) -> None:
    assert store.commit(CLUSTER, 0, [node_claim(cluster=CLUSTER, name="new")], [command()]) == 1
    assert store.commands(CLUSTER) == (command(),)
    assert [item.name for item in store.read(CLUSTER, NOW).claims] == ["new"]
    assert store.read(CLUSTER, NOW).epoch == 1
    assert store.commands("green") == ()


def test_a_command_without_replacements_advances_the_epoch_too(store: StateStore) -> None:
    assert store.commit(CLUSTER, 0, [], [command("b"), command("a")]) == 1
    assert [item.name for item in store.commands(CLUSTER)] == ["a", "b"]


def test_nothing_is_committed_on_a_stale_epoch(store: StateStore) -> None:
    store.commit(CLUSTER, 0, [], [command("first")])
    with pytest.raises(EpochMoved):
        store.commit(CLUSTER, 0, [node_claim(cluster=CLUSTER, name="new")], [command("second")])
    assert [item.name for item in store.commands(CLUSTER)] == ["first"]
    assert store.read(CLUSTER, NOW).claims == ()


def test_a_name_is_given_once(store: StateStore) -> None:
    store.commit(CLUSTER, 0, [], [command()])
    with pytest.raises(ConditionFailed):
        store.commit(CLUSTER, 1, [], [command()])


def test_a_large_command_takes_several_transactions_the_first_with_the_command(store: StateStore) -> None:
    assert (
        store.commit(
            CLUSTER, 0, [node_claim(cluster=CLUSTER, name=f"c{place:03}") for place in range(COMMIT_GROUP)], [command()]
        )
        == 2
    )
    assert len(store.read(CLUSTER, NOW).claims) == COMMIT_GROUP
    assert store.commands(CLUSTER) == (command(),)


def test_a_command_advances_once_per_version(store: StateStore) -> None:
    store.commit(CLUSTER, 0, [], [command()])
    (read,) = store.commands(CLUSTER)
    after = store.advance_command(read, CommandState.REMOVING, changed_at=NOW + 5)
    assert after.state is CommandState.REMOVING
    assert store.commands(CLUSTER) == (after,)
    with pytest.raises(ConditionFailed):
        store.advance_command(read, CommandState.UNDONE, changed_at=NOW + 6)


def test_a_command_that_is_over_is_listed_no_more_and_stays_over(store: StateStore) -> None:
    store.commit(CLUSTER, 0, [], [command()])
    (read,) = store.commands(CLUSTER)
    done = store.advance_command(read, CommandState.DONE, changed_at=NOW + 5)
    assert store.commands(CLUSTER) == ()
    with pytest.raises(ConditionFailed):
        store.advance_command(done, CommandState.REMOVING)
