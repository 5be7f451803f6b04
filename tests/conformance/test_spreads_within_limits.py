"""A limit decides whether a pod gets a node, never where its siblings go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given, in_flight

ZONE, KIND, RACK = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "example.com/rack"
APP = {"app": "web"}
SIZES = [fake_type(f"size-{cpu}", cpu=str(cpu), memory=f"{4 * cpu}Gi", pods=str(10 * cpu)) for cpu in (2, 4, 8, 16, 32)]


def spread(number: int, key: str = ZONE, *, cpu: str, when: str = "DoNotSchedule", **more: Any) -> list[Pod]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": APP},
        **more,
    }
    return pods(number, "web", cpu=cpu, metadata={"labels": APP}, spec={"topologySpreadConstraints": [constraint]})


def counts(outcome: Outcome, key: str = ZONE) -> list[int]:
    """Return the number of pods on new nodes in each domain, ascending."""
    found: dict[tuple[str, ...], int] = {}
    for claim in outcome.claims:
        line = next(entry for entry in claim.requirements if entry.key == key)
        found[line.values] = found.get(line.values, 0) + len(claim.pods)
    return sorted(found.values())


@pytest.mark.parametrize("limit", [{"cpu": str(cpu)} for cpu in (6, 7, 12, 32, 33, 64, 95, 96, 100, 1000)])
def test_three_replicas_are_in_three_zones_whatever_the_limit(limit: dict[str, str]) -> None:
    outcome = given(*spread(3, cpu="1"), pools=[pool(limits=limit)], types=SIZES)
    assert outcome.scheduled
    assert counts(outcome) == [1, 1, 1]


@pytest.mark.parametrize(
    "limit", [{"memory": "96Gi"}, {"memory": "100Gi"}, {"nodes": "3"}, {"cpu": "24", "nodes": "9"}]
)
@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_a_limit_that_the_nodes_fit_into_changes_no_zone(limit: dict[str, str], when: str) -> None:
    outcome = given(*spread(30, cpu="500m", when=when), pools=[pool(limits=limit)], types=SIZES)
    assert outcome.scheduled
    assert counts(outcome) == [10, 10, 10]


@pytest.mark.parametrize(("limit", "placed"), [("4", 2), ("3", 1), ("2", 1), ("1", 0)])
def test_pods_for_which_a_limit_leaves_no_node_wait_and_the_others_stay_level(limit: str, placed: int) -> None:
    outcome = given(*spread(6, cpu="1"), pools=[pool(limits={"cpu": limit})], types=SIZES)
    assert counts(outcome) == [1] * placed
    assert len(outcome.plan.unschedulable) == 6 - placed


def test_a_zone_that_a_full_pool_allows_holds_down_those_of_the_others() -> None:
    """Nodes of the heavier pool are in zone 1 alone; the lighter one could go on in zone 2."""
    one = pool("one", rule(ZONE, "In", Z1), limits={"nodes": "1"}, weight=5)
    two = pool("two", rule(ZONE, "In", Z2))
    single = [fake_type("single", cpu="2", pods="1")]
    outcome = given(*spread(6, cpu="1"), pools=[one, two], types=single)
    assert counts(outcome) == [1, 2]


@pytest.mark.parametrize(
    ("key", "rules"),
    [
        (KIND, [rule(KIND, "In", "spot", "on-demand")]),
        (RACK, [rule(RACK, "In", "r1", "r2")]),
    ],
)
def test_the_domains_of_other_labels_do_not_depend_on_a_limit_either(key: str, rules: Sequence[Any]) -> None:
    for cpu in (4, 8, 32, 64, 500):
        outcome = given(*spread(8, key, cpu="300m"), pools=[pool("p", *rules, limits={"cpu": str(cpu)})], types=SIZES)
        assert outcome.scheduled
        assert counts(outcome, key) == [4, 4], cpu


def test_a_full_pool_keeps_pods_waiting_beside_nodes_with_room() -> None:
    """The node with room is one above the others already; its zone may not be filled because theirs get no node."""
    waiting = spread(3, cpu="100m")
    standing = pods(1, "old", node="n1", metadata={"labels": APP})
    outcome = given(
        *waiting, *standing, nodes=[node("n1", labels={ZONE: Z1})], pools=[pool(limits={"cpu": "1"})], types=SIZES
    )
    assert len(outcome.plan.unschedulable) == 3


def test_claims_in_flight_take_their_part_of_a_limit_and_leave_the_zones_level() -> None:
    first = given(*spread(2, cpu="1"), pools=[pool(limits={"cpu": "6"})], types=SIZES)
    later = given(
        *spread(3, cpu="1"),
        claims=[in_flight(claim) for claim in first.claims],
        pools=[pool(limits={"cpu": "6"})],
        types=SIZES,
    )
    zones = {zone for claim in (*first.claims, *later.claims) for zone in (claim.launch.zone,)}
    assert zones == {Z1, Z2, Z3}
    assert not later.plan.unschedulable


def test_lists_of_types_lose_no_more_than_the_limit_asks_for() -> None:
    outcome = given(*spread(3, cpu="1"), pools=[pool(limits={"cpu": "24"})], types=SIZES)
    assert [claim.instance_types for claim in outcome.claims] == [("size-2", "size-4", "size-8")] * 3


@pytest.mark.parametrize(
    "short", [{"cpu": "24"}, {"cpu": "5"}, {"nodes": "2"}, {"nodes": "3"}], ids=["fits", "too few", "nodes", "exact"]
)
def test_a_limit_with_room_shortens_no_list_beside_one_that_is_short(short: dict[str, str]) -> None:
    """The types of one size have different amounts of memory, of which there is plenty."""
    both = [*SIZES, *(fake_type(f"wide-{cpu}", cpu=str(cpu), memory=f"{8 * cpu}Gi", price=cpu) for cpu in (2, 4, 8))]

    def listed(limits: dict[str, str]) -> list[tuple[str, ...]]:
        outcome = given(*spread(3, cpu="1"), pools=[pool(limits=limits)], types=both)
        return [claim.instance_types for claim in outcome.claims]

    assert listed(short | {"memory": "100Ti"}) == listed(short)
    assert any(name.startswith("wide") for names in listed(short) for name in names)


def test_pods_beyond_the_limit_of_a_heavier_pool_go_on_level_in_a_lighter_one() -> None:
    heavy, light = pool("heavy", limits={"nodes": "4"}, weight=9), pool("light", limits={"cpu": "100"})
    single = [fake_type("single", cpu="2", pods="1")]
    outcome = given(*spread(9, cpu="1"), pools=[heavy, light], types=single)
    assert outcome.scheduled
    assert counts(outcome) == [3, 3, 3]
    assert sorted(claim.node_pool for claim in outcome.claims) == ["heavy"] * 4 + ["light"] * 5


@pytest.mark.parametrize("number", [1, 4])
def test_a_zone_that_is_sold_out_is_no_domain_and_the_plan_says_so(number: int) -> None:
    gone = [(kind, Z3) for kind in ("spot", "on-demand")]
    offerings = [(kind, zone) for kind in ("spot", "on-demand") for zone in (Z1, Z2, Z3)]
    types = [fake_type("single", cpu="2", pods="1", offerings=offerings, unavailable=gone)]
    outcome = given(*spread(number, cpu="1"), types=types)
    assert outcome.scheduled
    words = f"topology spread over {ZONE} does without {Z3}: every suitable offering is sold out there"
    assert all(claim.reasons == (words,) for claim in outcome.claims)
    full = given(*spread(5, cpu="1"), types=types, pools=[pool(limits={"nodes": "2"})])
    assert words in full.left("web-4").message


def test_plans_that_lost_no_domain_say_nothing() -> None:
    offerings = [("on-demand", zone) for zone in (Z1, Z2, Z3)]
    types = [
        fake_type("a", cpu="2", offerings=offerings, unavailable=[("on-demand", Z3)]),
        fake_type("b", cpu="2", offerings=offerings),
    ]
    outcome = given(*spread(3, cpu="1"), *pods(1, "free"), types=types)
    assert not any(claim.reasons for claim in outcome.claims)


@pytest.mark.parametrize("limit", [48, 50, 63])
def test_each_list_that_a_limit_shortens_holds_the_load_of_its_own_claim(limit: int) -> None:
    """One needs CPUs, the other memory, and a port keeps them apart: with all their types they exceed the limit."""
    waiting = [pod("a", cpu="14", memory="1Gi", ports=[80]), pod("b", cpu="1", memory="100Gi", ports=[80])]
    outcome = given(*waiting, pools=[pool(limits={"cpu": str(limit)})], types=SIZES)
    lists = {claim.pods[0].name: claim.instance_types for claim in outcome.claims}
    assert lists == {"a": ("size-16",), "b": ("size-32",)}


@pytest.mark.parametrize("limit", [20, 24, 28, 40])
def test_lists_that_limits_shorten_hold_what_each_claim_has(limit: int) -> None:
    """Claims of one group with different loads: a full one and one with what was left over."""
    outcome = given(*pods(5, "web", cpu="3500m"), pools=[pool(limits={"cpu": str(limit)})], types=SIZES)
    sizes = {item.name: item.capacity["cpu"] for item in SIZES}
    assert outcome.claims
    for claim in outcome.claims:
        assert all(sizes[name] >= claim.requests["cpu"] for name in claim.instance_types)
    assert sum(max(sizes[name] for name in claim.instance_types) for claim in outcome.claims) <= limit * 1000
