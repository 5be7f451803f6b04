"""The contract of StateStore about dollars: ledgers, ended claims, and the account's counters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.errors import EpochMoved, StoreError
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import StateStore
from shiplap.spending.account_counters import AccountSpending, CountChange, CountedSpending, change_to
from shiplap.spending.ledger import MonthOfSpending, SpendingLedger
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import changes, node_claim, with_fields
from tests.integration.contracts.in_process_aws import HookedClient, create_table, dynamodb_client

NOW = 1_700_000_000.0
CLUSTER, MONTH = "blue", "2023-11"
S = ClaimState

Stores = tuple[StateStore, StateStore, Faults]


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Two functions on one table, and the effects of the first."""
    faults = Faults()
    if request.param == "fake":
        fake = FakeState(faults)
        yield fake, fake, faults
        return
    with dynamodb_client(request) as client:
        create_table(client, "state", tables.STATE)
        hooked = HookedClient(client, faults)
        first, second = (DynamoState(hooked, "state", sleep=lambda _: None) for _ in range(2))
        yield first, second, faults


def launched(store: StateStore, name: str, **fields: object) -> NodeClaim:
    planned = with_fields(node_claim(cluster=CLUSTER, name=name, most_hourly=0.5), **fields)
    store.commit(CLUSTER, store.epoch(CLUSTER), [planned])
    launching = store.advance(planned, S.LAUNCHING)
    return store.advance(launching, S.LAUNCHED, **changes(launching, instance_id=f"i-{name}", changed_at=NOW))


def gone(store: StateStore, name: str, **fields: object) -> NodeClaim:
    return store.advance(launched(store, name, **fields), S.GONE, changed_at=NOW + 9)


def of_month(total: int, hourly: int, before: CountedSpending | None = None, **bounds: int) -> CountChange:
    change = change_to(before or CountedSpending(), MONTH, total, hourly)
    return CountChange(change.before, change.after, **bounds)


def test_without_ceilings_there_is_nothing_to_read(stores: Stores) -> None:
    state = stores[0].read(CLUSTER, NOW)
    assert (state.ledger, state.counted, state.account_spending) == (None, CountedSpending(), AccountSpending())


def test_a_ledger_is_written_over_the_version_before_only(stores: Stores) -> None:
    store, rival, _ = stores
    first = SpendingLedger(1, 3600, MonthOfSpending(MONTH, 5, by_pool={"default": 5}), hours=(5,))
    assert store.post_ledger(CLUSTER, first)
    assert not rival.post_ledger(CLUSTER, first)
    assert rival.post_ledger(CLUSTER, SpendingLedger(2, 7200))
    assert not store.post_ledger(CLUSTER, SpendingLedger(2, 9999))
    assert store.read(CLUSTER, NOW).ledger == SpendingLedger(2, 7200)
    assert store.read("green", NOW).ledger is None


def test_metered_claims_stay_in_the_ledger_until_they_are_closed(stores: Stores) -> None:
    store, rival, _ = stores
    running, ended = launched(store, "a"), gone(store, "b")
    gone(store, "unmetered", most_hourly=0.0)
    assert store.ledger_claims(CLUSTER) == (running, ended)
    assert store.claims(CLUSTER) == (running,)
    store.close_claims([ended])
    rival.close_claims([ended])
    assert rival.ledger_claims(CLUSTER) == store.ledger_claims(CLUSTER) == (running,)
    assert store.claim(CLUSTER, "b") == ended
    assert [seen.name for seen in store.read(CLUSTER, NOW).claims] == ["a"]


def test_closing_what_has_expired_makes_nothing(stores: Stores) -> None:
    store, _, _ = stores
    store.close_claims([node_claim(cluster=CLUSTER, name="never", most_hourly=0.5, state=S.GONE, instance_id="i-1")])
    assert store.claim(CLUSTER, "never") is None
    assert store.ledger_claims(CLUSTER) == ()


