"""Tests the rest of reservations, limits, quotas and offerings, at their edges."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.instances.catalog.ec2_catalog import Catalog, TypePrices, ZonePrice
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.instances.offerings.estimated_prices import SPOT_FRACTION
from shiplap.instances.offerings.node_prices import NodePrices, Price, offerings_by_type, total_price
from shiplap.instances.offerings.offerings import incompatibility, offerings, with_all_zones
from shiplap.instances.offerings.unavailability import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    after_failure,
    launch_budget,
    quota_of,
    remembered_until,
    wait_s,
)
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NetworkInterface, RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.resources import PLENTY, Axis
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS, PoolLimits
from shiplap.scheduling.supply.reservations import SHOWN_AFTER_S, held_by, units_left
from tests.builders.claims import node_claim
from tests.builders.node_classes import node_class
from tests.builders.nodes import node
from tests.conformance.catalogues import fake_type
from tests.unit.instances.given_instances import kind

NOW = 1_700_000_000.0


# Reservations


def reserved(name: str, state: ClaimState, *, ago_s: float = 0.0, held: str = "cr-1", **fields: Any) -> Any:
    known = {"labels": {labels.RESERVATION_ID: held}, "changed_at": NOW - ago_s}
    return node_claim(name=name, state=state, **known | fields)


@pytest.mark.parametrize(
    ("state", "ago_s", "left"),
    [
        (ClaimState.PLANNED, 1000.0, 4),
        (ClaimState.LAUNCHING, 1000.0, 4),
        (ClaimState.LAUNCHED, SHOWN_AFTER_S - 1, 4),
        (ClaimState.LAUNCHED, SHOWN_AFTER_S, 5),
        (ClaimState.REGISTERED, SHOWN_AFTER_S - 1, 4),
        (ClaimState.REGISTERED, SHOWN_AFTER_S, 5),
        (ClaimState.INITIALIZED, 1.0, 5),
        (ClaimState.FAILED, 1.0, 5),
    ],
)
def test_a_claim_takes_of_a_reservation_until_ec2_counts_it(state: ClaimState, ago_s: float, left: int) -> None:
    tables: Any = [SimpleNamespace(units={"cr-1": 7, "cr-2": 1}), SimpleNamespace(units={"cr-1": 5})]
    assert units_left(tables, [reserved("c", state, ago_s=ago_s)], NOW) == {"cr-1": left, "cr-2": 1}


@pytest.mark.parametrize("counts", [(7, 5, 6), (5, 6, 7), (6, 7, 5)])
def test_of_several_counts_of_a_reservation_the_least_counts_whoever_asked_first(counts: tuple[int, ...]) -> None:
    """EC2NodeClasses ask EC2 at different moments, and each may select a reservation that no other one does."""
    tables: Any = [SimpleNamespace(units={"cr-1": count, f"cr-own-{count}": count}) for count in counts]
    claims = [reserved("a", ClaimState.PLANNED), reserved("b", ClaimState.LAUNCHING, held="cr-own-7")]
    assert units_left(tables, claims, NOW) == {"cr-1": 4, "cr-own-5": 5, "cr-own-6": 6, "cr-own-7": 6}


def test_no_more_is_taken_than_there_is_and_of_unknown_reservations_nothing() -> None:
    tables: Any = [SimpleNamespace(units={"cr-1": 1})]
    claims = [reserved(name, ClaimState.PLANNED) for name in "ab"] + [reserved("c", ClaimState.PLANNED, held="cr-9")]
    assert units_left(tables, claims, NOW) == {"cr-1": 0}


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, ("cr-1",)),
        ({"capacity_type": "reserved"}, ("cr-1",)),
        ({"capacity_type": "on-demand"}, ()),
        ({"labels": {}}, ()),
        ({"labels": {}, "requirements": (RequirementSpec(labels.RESERVATION_ID, "In", ("a", "b")),)}, ("a", "b")),
        ({"labels": {}, "requirements": (RequirementSpec(labels.RESERVATION_ID, "NotIn", ("a",)),)}, ()),
        ({"labels": {}, "requirements": (RequirementSpec(labels.ZONE, "In", ("a",)),)}, ()),
    ],
)
def test_which_reservations_a_claim_may_be_launched_into(fields: dict[str, Any], held: tuple[str, ...]) -> None:
    assert held_by(reserved("c", ClaimState.PLANNED, **fields)) == held


# Limits of NodePools


def limits(written: Mapping[str, str], **more: Any) -> PoolLimits:
    return PoolLimits(written, Axis(("cpu", "memory", "pods", HOURLY, SPOT_VCPUS)), **more)


def amounts(cpu: int, memory: int = 0, hourly: int = 0, spot: int = 0) -> Any:
    axis = Axis(("cpu", "memory", "pods", HOURLY, SPOT_VCPUS))
    return axis.vector({"cpu": cpu, "memory": memory, "pods": 5, HOURLY: hourly, SPOT_VCPUS: spot})


def test_a_pool_may_launch_as_many_nodes_as_each_of_its_limits_allows() -> None:
    pool = limits({"cpu": "10", "memory": "100", "nodes": "4"})
    assert pool.openable(amounts(3000)) == 3
    assert pool.openable(amounts(3000, 60)) == 1
    assert pool.openable(amounts(1000)) == 4
    assert pool.openable(amounts(0)) == 4
    assert limits({}).openable(amounts(1000)) == PLENTY
    pool.charge(amounts(3000, 10), 3)
    assert (pool.openable(amounts(1000)), pool.nodes_left) == (1, 1)
    pool.charge(amounts(3000, 10), 2)
    assert pool.openable(amounts(1000)) == 0, "more than all is taken"


def test_a_copy_is_independent() -> None:
    pool = limits({"cpu": "10"})
    copied = pool.copy()
    copied.charge(amounts(4000))
    assert (pool.openable(amounts(5000)), copied.openable(amounts(5000))) == (2, 1)


def test_one_more_node_may_have_just_what_is_left() -> None:
    pool = limits({"cpu": "2"})
    assert pool.allowed(np.stack([amounts(2000), amounts(2001)])).tolist() == [True, False]
    pool.charge(amounts(3000))
    assert pool.allowed(np.stack([amounts(0), amounts(1)])).tolist() == [True, False]
    assert list(pool.resources()) == ["cpu"]


def test_money_is_a_limit_like_a_resource() -> None:
    pool = limits({}, hourly_micros=1_000_000)
    assert pool.openable(amounts(1000, hourly=300_000)) == 3


@pytest.mark.parametrize(("steady", "all_nodes", "more"), [(0, 0, 0), (1, 1, 3), (1, 4, 0), (2, 5, 3), (1, 9, 0)])
def test_a_quarter_of_the_nodes_must_not_be_spot(steady: int, all_nodes: int, more: int) -> None:
    pool = limits({}, spot_bound=2500)
    pool.count(steady, steady=True, vcpus=0)
    pool.count(all_nodes - steady, steady=False, vcpus=0)
    assert pool.spot_openable() == more
    assert pool.shares
    assert limits({}).spot_openable() == limits({}, spot_bound=0).spot_openable() == PLENTY
    assert (limits({}).shares, limits({}, vcpu_bound=1).shares) == (False, True)


def test_vcpus_that_are_not_spot_make_room_for_those_that_are() -> None:
    """With a bound of 40 %, 2 vCPUs that are steady allow 3 of spot."""
    pool = limits({}, vcpu_bound=4000)
    assert pool.openable(amounts(1000, spot=1000)) == 0
    pool.count(1, steady=False, vcpus=2000)
    assert pool.openable(amounts(1000, spot=1000)) == 0
    pool.count(1, steady=True, vcpus=2000)
    assert pool.openable(amounts(1000, spot=1000)) == 3
    pool.count(-1, steady=True, vcpus=2000)
    assert pool.openable(amounts(1000, spot=1000)) == 0


def test_the_least_share_of_a_hundredth_of_a_per_cent_is_kept_exactly() -> None:
    nodes = limits({}, spot_bound=1)
    nodes.count(1, steady=True, vcpus=0)
    assert nodes.spot_openable() == 9_999
    vcpus = limits({}, vcpu_bound=1)
    vcpus.count(1, steady=True, vcpus=2000)
    assert vcpus.openable(amounts(1000, spot=2000)) == 9_999


# Quotas and waits


@pytest.mark.parametrize(
    ("name", "quota"),
    [
        ("m5.large", "standard"),
        ("c6gn.large", "standard"),
        ("im4gn.large", "standard"),
        ("is4gen.large", "standard"),
        ("mac2.metal", "standard"),
        ("z1d.large", "standard"),
        ("g5.xlarge", "g"),
        ("gr6.4xlarge", "g"),
        ("vt1.3xlarge", "g"),
        ("p5.48xlarge", "p"),
        ("x2idn.16xlarge", "x"),
        ("u-6tb1.metal", "high-memory"),
        ("u7i-12tb.224xlarge", "high-memory"),
        ("inf2.xlarge", "inf"),
        ("trn1.2xlarge", "trn"),
        ("dl1.24xlarge", "dl"),
        ("hpc7g.16xlarge", "hpc"),
        ("f2.6xlarge", "f"),
        ("q1.large", "q"),
        ("fx1.large", "f"),
        ("px1.large", "p"),
        ("xz1.large", "x"),
    ],
)
def test_families_share_the_vcpu_quotas_that_service_quotas_lists(name: str, quota: str) -> None:
    """One that is not known yet counts with those that begin with its letter."""
    assert quota_of(name) == f"quota:{quota}"


def test_an_offering_rests_three_minutes_and_twice_as_long_each_time_up_to_an_hour() -> None:
    assert [wait_s(failures) for failures in range(8)] == [180, 180, 360, 720, 1440, 2880, 3600, 3600]
    assert (FIRST_WAIT_S, LONGEST_WAIT_S) == (180, 3600)
    assert [launch_budget(failures) for failures in (0, 1, 2, 6, 7, 40)] == [100, 50, 25, 1, 1, 1]


@pytest.mark.parametrize(
    ("failures", "until_s", "after"),
    [
        (0, 0.0, (1, 180.0)),
        (2, 1.0, (2, 1.0)),
        (2, 0.0, (3, 720.0)),
        (2, -360.0, (3, 720.0)),
        (2, -361.0, (1, 180.0)),
        (0, 100.0, (1, 180.0)),
    ],
    ids=["first", "while it rests", "at once", "in time", "too late", "never failed"],
)
def test_a_failure_soon_after_a_rest_lengthens_the_next_one(
    failures: int, until_s: float, after: tuple[int, float]
) -> None:
    found = after_failure(failures, NOW + until_s, NOW)
    assert (found[0], found[1] - NOW) == after
    assert remembered_until(2, NOW) == NOW + 360


# Offerings and prices


M5 = kind("m5.large")
CATALOG = Catalog(
    region="eu-west-1",
    types=(M5,),
    zones={"m5.large": ("a", "b")},
    zone_ids={"a": "id-a"},
    prices={"m5.large": TypePrices(0.1, spot=(ZonePrice("a", 0.03),))},
)


def offered(**fields: Any) -> list[tuple[Any, ...]]:
    known: dict[str, Any] = {"compatible": True, "zones": None, "unavailable": ()}
    return [
        (item.zone, item.capacity_type, round(item.price, 9), item.available, item.price_estimated, item.reservation_id)
        for item in offerings(fields.pop("catalog", CATALOG), M5, **known | fields)
    ]


def test_every_zone_offers_what_the_type_is_sold_as() -> None:
    assert offered() == [
        ("a", "on-demand", 0.1, True, False, ""),
        ("a", "spot", 0.03, True, False, ""),
        ("b", "on-demand", 0.1, True, False, ""),
        ("b", "spot", round(0.1 * SPOT_FRACTION, 9), True, True, ""),
    ]
    assert [row[0] for row in offered(zones=["b"])] == ["b", "b"]
    assert {row[3] for row in offered(compatible=False)} == {False}
    rests = offered(unavailable={("m5.large", "a", "spot"), ("m5.xlarge", "b", "spot")})
    assert [row[3] for row in rests] == [True, False, True, True]
    unpriced = offered(catalog=structs.replace(CATALOG, prices={}))
    assert [row[4] for row in unpriced] == [True] * 4
    assert offerings(CATALOG, M5, compatible=True, zones=None, unavailable=())[0].zone_id == "id-a"
    spot_only = structs.replace(M5, supported_usage_classes=("spot",))
    sold = offerings(CATALOG, spot_only, compatible=True, zones=None, unavailable=())
    assert [(item.zone, item.capacity_type) for item in sold] == [("a", "spot"), ("b", "spot")]


def test_plain_network_interfaces_need_no_elastic_fabric() -> None:
    plain, fabric = NetworkInterface(0, 0), NetworkInterface(0, 1, "efa-only")
    wanted = node_class(network_interfaces=(plain, structs.replace(plain, device_index=1))).spec
    assert incompatibility(M5, FAMILIES["AL2023"], wanted) is None
    wanted = node_class(network_interfaces=(plain, fabric)).spec
    assert incompatibility(M5, FAMILIES["AL2023"], wanted) == "1 elastic fabric adapters are more than it supports"


@pytest.mark.parametrize(
    ("held", "fields", "available"),
    [
        ({}, {}, True),
        ({"available": 0}, {}, False),
        ({}, {"compatible": False}, False),
        ({}, {"unavailable": {("cr-1", "a", "reserved")}}, False),
        ({}, {"unavailable": {("m5.large", "a", "reserved")}}, False),
        ({}, {"unavailable": {("m5.large", "b", "reserved"), ("cr-2", "a", "reserved")}}, True),
        ({}, {"zones": ["b"]}, None),
    ],
)
def test_a_reservation_is_offered_where_it_has_room_and_does_not_rest(
    held: dict[str, int], fields: dict[str, Any], available: bool | None
) -> None:
    reservation = CapacityReservation("cr-1", "m5.large", "a", **{"available": 3} | held)
    rows = [row for row in offered(reservations=[reservation], **fields) if row[5]]
    if available is None:
        assert rows == []
    else:
        ((zone, kind_, price, is_available, _, name),) = rows
        assert (zone, kind_, name, is_available) == ("a", "reserved", "cr-1", available)
        assert 0 < price < 0.001


def test_zones_that_a_class_does_not_select_have_their_prices_and_are_not_available() -> None:
    own = structs.replace(fake_type("m5.large"), offerings=(Offering("a", "on-demand", 9.0),))
    other = structs.replace(fake_type("x9.large"), offerings=(Offering("a", "on-demand", 9.0),))
    found, unknown = with_all_zones([own, other], CATALOG)
    assert unknown == other
    assert found.offerings[0] == own.offerings[0]
    assert [(item.zone, item.capacity_type, item.price, item.available) for item in found.offerings[1:]] == [
        ("b", "on-demand", 0.1, False),
        ("b", "spot", pytest.approx(0.1 * SPOT_FRACTION), False),
    ]


OFFERED = (
    Offering("a", "on-demand", 0.2),
    Offering("b", "on-demand", 0.1, price_estimated=True),
    Offering("a", "reserved", 0.001),
    Offering("a", "reserved", 0.002),
)
PRICES = NodePrices({"pool": {"m": OFFERED}}, {"n": (Offering("a", "on-demand", 0.5), Offering("b", "on-demand", 0.4))})


@pytest.mark.parametrize(
    ("marks", "claim", "price"),
    [
        ({labels.CAPACITY_TYPE: "on-demand"}, {}, Price(0.2, False)),
        ({}, {}, Price(0.2, True)),
        ({labels.ZONE: "b", labels.CAPACITY_TYPE: "on-demand"}, {}, Price(0.1, True)),
        ({labels.ZONE: "z", labels.CAPACITY_TYPE: "on-demand"}, {}, Price(0.1, True)),
        ({labels.CAPACITY_TYPE: "reserved"}, {}, Price(0.001, False)),
        ({labels.CAPACITY_TYPE: "spot"}, {}, Price(0.0, False)),
        ({labels.INSTANCE_TYPE: "q"}, {}, Price(0.0, False)),
        ({labels.INSTANCE_TYPE: "n", labels.CAPACITY_TYPE: "on-demand"}, {}, Price(0.5, False)),
        ({labels.CAPACITY_TYPE: "on-demand"}, {"hourly": 0.3}, Price(0.3, False)),
        ({labels.ZONE: "b", labels.CAPACITY_TYPE: "on-demand"}, {"hourly": 0.1}, Price(0.1, True)),
        ({labels.ZONE: "b", labels.CAPACITY_TYPE: "on-demand"}, {"hourly": 0.3}, Price(0.3, False)),
        ({labels.ZONE: "b", labels.CAPACITY_TYPE: "on-demand"}, {"hourly": 0.100000005}, Price(0.100000005, False)),
        ({"eks.amazonaws.com/compute-type": "fargate"}, {"hourly": 0.3}, Price(0.0, False)),
    ],
)
def test_what_a_node_costs(marks: dict[str, str], claim: dict[str, Any], price: Price) -> None:
    known = {labels.NODE_POOL: "pool", labels.INSTANCE_TYPE: "m", labels.ZONE: "a"}
    assert PRICES.of(node(labels=known | marks), node_claim(name="c", **claim)) == price
    assert price.known == (price.hourly > 0)


def test_what_a_nodes_labels_do_not_say_its_claim_does() -> None:
    claim = node_claim(name="c", node_pool="pool", instance_type="m", zone="a", capacity_type="on-demand")
    assert PRICES.of(node(), claim) == PRICES.of_claim(claim) == Price(0.2, False)
    assert PRICES.of(node()) == Price(0.0, False)
    assert PRICES.listed("n") == 0.4
    assert PRICES.listed("m") == 0.0
    assert PRICES.is_estimated("pool", "m", "b", "on-demand")
    assert not PRICES.is_estimated("pool", "m", "a", "on-demand")
    assert total_price([Price(0.1), Price(0.2, True)]) == Price(pytest.approx(0.3), True)
    assert total_price([Price(0.1)]) == Price(0.1, False)


def test_of_several_catalogues_the_first_that_has_an_offering_counts() -> None:
    one = structs.replace(fake_type("m"), offerings=(Offering("a", "spot", 1.0),))
    two = structs.replace(fake_type("m"), offerings=(Offering("a", "spot", 2.0), Offering("a", "reserved", 3.0)))
    assert offerings_by_type([one], [two]) == {"m": (one.offerings[0], two.offerings[1])}
