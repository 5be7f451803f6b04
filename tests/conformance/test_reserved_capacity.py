"""Capacity reservations: counted exactly, used first, and never promised twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.buffers import buffer, template
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2
from tests.conformance.given import given, in_flight, wanted
from tests.conformance.sold_reservations import APART, held, sold


def reservations(claim: Any) -> tuple[str, ...]:
    entry = wanted(claim, labels.RESERVATION_ID)
    return entry.values if entry is not None else ()


def test_reserved_capacity_comes_first_and_is_labelled() -> None:
    plan = given(pod(cpu="1"), types=[sold("small"), sold("large", held("cr-1", 1), cpu="16")])
    assert plan.claim.launch.capacity_type == "reserved"
    assert plan.claim.launch.reservation_id == "cr-1"
    assert plan.claim.launch.instance_type == "large"
    assert plan.claim.labels[labels.CAPACITY_TYPE] == "reserved"
    assert plan.claim.labels[labels.RESERVATION_ID] == "cr-1"
    assert plan.claim.labels[labels.RESERVATION_TYPE] == "default"
    assert plan.claim.labels[labels.RESERVATION_INTERRUPTIBLE] == "false"
    assert plan.plan.hourly < 0.001


def test_no_more_claims_than_a_reservation_has_left() -> None:
    plan = given(*pods(5, cpu="1", **APART), types=[sold("only", held("cr-1", 3))], reserved_policy="Fallback")
    kinds = sorted(claim.launch.capacity_type for claim in plan.claims)
    assert kinds == ["on-demand", "on-demand", "reserved", "reserved", "reserved"]
    assert all("reserved" in claim.reasons[0] for claim in plan.claims if claim.launch.capacity_type == "on-demand")


def test_strictly_pods_wait_for_what_this_plan_gives_away() -> None:
    plan = given(*pods(3, cpu="1", **APART), types=[sold("only", held("cr-1", 2))])
    assert [claim.launch.capacity_type for claim in plan.claims] == ["reserved", "reserved"]
    message = plan.plan.unschedulable[0].message
    assert "last instances of its capacity reservations" in message
    assert "(cr-1 had 2 left)" in message
    later = given(
        *pods(3, cpu="1", **APART),
        types=[sold("only", held("cr-1", 2))],
        claims=[in_flight(claim) for claim in plan.claims],
    )
    assert later.claim.launch.capacity_type == "on-demand"


@pytest.mark.parametrize(
    ("state", "changed_at", "kind"),
    [
        (ClaimState.PLANNED, 0.0, "on-demand"),
        (ClaimState.LAUNCHING, 0.0, "on-demand"),
        (ClaimState.LAUNCHED, 999_990.0, "on-demand"),
        (ClaimState.REGISTERED, 999_990.0, "on-demand"),
        (ClaimState.LAUNCHED, 999_000.0, "reserved"),  # by now EC2 counts it itself
    ],
)
def test_claims_in_flight_hold_their_instance(state: ClaimState, changed_at: float, kind: str) -> None:
    types = [sold("only", held("cr-1", 1))]
    first = given(pod("first", cpu="1", **APART), types=types)
    claim = in_flight(first.claim, state=state, changed_at=changed_at)
    both = [pod(name, cpu="1", **APART) for name in ("first", "second")]
    second = given(*both, types=types, claims=[claim], now=1_000_000.0)
    assert second.claim_of("second").launch.capacity_type == kind


@pytest.mark.parametrize("policy", ["Strict", "Fallback"])
def test_159_a_reservation_shared_by_pools_is_counted_once(policy: str) -> None:
    pools = [pool("one", labels={"team": "one"}), pool("two", labels={"team": "two"})]
    waiting = [
        pod(f"{team}-{number}", cpu="1", selector={"team": team}, **APART)
        for team in ("one", "two")
        for number in (1, 2)
    ]
    plan = given(*waiting, pools=pools, types=[sold("only", held("cr-1", 3))], reserved_policy=policy)
    assert sum(claim.launch.capacity_type == "reserved" for claim in plan.claims) == 3
    assert len(plan.claims) == (3 if policy == "Strict" else 4)


def test_a_plan_is_unsettled_while_a_buffer_waits_for_the_last_instance_of_a_reservation() -> None:
    """The next decision, which knows that the pod has taken it, launches another node for the buffer."""
    spare = {"buffers": [buffer(replicas=1)], "templates": [template(cpu="1", **APART["spec"])]}
    types = [sold("only", held("cr-1", 1))]
    made = given(pod("first", cpu="1", **APART), types=types, reserved_policy="Strict", **spare).plan
    assert [state.missing for state in made.buffers] == [1]
    assert made.unsettled


def test_159_distinct_reservations_in_two_pools_are_counted_apart() -> None:
    pools = [
        pool("one", rule(labels.RESERVATION_ID, "In", "cr-1"), labels={"team": "one"}),
        pool("two", rule(labels.RESERVATION_ID, "In", "cr-2"), labels={"team": "two"}),
    ]
    waiting = [
        pod(f"{team}-{number}", cpu="1", selector={"team": team}, **APART)
        for team in ("one", "two")
        for number in (1, 2)
    ]
    types = [sold("only", held("cr-1", 2), held("cr-2", 2, zone=Z2))]
    plan = given(*waiting, pools=pools, types=types)
    assert sorted((claim.node_pool, reservations(claim)) for claim in plan.claims) == [
        ("one", ("cr-1",)),
        ("one", ("cr-1",)),
        ("two", ("cr-2",)),
        ("two", ("cr-2",)),
    ]


def test_159_both_reservations_of_a_type_are_listed_until_one_is_ruled_out() -> None:
    types = [sold("only", held("cr-1", 1), held("cr-2", 1, zone=Z2))]
    assert reservations(given(pod(cpu="1"), types=types).claim) == ("cr-1", "cr-2")
    zonal = given(pod(cpu="1", selector={labels.ZONE: Z2}), types=types).claim
    assert reservations(zonal) == ("cr-2",)
    both = given(*pods(2, cpu="1", **APART), types=types)
    assert sorted(map(reservations, both.claims)) == [("cr-1",), ("cr-2",)]


def test_161_pods_on_one_reserved_node_use_one_instance() -> None:
    plan = given(*pods(2, cpu="1"), types=[sold("only", held("cr-1", 1))])
    assert plan.scheduled
    assert plan.claim.launch.capacity_type == "reserved"
    more = given(*pods(2, cpu="1"), *pods(2, "more", cpu="1"), types=[sold("only", held("cr-1", 1), cpu="8")])
    assert more.scheduled
    assert more.claim.launch.capacity_type == "reserved"


def test_a_large_reservation_is_filled_and_a_small_load_moves_to_the_small_one() -> None:
    types = [sold("small", held("cr-s", 1, price=0.000001)), sold("large", held("cr-l", 1), cpu="16")]
    assert reservations(given(pod(cpu="1"), types=types).claim) == ("cr-s",)
    plan = given(*pods(12, cpu="1"), types=types)
    assert reservations(plan.claim) == ("cr-l",)


@pytest.mark.parametrize(
    "other",
    [{"reservation_type": "capacity-block"}, {"reservation_interruptible": True}],
    ids=["block", "interruptible"],
)
def test_a_small_load_moves_to_a_small_reservation_of_whatever_kind(other: dict[str, Any]) -> None:
    small = msgspec.structs.replace(held("cr-s", 1, price=0.000001), **other)
    types = [sold("small", small), sold("large", held("cr-l", 1), cpu="16")]
    claim = given(pod(cpu="1"), types=types).claim
    assert reservations(claim) == ("cr-s",)
    assert claim.instance_types == ("small",)

    asked = {labels.RESERVATION_TYPE: "default", labels.RESERVATION_INTERRUPTIBLE: "false"}
    for key, value in asked.items():
        stays = given(pod(cpu="1", selector={key: value}), types=types).claim
        assert wanted(stays, key).values == (value,)


@pytest.mark.parametrize(("small", "large"), [("cr-a", "cr-b"), ("cr-b", "cr-a")])
def test_of_two_reservations_at_a_price_a_load_takes_the_first_by_name(small: str, large: str) -> None:
    types = [sold("small", held(small, 1)), sold("large", held(large, 1), cpu="16")]
    assert reservations(given(pod(cpu="1"), types=types).claim) == ("cr-a",)


def test_a_reservation_that_a_load_has_moved_out_of_is_free_for_the_next() -> None:
    """The first is opened in the largest and moves to the cheapest, the second then to what costs less, too."""
    types = [
        sold("small", held("cr-s", 1, price=0.000001)),
        sold("medium", held("cr-m", 1, price=0.000003), cpu="8"),
        sold("large", held("cr-l", 1, price=0.000002), cpu="16"),
    ]
    plan = given(*pods(2, cpu="1", **APART), types=types)
    assert sorted(map(reservations, plan.claims)) == [("cr-l",), ("cr-s",)]
    types.append(sold("other", held("cr-n", 1, price=0.000004), cpu="8"))
    plan = given(*pods(3, cpu="1", **APART), types=types)
    assert sorted(map(reservations, plan.claims)) == [("cr-l",), ("cr-m",), ("cr-s",)], "once each"


def test_each_claim_sets_aside_one_instance_of_each_reservation_that_it_may_use() -> None:
    types = [sold("only", held("cr-1", 2), held("cr-2", 2, zone=Z2))]
    plan = given(*pods(2, cpu="1", **APART), types=types)
    assert list(map(reservations, plan.claims)) == [("cr-1", "cr-2")] * 2
    asked = {labels.RESERVATION_TYPE: ("default",), labels.RESERVATION_INTERRUPTIBLE: ("false",)}
    for claim in plan.claims:
        assert {key: wanted(claim, key).values for key in asked} == asked


def test_a_pod_may_choose_its_reservation_or_stay_off_them() -> None:
    types = [sold("only", held("cr-1", 5), held("cr-2", 5, zone=Z2, kind="capacity-block"))]
    assert reservations(given(pod(cpu="1", selector={labels.RESERVATION_ID: "cr-2"}), types=types).claim) == ("cr-2",)
    block = given(pod(cpu="1", selector={labels.RESERVATION_TYPE: "capacity-block"}), types=types).claim
    assert reservations(block) == ("cr-2",)
    off = given(pod(cpu="1", selector={labels.CAPACITY_TYPE: "on-demand"}), types=types).claim
    assert off.launch.capacity_type == "on-demand"
    assert not reservations(off)
    absent = given(pod(cpu="1", selector={labels.RESERVATION_ID: "cr-9"}), types=types)
    assert not absent.claims


def test_default_and_block_are_never_mixed_in_one_claim() -> None:
    types = [sold("only", held("cr-1", 5), held("cr-2", 5, zone=Z2, kind="capacity-block"))]
    assert len(reservations(given(pod(cpu="1"), types=types).claim)) == 1


def test_a_pool_of_reserved_capacity_alone_launches_nothing_else() -> None:
    reserved_only = pool("default", rule(labels.CAPACITY_TYPE, "In", "reserved"))
    plan = given(
        *pods(2, cpu="1", **APART),
        pools=[reserved_only],
        types=[sold("only", held("cr-1", 1))],
        reserved_policy="Fallback",
    )
    assert [claim.launch.capacity_type for claim in plan.claims] == ["reserved"]
    empty = given(pod(cpu="1"), pools=[reserved_only], types=[sold("only", held("cr-1", 0))])
    assert not empty.claims


def test_min_values_do_not_keep_a_pool_off_its_reservation() -> None:
    many = pool("default", rule(labels.INSTANCE_TYPE, "Exists", min_values=2))
    types = [sold("one", held("cr-1", 1)), sold("two")]
    plan = given(*pods(2, cpu="1", **APART), pools=[many], types=types, reserved_policy="Fallback")
    assert sorted(claim.launch.capacity_type for claim in plan.claims) == ["on-demand", "reserved"]
    assert sorted(len(claim.instance_types) for claim in plan.claims) == [1, 2]


def test_a_heavier_pool_goes_before_the_reservations_of_a_lighter_one() -> None:
    pools = [pool("heavy", rule(labels.CAPACITY_TYPE, "In", "on-demand"), weight=10), pool("light")]
    plan = given(pod(cpu="1"), pools=pools, types=[sold("only", held("cr-1", 1))])
    assert plan.claim.node_pool == "heavy"


def test_order_of_input_does_not_matter() -> None:
    types = [sold("small", held("cr-s", 2, price=0.000001)), sold("large", held("cr-l", 1), held("cr-m", 2), cpu="16")]
    waiting = [*pods(7, cpu="3"), *pods(3, "tiny", cpu="1"), *pods(2, "apart", cpu="2", **APART)]
    one = given(*waiting, types=types).plan
    other = given(*reversed(waiting), types=list(reversed(types))).plan
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


SPREAD: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": labels.ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    },
}


def per_zone(plan: Any) -> dict[str, int]:
    zones = [claim.launch.zone for claim in plan.claims for _ in claim.pods]
    return {zone: zones.count(zone) for zone in sorted(set(zones))}


@pytest.mark.parametrize("number", [3, 12, 200])
@pytest.mark.parametrize("units", [1, 2])
def test_no_zone_goes_ahead_of_one_whose_pods_wait_for_a_reservation(number: int, units: int) -> None:
    """Three pods to a node, so the pods of zone 2 wait once its reservation is used up; zone 1 waits for zone 2."""
    types = [sold("only", held("cr-1", units, zone=Z2), cpu="4")]
    plan = given(*pods(number, cpu="1", **SPREAD), types=types)
    reserved = min(3 * units, number // 2)
    assert per_zone(plan) == {Z1: min(reserved + 1, number - reserved), Z2: reserved}
    assert plan.plan.unsettled == (number > 2 * reserved + 1)


@pytest.mark.parametrize("policy", ["Strict", "Fallback"])
@pytest.mark.parametrize("number", [12, 200])
def test_a_zone_that_has_nothing_but_a_reservation_holds_a_spread_down_by_its_instances(
    number: int, policy: str
) -> None:
    pools = [
        pool("one", rule(labels.ZONE, "In", Z1), rule(labels.CAPACITY_TYPE, "In", "on-demand")),
        pool("two", rule(labels.ZONE, "In", Z2), rule(labels.CAPACITY_TYPE, "In", "reserved")),
    ]
    types = [sold("only", held("cr-1", 1, zone=Z2), cpu="4")]
    plan = given(*pods(number, cpu="1", **SPREAD), pools=pools, types=types, reserved_policy=policy)
    assert per_zone(plan) == {Z1: 4, Z2: 3}


@pytest.mark.parametrize("number", [12, 200])
def test_a_spread_goes_on_behind_a_reservation_that_is_used_up(number: int) -> None:
    types = [sold("only", held("cr-1", 1, zone=Z2), cpu="4")]
    plan = given(*pods(number, cpu="1", **SPREAD), types=types, reserved_policy="Fallback")
    assert per_zone(plan) == {Z1: number // 2, Z2: number // 2}
    assert [claim.launch.capacity_type for claim in plan.claims].count("reserved") == 1