def test_the_counters_are_the_sum_of_what_clusters_have_added(stores: Stores) -> None:
    store, rival, _ = stores
    first = of_month(100, 10)
    assert store.count_spending(CLUSTER, first)
    assert rival.count_spending("green", of_month(50, 5))
    assert not rival.count_spending(CLUSTER, first)  # doubled
    assert store.count_spending(CLUSTER, of_month(70, 0, first.after))
    state = store.read(CLUSTER, NOW)
    assert state.account_spending == AccountSpending({MONTH: 120}, 5)
    assert state.counted == CountedSpending(2, MONTH, 70, 0)


def test_another_month_keeps_what_was_added_to_the_last_one(stores: Stores) -> None:
    store, _, _ = stores
    first = of_month(100, 10)
    store.count_spending(CLUSTER, first)
    store.count_spending(CLUSTER, change_to(first.after, "2023-12", 7, 3))
    assert store.read(CLUSTER, NOW).account_spending == AccountSpending({MONTH: 100, "2023-12": 7}, 3)


def test_a_commit_counts_with_its_claims_or_not_at_all(stores: Stores) -> None:
    store, rival, _ = stores
    change = of_month(100, 10, most_total=0, most_hourly=0)
    assert store.commit(CLUSTER, 0, [node_claim(cluster=CLUSTER, name="a", most_hourly=0.5)], counted=change) == 1
    with pytest.raises(EpochMoved):
        rival.commit(
            CLUSTER,
            0,
            [node_claim(cluster=CLUSTER, name="b", most_hourly=0.5)],
            counted=of_month(200, 20, change.after),
        )
    with pytest.raises(EpochMoved):  # the note has changed
        rival.commit(CLUSTER, 1, [node_claim(cluster=CLUSTER, name="b", most_hourly=0.5)], counted=of_month(200, 20))
    assert [seen.name for seen in store.claims(CLUSTER)] == ["a"]
    assert store.read(CLUSTER, NOW).account_spending == AccountSpending({MONTH: 100}, 10)


@pytest.mark.parametrize("bounds", [{"most_total": 99}, {"most_hourly": 9}])
def test_of_two_clusters_only_one_gets_the_rest_of_a_ceiling(stores: Stores, bounds: dict[str, int]) -> None:
    store, rival, _ = stores
    assert (
        store.commit(
            CLUSTER, 0, [node_claim(cluster=CLUSTER, name="a", most_hourly=0.5)], counted=of_month(100, 10, **bounds)
        )
        == 1
    )
    with pytest.raises(EpochMoved):
        rival.commit(
            "green", 0, [node_claim(cluster="green", name="b", most_hourly=0.5)], counted=of_month(100, 10, **bounds)
        )
    assert store.read("green", NOW).account_spending == AccountSpending({MONTH: 100}, 10)
    assert rival.epoch("green") == 0


def test_large_commits_count_once(stores: Stores) -> None:
    store, _, _ = stores
    claims = [node_claim(cluster=CLUSTER, name=f"n{number}", most_hourly=0.5) for number in range(205)]
    assert store.commit(CLUSTER, 0, claims, counted=of_month(100, 10)) == 3
    assert store.read(CLUSTER, NOW).account_spending == AccountSpending({MONTH: 100}, 10)
    assert len(store.claims(CLUSTER)) == 205


def test_a_commit_whose_answer_is_lost_counts_once(stores: Stores) -> None:
    store, _, faults = stores
    effect = "state.commit" if isinstance(store, FakeState) else "transact_write_items"
    faults.on("after", effect, StoreError("no answer"))
    with pytest.raises(StoreError):
        store.commit(CLUSTER, 0, [node_claim(cluster=CLUSTER, name="a", most_hourly=0.5)], counted=of_month(100, 10))
    with pytest.raises(EpochMoved):
        store.commit(CLUSTER, 0, [node_claim(cluster=CLUSTER, name="a", most_hourly=0.5)], counted=of_month(100, 10))
    assert store.read(CLUSTER, NOW).account_spending == AccountSpending({MONTH: 100}, 10)
