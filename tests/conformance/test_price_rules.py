"""Tests the money rules of NodePools: dollars per hour, ceilings, discounts, and how much may be spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given, in_flight, wanted
from tests.conformance.priced_pools import ON_DEMAND_ONLY, priced
from tests.conformance.sold_reservations import APART


def dollar(name: str = "dollar", price: float = 1.0, **fields: Any) -> Any:
    """A type at a round price, on demand unless said otherwise."""
    return fake_type(name, price=price, **{"offerings": ON_DEMAND_ONLY, **fields})


def kinds(plan: Any) -> list[str]:
    return sorted(claim.launch.capacity_type for claim in plan.claims)


def test_a_pool_launches_for_no_more_dollars_than_its_limit() -> None:
    plan = given(*pods(5, cpu="1", **APART), pools=[priced(max_hourly_price="3.5")], types=[dollar()])
    assert len(plan.claims) == 3
    assert len(plan.plan.unschedulable) == 2
    assert "USD per hour 0.5 of 3.5 left" in plan.plan.unschedulable[0].message


def test_nodes_and_claims_in_flight_cost_what_they_are_known_to_cost() -> None:
    pools, types = [priced(max_hourly_price="3")], [dollar()]
    marks = {labels.INSTANCE_TYPE: "dollar", labels.ZONE: Z1, labels.CAPACITY_TYPE: "on-demand"}
    standing = node("standing", cpu="0", pool="default", labels=marks)
    first = given(pod("first", cpu="1"), pools=pools, types=types)
    flying = in_flight(first.claim, state=ClaimState.LAUNCHED, instance_type="dollar", hourly=0.75)
    waiting = [pod("first", cpu="1", **APART), *pods(4, cpu="1", **APART)]
    plan = given(*waiting, pools=pools, types=types, nodes=[standing], claims=[flying])
    assert len(plan.claims) == 1, "1 for the node, 0.75 for the claim, 1 for the new one"


def test_a_claim_in_flight_counts_with_the_dearest_type_that_it_may_become() -> None:
    pools, types = [priced(max_hourly_price="3")], [dollar(), dollar("two", 2.0, cpu="4")]
    first = given(pod("first", cpu="1"), pools=pools, types=types)
    assert first.claim.instance_types == ("dollar", "two")
    flying = in_flight(first.claim, state=ClaimState.LAUNCHING, hourly=first.claim.launch.price)
    plan = given(
        pod("first", cpu="1", **APART), pod("next", cpu="1", **APART), pools=pools, types=types, claims=[flying]
    )
    assert [claim.instance_types for claim in plan.claims] == [("dollar",)]


def test_a_node_of_unknown_price_counts_at_the_estimate_and_a_fifth() -> None:
    marks = {labels.INSTANCE_TYPE: "gone", labels.ZONE: Z1, labels.CAPACITY_TYPE: "on-demand"}
    standing = node("standing", cpu="0", pool="default", capacity={"cpu": "16"}, labels=marks)
    waiting = pods(3, cpu="1", **APART)
    plan = given(*waiting, pools=[priced(max_hourly_price="3.5")], types=[dollar()], nodes=[standing])
    assert len(plan.claims) == 2, "16 vCPUs at 0.05 and a fifth more are 0.96"
    assert "USD per hour 0.54 of 3.5 left" in plan.plan.unschedulable[0].message


def test_a_claim_gives_up_dear_types_before_a_pool_is_refused() -> None:
    types = [dollar(), dollar("two", 2.0, cpu="8")]
    plan = given(*pods(3, cpu="1", **APART), pools=[priced(max_hourly_price="3")], types=types)
    assert plan.scheduled
    assert [claim.instance_types for claim in plan.claims] == [("dollar",)] * 3


def test_another_pool_takes_what_the_dollars_do_not_cover() -> None:
    pools = [priced("first", weight=10, max_hourly_price="2"), pool("second")]
    plan = given(*pods(5, cpu="1", **APART), pools=pools, types=[dollar()])
    assert sorted(claim.node_pool for claim in plan.claims) == ["first", "first", "second", "second", "second"]
    assert "exceed limits" in next(claim for claim in plan.claims if claim.node_pool == "second").reasons[0]


def test_nothing_is_bought_above_a_ceiling_per_node_or_per_vcpu() -> None:
    types = [dollar("small", 1.0, cpu="2"), dollar("large", 1.5, cpu="16", memory="16Gi")]
    assert given(pod(cpu="1"), pools=[priced()], types=types).claim.instance_types == ("small", "large")
    per_node = given(pod(cpu="1"), pools=[priced(max_node_price="1")], types=types)
    assert per_node.claim.instance_types == ("small",)
    per_vcpu = given(pod(cpu="1"), pools=[priced(max_vcpu_price="0.1")], types=types)
    assert per_vcpu.claim.instance_types == ("large",)
    assert not given(pod(cpu="1"), pools=[priced(max_node_price="0.5")], types=types).claims


def test_a_discount_on_one_way_to_buy_can_make_it_the_cheaper_one() -> None:
    types = [
        fake_type("a", price=1.0, offerings=(("on-demand", Z1),)),
        fake_type("b", price=0.8, offerings=(("spot", Z1),)),
    ]
    assert given(pod(cpu="1"), pools=[priced()], types=types).claim.launch.instance_type == "b"
    plan = given(pod(cpu="1"), pools=[priced(on_demand_discount="0.28")], types=types)
    assert (plan.claim.launch.instance_type, round(plan.plan.hourly, 4)) == ("a", 0.72)
    ceiling = given(pod(cpu="1"), pools=[priced(on_demand_discount="0.28", max_node_price="0.75")], types=types)
    assert ceiling.claim.instance_types == ("a",), "a ceiling looks at what is paid"


@pytest.mark.parametrize(
    ("share", "number", "on_demand"), [("0%", 5, 0), ("30%", 10, 3), ("50%", 5, 3), ("100%", 4, 4), ("33.34%", 3, 2)]
)
def test_a_share_of_nodes_is_never_spot(share: str, number: int, on_demand: int) -> None:
    types = [fake_type("both", price=1.0)]
    plan = given(*pods(number, cpu="1", **APART), pools=[priced(min_on_demand=share)], types=types)
    assert plan.scheduled
    assert kinds(plan).count("on-demand") == on_demand


def test_the_share_counts_nodes_and_claims_that_are_there() -> None:
    pools, types = [priced(min_on_demand="50%")], [fake_type("both", price=1.0)]
    steady = [
        node(f"steady-{number}", cpu="0", pool="default", labels={labels.CAPACITY_TYPE: "on-demand"})
        for number in range(3)
    ]
    plan = given(*pods(4, cpu="1", **APART), pools=pools, types=types, nodes=steady)
    assert kinds(plan) == ["on-demand", "spot", "spot", "spot"]
    spot = node("spot", cpu="0", pool="default", labels={labels.CAPACITY_TYPE: "spot"})
    plan = given(*pods(3, cpu="1", **APART), pools=pools, types=types, nodes=[spot])
    assert kinds(plan) == ["on-demand", "on-demand", "spot"]


def test_pods_that_want_spot_alone_wait_while_its_share_is_used_up() -> None:
    types = [fake_type("both", price=1.0)]
    waiting = pods(2, cpu="1", selector={labels.CAPACITY_TYPE: "spot"}, **APART)
    plan = given(*waiting, pools=[priced(min_on_demand="50%")], types=types)
    assert not plan.claims
    expected = 'too large a share of nodepool "default" (at least 50 % must not be; 0 of 0 are not with this plan)'
    assert expected in plan.plan.unschedulable[0].message


def test_without_on_demand_to_be_had_the_share_still_holds() -> None:
    types = [fake_type("both", price=1.0, unavailable=(("on-demand", Z1), ("on-demand", Z2), ("on-demand", Z3)))]
    assert not given(pod(cpu="1"), pools=[priced(min_on_demand="50%")], types=types).claims


def test_a_pool_of_on_demand_alone_keeps_any_share() -> None:
    pools = [priced("default", rule(labels.CAPACITY_TYPE, "In", "on-demand"), min_on_demand="100%")]
    plan = given(*pods(3, cpu="1", **APART), pools=pools, types=[fake_type("both", price=1.0)])
    assert kinds(plan) == ["on-demand"] * 3


def test_order_of_input_does_not_matter() -> None:
    pools = [priced(min_on_demand="40%", max_hourly_price="9"), pool("other", weight=0)]
    types = [fake_type("both", price=1.0), fake_type("more", price=1.5, cpu="16", memory="16Gi", pods="50")]
    waiting = [*pods(7, cpu="3"), *pods(5, "apart", cpu="1", **APART)]
    one = given(*waiting, pools=pools, types=types).plan
    other = given(*reversed(waiting), pools=list(reversed(pools)), types=list(reversed(types))).plan
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


def v_cpus(plan: Outcome, types: Sequence[InstanceType]) -> tuple[int, int]:
    """The least vCPUs of a plan's claims that are certain not to be spot, and the most that may be, in thousandths."""
    cpus = {item.name: item.capacity["cpu"] for item in types}
    steady = spot = 0
    for claim in plan.claims:
        kinds = wanted(claim, labels.CAPACITY_TYPE)
        sizes = [cpus[name] for name in claim.instance_types]
        if kinds is not None and "spot" not in kinds.values:
            steady += min(sizes)
        else:
            spot += max(sizes)
    return steady, spot


