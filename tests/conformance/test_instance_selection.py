"""Tests the instance types that a claim lists, their order, and the type that would be launched."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.requirements import requirement
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import GPU_A, GPU_B, Z1, Z2, Z3, assorted_types, fake_type
from tests.conformance.given import given, wanted

ZONE, KIND = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
ARCH, OS, TYPE = "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"

RESTRICTIONS = {
    "free": {},
    "arch": {ARCH: "amd64"},
    "other arch": {ARCH: "arm64"},
    "os": {OS: "windows"},
    "zone": {ZONE: Z2},
    "capacity type": {KIND: "spot"},
    "zone and capacity type": {ZONE: Z1, KIND: "on-demand"},
    "all": {ZONE: Z3, KIND: "spot", ARCH: "arm64", OS: "linux"},
}


@pytest.mark.parametrize("by", ["pod", "pool"])
@pytest.mark.parametrize("labels", RESTRICTIONS.values(), ids=RESTRICTIONS.keys())
def test_the_cheapest_compatible_type_is_launched(labels: dict[str, str], by: str) -> None:
    types = assorted_types()
    rules = [rule(key, "In", value) for key, value in labels.items()] if by == "pool" else []
    outcome = given(pod(selector=labels if by == "pod" else {}), pools=[pool("default", *rules)], types=types)
    claim = outcome.claim
    assert claim.launch.price == min(offering.price for item in types for offering in item.offerings)
    by_name = {item.name: item for item in types}
    for name in claim.instance_types:
        entries = {entry.key: entry for entry in by_name[name].requirements}
        assert all(entries[key].has(value) for key, value in labels.items())


def test_the_list_is_cheapest_first_and_at_most_sixty_long() -> None:
    types = assorted_types()
    claim = given(pod(), types=types).claim
    prices = {item.name: item.offerings[0].price for item in types}
    assert len(claim.instance_types) == 60
    assert list(claim.instance_types) == sorted(claim.instance_types, key=lambda name: (prices[name], name))
    assert claim.launch.instance_type == claim.instance_types[0]
    dearest_listed = prices[claim.instance_types[-1]]
    assert sum(price < dearest_listed for price in prices.values()) <= 60


@pytest.mark.parametrize(
    ("cpu", "memory"), list(product([".1", "1", "2", "2.5", "4", "8", "16"], [".1", "1", "2", "4", "8", "16", "32"]))
)
def test_three_pods_share_one_node_of_types_that_hold_them(cpu: str, memory: str) -> None:
    types = assorted_types()
    outcome = given(*pods(3, cpu=cpu, memory=f"{memory}Gi"), types=types)
    by_name = {item.name: item for item in types}
    needs = {"cpu": 3 * parse_amount("cpu", cpu), "memory": 3 * parse_amount("memory", f"{memory}Gi")}
    for name in outcome.claim.instance_types:
        item = by_name[name]
        assert all(item.capacity[key] > amount + item.overhead[key] for key, amount in needs.items())
    assert types == assorted_types()


def test_price_decides_not_size() -> None:
    types = [
        fake_type("small", cpu="1", memory="1Gi", price=2.0),
        fake_type("medium", cpu="2", memory="2Gi", price=3.0),
        fake_type("large", cpu="4", memory="4Gi", price=1.0),
    ]
    claim = given(pod(cpu="1m", memory="1M"), types=types).claim
    assert claim.launch.instance_type == "large"
    assert claim.instance_types == ("large", "small", "medium")


def test_equal_prices_go_by_name() -> None:
    types = [fake_type(name, price=1.0) for name in ("c", "a", "b")]
    assert given(pod(), types=types).claim.instance_types == ("a", "b", "c")


def test_equal_prices_go_to_spot_as_the_launch_does() -> None:
    launch = given(pod(), types=[fake_type("a", price=1.0)]).claim.launch
    assert (launch.capacity_type, launch.zone) == ("spot", Z1)


def labelled(name: str, *entries: Any, **fields: Any) -> InstanceType:
    item = fake_type(name, **fields)
    return InstanceType(
        item.name,
        (*item.requirements, *entries),
        item.capacity,
        item.overhead,
        item.offerings,
    )


def test_min_values_on_a_number_keeps_the_types_that_satisfy_it() -> None:
    types = [labelled(f"t{n}", requirement("numeric", "In", (str(n),)), cpu=str(n)) for n in (2, 3, 4)]
    claim = given(pod(), pools=[pool("default", rule("numeric", "Gt", "2", min_values=2))], types=types).claim
    assert claim.instance_types == ("t3", "t4")
    kept = wanted(claim, "numeric")
    assert kept is not None
    assert kept.min_values == 2
    outcome = given(pod(), pools=[pool("default", rule("numeric", "Gt", "3", min_values=2))], types=types)
    assert "minValues" in outcome.left("pod").message


def test_min_values_below_a_number() -> None:
    types = [labelled(f"t{n}", requirement("numeric", "In", (str(n),)), cpu=str(n)) for n in (2, 3, 4)]
    claim = given(pod(), pools=[pool("default", rule("numeric", "Lt", "4", min_values=2))], types=types).claim
    assert claim.instance_types == ("t2", "t3")
    assert given(pod(), pools=[pool("default", rule("numeric", "Lt", "3", min_values=2))], types=types).claims == ()


def test_more_min_values_than_types_schedules_nothing() -> None:
    types = [fake_type(f"t{n}") for n in range(10)]
    outcome = given(pod(), pools=[pool("default", rule(TYPE, "Exists", min_values=11))], types=types)
    assert outcome.claims == ()
    assert "minValues" in outcome.left("pod").message


def test_min_values_best_effort_is_lowered_and_marked() -> None:
    types = [fake_type(f"t{n}") for n in range(10)]
    claim = given(
        pod(), pools=[pool("default", rule(TYPE, "Exists", min_values=11))], types=types, min_values_policy="BestEffort"
    ).claim
    assert claim.annotations["karpenter.sh/nodeclaim-min-values-relaxed"] == "true"
    kept = wanted(claim, TYPE)
    assert kept is not None
    assert kept.min_values == 10


def test_min_values_on_two_keys_hold_on_every_claim() -> None:
    family = "karpenter/numerical-value"
    types = [
        labelled(f"{name}-{n}", requirement(family, "In", (name,)), cpu=str(n), memory=f"{n}Gi", price=float(n))
        for name in ("a", "b", "c")
        for n in (1, 2, 4, 8)
    ]
    rules = [rule(TYPE, "Exists", min_values=3), rule(family, "Exists", min_values=2)]
    outcome = given(*pods(6, cpu="900m"), pools=[pool("default", *rules)], types=types)
    assert outcome.scheduled
    for claim in outcome.claims:
        assert len(claim.instance_types) >= 3
        assert len({name.partition("-")[0] for name in claim.instance_types}) >= 2


def test_min_values_stops_a_claim_from_outgrowing_its_types() -> None:
    types = [fake_type(f"t{n}", cpu=str(n), memory="64Gi", pods="100") for n in (4, 8, 16)]
    rules = [rule(TYPE, "Exists", min_values=2)]
    outcome = given(*pods(15, cpu="1"), pools=[pool("default", *rules)], types=types)
    assert outcome.scheduled
    assert all(len(claim.instance_types) >= 2 for claim in outcome.claims)
    assert max(claim.requests["cpu"] for claim in outcome.claims) <= 7900


def test_a_short_list_keeps_min_values_before_price() -> None:
    family = "karpenter/family"
    types = [labelled(f"a{n}", requirement(family, "In", ("a",)), price=1.0 + n / 100) for n in range(80)]
    types.append(labelled("z", requirement(family, "In", ("z",)), price=9.0))
    claim = given(pod(), pools=[pool("default", rule(family, "Exists", min_values=2))], types=types).claim
    assert len(claim.instance_types) == 60
    assert claim.instance_types[-1] == "z"
    impossible = given(
        pod(), pools=[pool("default", rule(TYPE, "Exists", min_values=50))], types=types, max_instance_types=40
    )
    assert "minValues" in impossible.left("pod").message


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        (ARCH, "amd64", "arm64"),
        (OS, "linux", "windows"),
        (ZONE, Z1, Z2),
        (KIND, "spot", "on-demand"),
        (TYPE, "small-instance-type", "default-instance-type"),
    ],
)
def test_opposite_wishes_need_two_nodes(key: str, first: str, second: str) -> None:
    outcome = given(pod("a", selector={key: first}), pod("b", selector={key: second}))
    assert outcome.scheduled
    assert outcome.home("a") != outcome.home("b")
    for name, value in (("a", first), ("b", second)):
        found = wanted(outcome.claim_of(name), key)
        assert found is not None
        assert found.values == (value,)


def test_gpus_of_two_vendors_need_two_nodes_and_no_type_has_both() -> None:
    outcome = given(pod("a", requests={GPU_A: "1"}), pod("b", requests={GPU_B: "1"}))
    assert outcome.claim_of("a").instance_types == ("gpu-vendor-instance-type",)
    assert outcome.claim_of("b").instance_types == ("gpu-vendor-b-instance-type",)
    both = given(pod(requests={GPU_A: "1", GPU_B: "1"}))
    assert both.claims == ()
    assert "no instance type has enough resources" in both.left("pod").message


def test_only_available_offerings_are_bought() -> None:
    types = [
        fake_type("cheap", price=1.0, unavailable=[("spot", Z1), ("spot", Z2), ("on-demand", Z1), ("on-demand", Z2)]),
        fake_type("dear", price=2.0),
    ]
    claim = given(pod(), types=types).claim
    assert (claim.launch.instance_type, claim.launch.zone, claim.launch.capacity_type) == ("cheap", Z3, "on-demand")
    elsewhere = given(pod(selector={ZONE: Z1}), types=types).claim
    assert elsewhere.instance_types == ("dear",)


def test_a_type_without_any_offering_left_is_named_as_the_nearest_miss() -> None:
    types = [fake_type("only", unavailable=[(kind, zone) for kind, zone in (("spot", Z1), ("spot", Z2))])]
    outcome = given(pod(selector={KIND: "spot"}), types=types)
    record = outcome.left("pod")
    assert record.message.startswith("only in pool default: would hold the pod, but none of its offerings is available")
    assert record.nearest is not None
    assert (record.nearest.instance_type, record.nearest.short) == ("only", 0)
