"""The contract of StateStore, held by the fake and by the DynamoDB adapter, on moto and on DynamoDB Local."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.disruption.repair.kept_sick_nodes import SickNote
from shiplap.errors import ConditionFailed, EpochMoved, StoreError, StoreThrottled
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import FORGET_AFTER_S, SCHEMA, ClaimState, LaunchedInstance, NodeClaim, PodReference
from shiplap.ports import (
    FUTILE_FOR_S,
    MISSED_FOR_S,
    PROVEN_FOR_S,
    REFUSED_FOR_S,
    SICK_FOR_S,
    Move,
    OfferingFailure,
    Refusals,
    StateStore,
    UnavailableOffering,
    can_be_stored,
)
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import changes, node_claim, with_fields
from tests.integration.contracts.in_process_aws import HookedClient, create_table, dynamodb_client

NOW = 1_700_000_000.0
CLUSTER = "blue"
S = ClaimState


@dataclass(frozen=True)
class World:
    """Two functions on one table; `commit`, `advance` and `mark` name their effects in `faults`.

    `items` are those of the table, as DynamoDB has them.
    """

    store: StateStore
    rival: StateStore
    faults: Faults
    commit: str
    advance: str
    mark: str
    items: Callable[[], list[dict[str, Any]]] = list


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    faults = Faults()
    if request.param == "fake":
        fake = FakeState(faults)
        yield World(fake, fake, faults, "state.commit", "state.advance", "state.mark_unavailable")
        return
    with dynamodb_client(request) as client:
        create_table(client, "state", tables.STATE)
        hooked = HookedClient(client, faults)
        first, second = (DynamoState(hooked, "state", sleep=lambda _: None) for _ in range(2))

        def scan() -> list[dict[str, Any]]:
            return list(client.scan(TableName="state")["Items"])

        yield World(first, second, faults, "transact_write_items", "put_item", "put_item", scan)


CLAIM = node_claim(name="c", cluster=CLUSTER)


def in_flight(store: StateStore) -> list[str]:
    return [item.name for item in store.read(CLUSTER, NOW).claims]


def advance_to(store: StateStore, item: NodeClaim, *states: ClaimState) -> NodeClaim:
    for state in states:
        item = store.advance(item, state, changed_at=NOW)
    return item


def test_a_cluster_never_written_to_is_at_epoch_0_and_empty(world: World) -> None:
    state = world.store.read(CLUSTER, NOW)
    assert (state.epoch, state.claims, state.unavailable, state.missed_pods) == (0, (), (), frozenset())
    assert world.store.epoch(CLUSTER) == 0
    assert world.store.claims(CLUSTER) == ()
    assert world.store.claim(CLUSTER, "none") is None


def test_a_committed_claim_is_read_back_exactly(world: World) -> None:
    full = with_fields(
        CLAIM,
        name="full",
        tier=1,
        created_at=NOW + 0.125,
        requirements=(RequirementSpec("karpenter.sh/capacity-type", "In", ("spot",), 1),),
        labels={"team": "blue # 1"},
        taints=(Taint("dedicated", "NoSchedule", "gpu"),),
        instance_types=("c7i-flex.large", "m5.large"),
        relies_on_estimate=("m5.large",),
        requests={"cpu": 1930, "memory": 3 * 1024**3, "nvidia.com/gpu": 1},
        pods=(PodReference("default", "a", "uid-a"),),
        reasons=("Grüße",),
        token="t",
        hourly=0.1,
    )
    assert world.store.commit(CLUSTER, 0, [full]) == 1
    assert world.rival.read(CLUSTER, NOW).claims == (full,)
    assert world.rival.claim(CLUSTER, "full") == full
    assert world.rival.claims(CLUSTER) == (full,)


def test_each_decision_advances_the_epoch_and_claims_come_sorted(world: World) -> None:
    assert world.store.commit(CLUSTER, 0, [CLAIM, with_fields(CLAIM, name="a")]) == 1
    assert world.store.commit(CLUSTER, 1, [with_fields(CLAIM, name="b")]) == 2
    assert world.store.read(CLUSTER, NOW).epoch == world.rival.epoch(CLUSTER) == 2
    assert world.store.epoch(f"{CLUSTER}-too") == 0
    assert in_flight(world.store) == ["a", "b", "c"]


def test_a_decision_without_claims_writes_nothing(world: World) -> None:
    assert world.store.commit(CLUSTER, 0, []) == 0
    assert world.store.read(CLUSTER, NOW).epoch == 0


def test_many_claims_go_in_groups_and_each_advances_the_epoch(world: World) -> None:
    names = [f"claim-{number:03}" for number in range(200)]
    assert world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name=name) for name in names]) == 3
    assert in_flight(world.store) == names
    assert world.store.read(CLUSTER, NOW).epoch == 3


def test_of_two_decisions_on_one_epoch_the_second_writes_nothing(world: World) -> None:
    world.rival.commit(CLUSTER, 0, [with_fields(CLAIM, name="theirs")])
    with pytest.raises(EpochMoved, match="epoch 0"):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="ours")])
    assert in_flight(world.store) == ["theirs"]
    assert world.store.read(CLUSTER, NOW).epoch == 1


def test_two_deciders_with_the_same_claims_do_not_both_win(world: World) -> None:
    world.rival.commit(CLUSTER, 0, [with_fields(CLAIM, name="same", token="t")])
    with pytest.raises(EpochMoved):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="same", token="t")])


def test_a_decision_from_the_future_is_refused(world: World) -> None:
    with pytest.raises(EpochMoved):
        world.store.commit(CLUSTER, 5, [with_fields(CLAIM, name="a")])
    assert in_flight(world.store) == []


def test_a_rival_that_slips_in_just_before_the_write_wins(world: World) -> None:
    world.faults.on("before", world.commit, lambda: world.rival.commit(CLUSTER, 0, [with_fields(CLAIM, name="theirs")]))
    with pytest.raises(EpochMoved):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="ours")])
    assert in_flight(world.store) == ["theirs"]


def test_groups_written_before_a_rival_stay(world: World) -> None:
    world.faults.on("after", world.commit, lambda: world.rival.commit(CLUSTER, 1, [with_fields(CLAIM, name="theirs")]))
    with pytest.raises(EpochMoved, match="epoch 1"):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name=f"ours-{number:03}") for number in range(120)])
    names = in_flight(world.store)
    assert "theirs" in names
    assert len(names) == 100
    assert world.store.read(CLUSTER, NOW).epoch == 2


def test_of_many_concurrent_deciders_exactly_one_wins(world: World) -> None:
    def decide(number: int) -> bool:
        store = world.rival if number % 2 else world.store
        try:
            store.commit(CLUSTER, 0, [with_fields(CLAIM, name=f"claim-{number}")])
        except EpochMoved:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(decide, range(8)))
    assert won.count(True) == 1
    assert in_flight(world.store) == [f"claim-{won.index(True)}"]


def test_a_taken_name_refuses_the_whole_decision(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="taken")])
    with pytest.raises(ConditionFailed, match="exists"):
        world.store.commit(CLUSTER, 1, [with_fields(CLAIM, name="new"), with_fields(CLAIM, name="taken")])
    assert in_flight(world.store) == ["taken"]
    assert world.store.read(CLUSTER, NOW).epoch == 1


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([with_fields(CLAIM, name="a"), with_fields(CLAIM, name="a")], id="one name twice"),
        pytest.param([with_fields(CLAIM, name="a", state=S.LAUNCHED)], id="not Planned"),
        pytest.param(
            [node_claim(cluster="green", name="a", node_pool="default", node_class="default")], id="another cluster"
        ),
    ],
)
def test_claims_that_cannot_be_committed_together_are_refused(world: World, claims: list[NodeClaim]) -> None:
    with pytest.raises(ConditionFailed):
        world.store.commit(CLUSTER, 0, claims)
    assert world.store.read(CLUSTER, NOW).epoch == 0
    assert world.store.claims(CLUSTER) == ()


def test_clusters_know_nothing_of_each_other(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    world.store.mark_missed(CLUSTER, ["uid"], NOW)
    world.store.mark_unavailable([OfferingFailure("m5.large", "a", "spot", "ICE")], NOW)
    green = world.store.read("green", NOW)
    assert (green.epoch, green.claims, green.missed_pods) == (0, (), frozenset())
    assert world.store.claims("green") == ()
    assert world.store.claim("green", "a") is None


def test_decisions_see_claims_until_they_are_initialized_and_while_they_leave(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    item = with_fields(CLAIM, name="a")
    for state in (S.LAUNCHING, S.LAUNCHED, S.REGISTERED):
        item = world.store.advance(item, state)
        assert world.store.read(CLUSTER, NOW).claims == (item,)
    item = world.store.advance(item, S.INITIALIZED)
    assert in_flight(world.store) == []
    assert world.store.claims(CLUSTER) == (item,)
    for state in (S.DRAINING, S.TERMINATING):
        item = world.store.advance(item, state)
        assert world.store.read(CLUSTER, NOW).claims == (item,)
    item = world.store.advance(item, S.GONE, changed_at=NOW)
    assert world.store.claims(CLUSTER) == ()
    assert world.store.claim(CLUSTER, "a") == item


def test_a_failed_claim_is_remembered_but_not_in_flight(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    failed = world.store.advance(with_fields(CLAIM, name="a"), S.FAILED, failure="no capacity", changed_at=NOW)
    assert in_flight(world.store) == []
    assert world.store.claims(CLUSTER) == (failed,)
    assert failed.failure == "no capacity"


def test_a_claim_stays_in_its_state_with_a_new_owner(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    owned = world.store.advance(
        with_fields(CLAIM, name="a"), S.PLANNED, **changes(with_fields(CLAIM, name="a"), owner="request-1")
    )
    assert world.store.claim(CLUSTER, "a") == owned
    assert (owned.launch.owner, owned.state, owned.version) == ("request-1", S.PLANNED, 1)


@pytest.mark.parametrize(
    ("states", "to"),
    [
        ((), S.LAUNCHED),
        ((), S.GONE),
        ((S.LAUNCHING,), S.PLANNED),
        ((S.LAUNCHING, S.LAUNCHED), S.INITIALIZED),
        ((S.LAUNCHING, S.LAUNCHED, S.REGISTERED), S.FAILED),
        ((S.LAUNCHING, S.LAUNCHED, S.REGISTERED, S.INITIALIZED), S.REGISTERED),
        ((S.FAILED,), S.FAILED),
        ((S.LAUNCHING, S.LAUNCHED, S.TERMINATING, S.GONE), S.TERMINATING),
    ],
)
def test_states_are_not_skipped_nor_walked_back(world: World, states: tuple[ClaimState, ...], to: ClaimState) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    item = advance_to(world.store, with_fields(CLAIM, name="a"), *states)
    with pytest.raises(ConditionFailed, match="no way leads"):
        world.store.advance(item, to)
    assert world.store.claim(CLUSTER, "a") == item


def test_a_claim_that_changed_meanwhile_is_not_overwritten(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    theirs = world.rival.advance(
        with_fields(CLAIM, name="a"), S.LAUNCHING, **changes(with_fields(CLAIM, name="a"), owner="them")
    )
    with pytest.raises(ConditionFailed, match="version 0"):
        world.store.advance(
            with_fields(CLAIM, name="a"), S.LAUNCHING, **changes(with_fields(CLAIM, name="a"), owner="us")
        )
    assert world.store.claim(CLUSTER, "a") == theirs


def test_of_two_identical_moves_one_wins(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    world.faults.on("before", world.advance, lambda: world.rival.advance(with_fields(CLAIM, name="a"), S.LAUNCHING))
    with pytest.raises(ConditionFailed):
        world.store.advance(with_fields(CLAIM, name="a"), S.LAUNCHING)


def test_a_claim_that_does_not_exist_cannot_move(world: World) -> None:
    with pytest.raises(ConditionFailed):
        world.store.advance(with_fields(CLAIM, name="ghost"), S.LAUNCHING)
    assert world.store.claim(CLUSTER, "ghost") is None


def test_a_claim_is_found_by_its_instance(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b")])
    launched = [
        world.store.advance(
            world.store.advance(with_fields(CLAIM, name=name), S.LAUNCHING),
            S.LAUNCHED,
            instance=LaunchedInstance(f"i-{name}", "m5.large"),
        )
        for name in ("a", "b")
    ]
    assert world.store.claim_of_instance("i-b") == launched[1]
    registered = world.store.advance(launched[1], S.REGISTERED, node_name="node-b")
    assert world.store.claim_of_instance("i-b") == registered
    assert world.store.claim_of_instance("i-c") is None
    assert world.store.claim_of_instance("") is None


ICE = OfferingFailure("m5.large", "eu-west-1a", "spot", "InsufficientInstanceCapacity")


def test_a_failed_offering_rests_three_minutes(world: World) -> None:
    [marked] = world.store.mark_unavailable([ICE], NOW)
    assert marked == UnavailableOffering("m5.large", "eu-west-1a", "spot", NOW + 180, 1, "InsufficientInstanceCapacity")
    assert world.store.read(CLUSTER, NOW + 179).unavailable == (marked,)
    assert world.store.read(CLUSTER, NOW + 180).unavailable == ()


def test_the_rest_doubles_while_failures_repeat_and_is_capped_at_an_hour(world: World) -> None:
    now, waits = NOW, []
    for _ in range(7):
        [marked] = world.store.mark_unavailable([ICE], now)
        waits.append(marked.until - now)
        now = marked.until
    assert waits == [180, 360, 720, 1440, 2880, 3600, 3600]


def test_a_failure_long_after_the_last_rest_starts_anew(world: World) -> None:
    [first] = world.store.mark_unavailable([ICE], NOW)
    [again] = world.store.mark_unavailable([ICE], first.until + 180)
    assert again.failures == 2
    assert world.store.mark_unavailable([ICE], again.until + 361)[0].failures == 1


def test_one_outage_seen_by_two_counts_once(world: World) -> None:
    [first] = world.store.mark_unavailable([ICE], NOW)
    assert world.rival.mark_unavailable([ICE], NOW + 30) == (first,)
    world.faults.on("before", world.mark, lambda: world.rival.mark_unavailable([ICE], first.until + 1))
    [second] = world.store.mark_unavailable([ICE], first.until + 2)
    assert second.failures == 2
    assert second.until == first.until + 1 + 360


def test_one_first_outage_seen_by_two_counts_once(world: World) -> None:
    world.faults.on("before", world.mark, lambda: world.rival.mark_unavailable([ICE], NOW))
    [marked] = world.store.mark_unavailable([ICE], NOW + 1)
    assert marked == UnavailableOffering("m5.large", "eu-west-1a", "spot", NOW + 180, 1, "InsufficientInstanceCapacity")


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_reasons_why_one_offering_failed_the_first_by_name_is_kept(world: World, order: int) -> None:
    failures = [OfferingFailure("m5.large", "a", "spot", code) for code in ("A", "B", "C")]
    [marked] = world.store.mark_unavailable(failures[::order], NOW)
    assert marked.code == "A"


def test_offerings_are_kept_apart_and_sorted(world: World) -> None:
    offerings = [("m5.large", "b", "spot"), ("m5.large", "a", "spot"), ("c5.large", "b", "on-demand")]
    for instance_type, zone, capacity_type in offerings:
        world.store.mark_unavailable([OfferingFailure(instance_type, zone, capacity_type, "ICE")], NOW)
    read = world.store.read(CLUSTER, NOW).unavailable
    assert [(item.instance_type, item.zone, item.capacity_type) for item in read] == sorted(offerings)


def test_missed_pods_are_remembered_for_thirty_days(world: World) -> None:
    uids = [f"uid-{number}" for number in range(60)]
    world.store.mark_missed(CLUSTER, [*uids, "uid-0"], NOW)
    world.store.mark_missed(CLUSTER, [], NOW)
    assert world.store.read(CLUSTER, NOW + MISSED_FOR_S - 1).missed_pods == frozenset(uids)
    assert world.store.read(CLUSTER, NOW + MISSED_FOR_S + 1).missed_pods == frozenset()


def many(number: int) -> tuple[PodReference, ...]:
    """Pods with the longest names there are, as random as names can be."""
    letters = random.Random(7)  # noqa: S311 - names, no secrets
    return tuple(
        PodReference(
            "namespace", "".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789-.", k=253)), f"{n:036x}"
        )
        for n in range(number)
    )


def test_a_claim_of_a_thousand_pods_with_the_longest_names_is_stored(world: World) -> None:
    large = with_fields(CLAIM, name="large", pods=many(1500))
    assert len(msgspec.json.encode(large)) > 400 * 1024
    assert can_be_stored(large)
    assert world.store.commit(CLUSTER, 0, [large, with_fields(CLAIM, name="small")]) == 1
    assert world.rival.claim(CLUSTER, "large") == large
    assert world.rival.read(CLUSTER, NOW).claims == (large, with_fields(CLAIM, name="small"))
    assert world.store.advance(large, S.LAUNCHING, **changes(large, owner="us")).version == 1


def test_a_claim_that_no_item_can_hold_is_refused_whole(world: World) -> None:
    huge = with_fields(CLAIM, name="huge", pods=many(4000))
    assert not can_be_stored(huge)
    with pytest.raises(StoreError, match="size"):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="small"), huge])
    assert world.store.claims(CLUSTER) == ()


def test_a_claim_of_a_newer_schema_is_read_and_counts_but_is_not_written(world: World) -> None:
    newer = with_fields(CLAIM, name="newer", schema=SCHEMA + 1)
    assert world.store.adopt(newer)
    assert world.rival.read(CLUSTER, NOW).claims == world.rival.claims(CLUSTER) == (newer,)
    for write in (
        lambda: world.store.advance(newer, S.LAUNCHING),
        lambda: world.store.advance_all([Move(newer, S.FAILED)]),
    ):
        with pytest.raises(ConditionFailed, match="schema 2 is newer than 1"):
            write()
    assert world.rival.claim(CLUSTER, "newer") == newer


def test_a_claim_is_adopted_once_in_the_state_its_node_has(world: World) -> None:
    lost = with_fields(CLAIM, name="lost", state=S.INITIALIZED, instance_id="i-1")
    assert world.store.adopt(lost)
    assert not world.rival.adopt(with_fields(CLAIM, name="lost", state=S.INITIALIZED, instance_id="i-2"))
    assert world.store.claim(CLUSTER, "lost") == lost
    assert world.store.claims(CLUSTER) == (lost,)
    assert world.store.read(CLUSTER, NOW).epoch == 0
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="planned")])
    assert not world.store.adopt(with_fields(CLAIM, name="planned", state=S.INITIALIZED))
    assert world.store.advance(lost, S.DRAINING, changed_at=NOW).version == 1


def test_a_claim_that_failed_gives_its_name_to_a_node_in_service(world: World) -> None:
    """Of a claim in a restored table nobody knows that EC2 has launched its instance."""
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="lost")])
    world.store.advance(with_fields(CLAIM, name="lost"), S.FAILED)
    found = with_fields(CLAIM, name="lost", state=S.INITIALIZED, instance_id="i-1")
    assert world.store.adopt(found)
    assert not world.rival.adopt(found)
    assert world.store.claims(CLUSTER) == (found,)
    assert world.store.claim_of_instance("i-1") == found


def test_nodes_that_a_pod_does_not_run_on_are_remembered(world: World) -> None:
    noted = Refusals(("a", "b"), NOW + 5, 2, NOW - 100, "alike")
    world.store.mark_refused(CLUSTER, "uid", Refusals(("b",), NOW, 1, NOW - 200))
    world.store.mark_refused(CLUSTER, "uid", Refusals(("b", "a"), NOW + 5, 2, NOW - 100, "alike"))
    world.store.mark_refused("another", "uid", Refusals(("c",), NOW, 1, NOW))
    world.store.mark_refused(CLUSTER, "other", Refusals(("a",), NOW, 1, NOW))
    state = world.store.read(CLUSTER, NOW + REFUSED_FOR_S - 1)
    assert state.refused == {"other": Refusals(("a",), NOW, 1, NOW), "uid": noted}
    assert state.missed_pods == frozenset()
    assert set(world.store.read(CLUSTER, NOW + REFUSED_FOR_S + 2).refused) == {"uid"}


def test_what_another_sweep_has_noted_of_a_pod_since_is_kept(world: World) -> None:
    newer = Refusals(("a", "b"), NOW + 60, 2, NOW)
    world.store.mark_refused(CLUSTER, "uid", newer)
    world.rival.mark_refused(CLUSTER, "uid", Refusals(("a",), NOW, 1, NOW))
    assert world.store.read(CLUSTER, NOW).refused == {"uid": newer}


def test_nodes_in_vain_are_remembered_for_an_hour_after_their_launch(world: World) -> None:
    launched = {f"claim-{number:02d}": NOW + number for number in range(60)}
    world.store.mark_futile(CLUSTER, launched)
    world.rival.mark_futile(CLUSTER, {"claim-00": NOW, "long-ago": NOW - FUTILE_FOR_S})
    world.store.mark_futile("another", {"c": NOW})
    assert world.store.read(CLUSTER, NOW + 100).futile == launched
    later = world.store.read(CLUSTER, NOW + FUTILE_FOR_S + 29).futile
    assert later == {name: at for name, at in launched.items() if at > NOW + 29}


def test_sick_nodes_are_remembered_for_an_hour(world: World) -> None:
    notes = {"claim-a": SickNote("ami-1", NOW), "claim-b": SickNote("ami-2", NOW + 60)}
    world.store.mark_sick(CLUSTER, notes)
    world.rival.mark_sick("another", {"claim-c": SickNote("ami-1", NOW)})
    assert world.rival.read(CLUSTER, NOW + 100).sick == notes
    assert set(world.store.read(CLUSTER, NOW + SICK_FOR_S + 30).sick) == {"claim-b"}


def test_kinds_of_pods_that_nodes_run_are_remembered_since_they_were_last_noted(world: World) -> None:
    world.store.mark_proven(CLUSTER, ["b", "a"], NOW)
    world.rival.mark_proven(CLUSTER, ["b"], NOW + 60.5)
    world.store.mark_proven("another", ["c"], NOW)
    assert world.store.read(CLUSTER, NOW + 61).proven == {"a": NOW, "b": NOW + 60.5}
    assert world.store.read(CLUSTER, NOW + PROVEN_FOR_S + 30).proven == {"b": NOW + 60.5}
    if isinstance(world.store, FakeState):
        world.store.expire(NOW + PROVEN_FOR_S + 30)
        assert world.store.read(CLUSTER, NOW).proven == {"b": NOW + 60.5}


def test_ended_claims_carry_the_moment_from_which_they_may_be_forgotten(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b")])
    world.store.advance(with_fields(CLAIM, name="a"), S.FAILED, changed_at=NOW)
    if isinstance(world.store, FakeState):
        world.store.expire(NOW + FORGET_AFTER_S - 1)
        assert world.store.claim(CLUSTER, "a") is not None
        world.store.expire(NOW + FORGET_AFTER_S)
        assert world.store.claim(CLUSTER, "a") is None
        assert world.store.claim(CLUSTER, "b") is not None
    else:
        items = {item["item"]["S"]: item for item in world.items()}
        assert items["CLAIM#a"][tables.EXPIRY] == {"N": str(int(NOW) + FORGET_AFTER_S + 1)}
        assert tables.EXPIRY not in items["CLAIM#b"]


def test_faults_reach_the_caller_as_store_errors(world: World) -> None:
    world.faults.on("before", world.commit, StoreThrottled("slow down"))
    with pytest.raises(StoreThrottled):
        world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a")])
    assert world.store.read(CLUSTER, NOW).epoch == 0


def test_claims_are_moved_together(world: World) -> None:
    claims = [with_fields(CLAIM, name=f"claim-{number:02}") for number in range(99)]
    world.store.commit(CLUSTER, 0, claims)
    moved = world.store.advance_all([Move(item, S.LAUNCHING, changes(item, owner=item.name)) for item in claims])
    assert [item.launch.owner for item in moved] == [item.name for item in claims]
    assert world.rival.read(CLUSTER, NOW).claims == moved
    launched = world.store.advance_all(
        [Move(moved[0], S.LAUNCHED, changes(moved[0], instance_id="i-1")), Move(moved[1], S.FAILED)]
    )
    assert world.rival.claims(CLUSTER)[:2] == launched
    assert world.store.advance_all([]) == ()


def test_if_one_claim_has_changed_none_is_moved(world: World) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b")])
    theirs = world.rival.advance(
        with_fields(CLAIM, name="b"), S.LAUNCHING, **changes(with_fields(CLAIM, name="b"), owner="them")
    )
    for moves in (
        [Move(with_fields(CLAIM, name="a"), S.LAUNCHING), Move(with_fields(CLAIM, name="b"), S.LAUNCHING)],
        [Move(with_fields(CLAIM, name="b"), S.LAUNCHING)],
    ):
        with pytest.raises(ConditionFailed, match="claim b is no longer at version 0"):
            world.store.advance_all(moves)
    assert world.store.read(CLUSTER, NOW).claims == (with_fields(CLAIM, name="a"), theirs)


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param(
            [Move(with_fields(CLAIM, name="a"), S.LAUNCHING), Move(with_fields(CLAIM, name="a"), S.FAILED)],
            id="one claim twice",
        ),
        pytest.param(
            [Move(with_fields(CLAIM, name=f"claim-{number}"), S.LAUNCHING) for number in range(100)], id="too many"
        ),
        pytest.param(
            [Move(with_fields(CLAIM, name="a"), S.LAUNCHING), Move(with_fields(CLAIM, name="b"), S.GONE)],
            id="no such arrow",
        ),
    ],
)
def test_moves_that_cannot_be_made_together_are_refused(world: World, moves: list[Move]) -> None:
    world.store.commit(CLUSTER, 0, [with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b")])
    with pytest.raises(ConditionFailed):
        world.store.advance_all(moves)
    assert in_flight(world.store) == ["a", "b"]
    assert {item.version for item in world.store.claims(CLUSTER)} == {0}


def test_what_failed_for_one_cluster_rests_for_all_of_the_account(world: World) -> None:
    marked = world.store.mark_unavailable([ICE], NOW)
    assert world.rival.read("green", NOW).unavailable == marked


def test_many_failures_are_marked_together_each_scope_once(world: World) -> None:
    failures = [OfferingFailure(f"m5.{n}xlarge", "a", "spot", "ICE") for n in range(150)]
    [first] = world.store.mark_unavailable(failures[:1], NOW)
    marked = world.store.mark_unavailable([*failures, *failures], NOW + 10)
    assert [item.scope for item in marked] == sorted(failure.scope for failure in failures)
    assert first in marked
    assert world.store.read(CLUSTER, NOW + 20).unavailable == marked
    assert world.store.mark_unavailable([], NOW) == ()


def test_many_failures_survive_a_rival_that_marks_one_of_them(world: World) -> None:
    theirs: list[UnavailableOffering] = []
    world.faults.on("before", world.commit, lambda: theirs.extend(world.rival.mark_unavailable([ICE], NOW)))
    world.faults.on("before", "state.mark_unavailable", lambda: theirs.extend(world.rival.mark_unavailable([ICE], NOW)))
    other = OfferingFailure("m5.xlarge", "eu-west-1a", "spot", "ICE")
    marked = world.store.mark_unavailable([ICE, other], NOW + 1)
    assert marked[0] == theirs[0]
    assert marked[1].until == NOW + 181


@pytest.mark.parametrize(
    ("failure", "scope", "wait"),
    [
        (OfferingFailure("m5.large", "a", "spot", "VcpuLimitExceeded", "quota"), ("quota:standard", "*", "spot"), 900),
        (
            OfferingFailure("g5.large", "a", "spot", "MaxSpotInstanceCountExceeded", "quota"),
            ("quota:g", "*", "spot"),
            900,
        ),
        (OfferingFailure("m5.large", "a", "spot", "FleetQuotaExceeded", "quota"), ("*", "*", "spot"), 900),
        (OfferingFailure("m5.large", "a", "spot", "No", "subnet", subnet="subnet-1"), ("subnet-1", "*", "*"), 180),
        (OfferingFailure("m5.large", "a", "spot", "No", "unknown"), ("m5.large", "a", "spot"), 180),
    ],
)
def test_what_rests_is_what_failed(
    world: World, failure: OfferingFailure, scope: tuple[str, str, str], wait: int
) -> None:
    [marked] = world.store.mark_unavailable([failure], NOW)
    assert (marked.scope, marked.until) == (scope, NOW + wait)
    assert world.store.read(CLUSTER, NOW).unavailable == (marked,)


def test_an_offering_that_gives_again_is_trusted_again_step_by_step(world: World) -> None:
    [first] = world.store.mark_unavailable([ICE], NOW)
    [second] = world.store.mark_unavailable([ICE], first.until)
    assert world.store.read(CLUSTER, second.until - 1).recovering == ()
    assert world.store.read(CLUSTER, second.until).recovering == (second,)
    world.rival.relieve(second)
    [relieved] = world.store.read(CLUSTER, second.until).recovering
    assert relieved == second.relieved()
    assert relieved.failures == 1
    world.store.relieve(second)  # it has changed since
    assert world.store.read(CLUSTER, second.until).recovering == (relieved,)
    world.store.relieve(relieved)
    assert world.store.read(CLUSTER, second.until).recovering == ()


def test_addresses_of_launches_are_counted_for_a_minute(world: World) -> None:
    world.store.reserve_addresses("one", {"subnet-a": 30, "subnet-b": 10}, NOW)
    world.rival.reserve_addresses("two", {"subnet-a": 5}, NOW + 30)
    world.store.reserve_addresses("one", {"subnet-a": 20}, NOW)
    assert world.store.read("green", NOW + 40).addresses == {"subnet-a": 25}
    assert world.store.read("green", NOW + 60).addresses == {"subnet-a": 5}
    assert world.store.read("green", NOW + 90).addresses == {}


def test_no_more_is_taken_of_a_reservation_than_there_is(world: World) -> None:
    take = world.store.take_reserved
    assert take("cr-1", "one", 3, 5, NOW) == 3
    assert world.rival.take_reserved("cr-1", "two", 3, 5, NOW) == 2
    assert take("cr-1", "three", 1, 5, NOW) == 0
    assert take("cr-1", "one", 3, 5, NOW + 1) == 3  # again
    assert take("cr-2", "one", 1, 1, NOW) == 1
    assert world.store.read("green", NOW + 2).reserved == {"cr-1": {"one": 3, "two": 2}, "cr-2": {"one": 1}}
    assert take("cr-1", "later", 5, 3, NOW + 62) == 3  # describing shows by now what was taken
    assert world.store.read("green", NOW + 62).reserved == {"cr-1": {"later": 3}}


def test_of_many_that_take_of_one_reservation_at_once_none_takes_what_another_has(world: World) -> None:
    def take(number: int) -> int:
        store = world.rival if number % 2 else world.store
        return store.take_reserved("cr-1", f"token-{number}", 2, 7, NOW)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(6))) == 7


def test_a_decision_that_has_not_seen_the_freeze_commits_nothing(world: World) -> None:
    before = world.store.read(CLUSTER, NOW)
    assert before.frozen_at == world.store.frozen_at() == 0
    assert world.rival.freeze([CLUSTER, "green"], NOW) == NOW
    with pytest.raises(EpochMoved):
        world.store.commit(CLUSTER, before.epoch, [with_fields(CLAIM, name="a")])
    after = world.store.read(CLUSTER, NOW)
    assert (after.frozen_at, after.epoch) == (NOW, before.epoch + 1)
    assert world.store.read("green", NOW).frozen_at == NOW
    assert world.store.read("unknown", NOW).frozen_at == NOW
    assert world.store.claims(CLUSTER) == ()


def test_a_second_freeze_keeps_the_moment_and_moves_the_epoch_again(world: World) -> None:
    world.store.freeze([CLUSTER], NOW)
    assert world.rival.freeze([CLUSTER], NOW + 60) == NOW
    assert world.store.frozen_at() == NOW
    assert world.store.epoch(CLUSTER) == 2
    world.rival.unfreeze()
    world.rival.unfreeze()
    assert world.store.frozen_at() == world.store.read(CLUSTER, NOW).frozen_at == 0
    assert world.store.commit(CLUSTER, 2, [with_fields(CLAIM, name="a")]) == 3