@pytest.mark.parametrize("share", ["10%", "30%", "50%", "75%", "100%"])
@pytest.mark.parametrize("sizes", [["1"] * 9, ["7", "1", "3", "1", "13", "2"], ["15"] * 4])
def test_a_share_of_vcpus_is_never_spot_whichever_types_are_launched(share: str, sizes: list[str]) -> None:
    types = [
        fake_type("small", price=1.0, cpu="4", memory="8Gi"),
        fake_type("middle", price=1.8, cpu="8", memory="16Gi"),
        fake_type("large", price=3.5, cpu="16", memory="32Gi"),
    ]
    waiting = [pod(f"p{place}", cpu=cpu, **APART) for place, cpu in enumerate(sizes)]
    plan = given(*waiting, pools=[priced(min_on_demand_vcpus=share)], types=types)
    assert plan.scheduled
    steady, spot = v_cpus(plan, types)
    assert steady * 100 >= int(share[:-1]) * (steady + spot)
    assert spot > 0 or share in ("75%", "100%") or sizes[0] == "15"


def test_the_share_of_vcpus_counts_nodes_that_are_there() -> None:
    pools, types = [priced(min_on_demand_vcpus="50%")], [fake_type("both", price=1.0, cpu="4")]
    steady = node("steady", cpu="12", pool="default", labels={labels.CAPACITY_TYPE: "on-demand"}, cordoned=True)
    plan = given(*pods(4, cpu="3", **APART), pools=pools, types=types, nodes=[steady])
    assert sorted(kinds(plan)) == ["on-demand", "spot", "spot", "spot"]
    spot = node("spot", cpu="12", pool="default", labels={labels.CAPACITY_TYPE: "spot"}, cordoned=True)
    plan = given(*pods(4, cpu="3", **APART), pools=pools, types=types, nodes=[spot])
    assert kinds(plan) == ["on-demand"] * 4


def test_claims_in_flight_count_with_what_they_may_become() -> None:
    pools = [priced(min_on_demand_vcpus="50%")]
    types = [fake_type("small", price=1.0, cpu="4"), fake_type("large", price=3.0, cpu="16", memory="32Gi")]
    both = [pod(name, cpu="3", **APART) for name in ("first", "other")]
    first = given(both[0], pools=pools, types=types)
    assert kinds(first) == ["on-demand"]
    one = given(*both, pools=pools, types=types, claims=[in_flight(first.claim)])
    assert (kinds(one), one.claim.instance_types) == (["spot"], ("small",)), "four vCPUs are certain"
    launched = in_flight(first.claim, state=ClaimState.LAUNCHED, instance_type="large", capacity_type="on-demand")
    one = given(*both, pools=pools, types=types, claims=[launched])
    assert (kinds(one), one.claim.instance_types) == (["spot"], ("small", "large"))


def test_both_shares_hold_together() -> None:
    pools = [priced(min_on_demand="50%", min_on_demand_vcpus="10%")]
    plan = given(*pods(6, cpu="1", **APART), pools=pools, types=[fake_type("both", price=1.0)])
    assert kinds(plan).count("on-demand") == 3


def test_pods_that_want_spot_alone_wait_for_vcpus_that_are_not() -> None:
    waiting = pods(1, cpu="1", selector={labels.CAPACITY_TYPE: "spot"})
    plan = given(*waiting, pools=[priced(min_on_demand_vcpus="20%")], types=[fake_type("both", price=1.0)])
    assert not plan.claims
    assert "vCPUs of spot 0 of 0 left" in plan.plan.unschedulable[0].message
