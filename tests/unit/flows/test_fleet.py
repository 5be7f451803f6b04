"""Tests the offerings that a claim's fleet may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from shiplap.flows.planning.planned_launches import FleetOptions, fleet_options
from shiplap.flows.schedule.launch import cheapest_types, with_leases
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.supply.existing_nodes import assumed_allocatable
from tests.builders.claims import node_claim, with_fields
from tests.integration.flows.stage import Stage
from tests.unit.flows.sold_types import ZONES, kind

BOTH = (labels.ON_DEMAND, labels.SPOT)


def claim(
    types: Sequence[InstanceType],
    *rules: RequirementSpec,
    requests: dict[str, int] | None = None,
    relies_on_estimate: tuple[str, ...] = (),
) -> NodeClaim:
    return node_claim(
        cluster="c",
        name="n",
        node_pool="p",
        node_class="d",
        instance_types=tuple(item.name for item in types),
        requirements=rules,
        requests=requests or {"cpu": 1000, "memory": 5000},
        relies_on_estimate=relies_on_estimate,
    )


def options(types: Sequence[InstanceType], *rules: RequirementSpec, zones: Sequence[str] = ZONES) -> FleetOptions:
    return fleet_options(claim(types, *rules), {item.name: item for item in types}, zones)


def taken(found: FleetOptions) -> list[tuple[str, str]]:
    return [(override.instance_type, override.zone) for override in found.overrides]


def rule(key: str, operator: str, *values: str, min_values: int | None = None) -> RequirementSpec:
    return RequirementSpec(key, operator, values, min_values)


def test_the_cheapest_come_first_and_carry_what_a_launch_template_needs() -> None:
    found = options((kind("m.large", 0.2), kind("c.large", 0.1)))
    assert found.capacity_type == labels.ON_DEMAND
    assert taken(found) == [("c.large", "a"), ("c.large", "b"), ("m.large", "a"), ("m.large", "b")]
    first = found.overrides[0]
    assert (first.price, first.ami, first.max_pods, first.kubelet_hash) == (0.1, "ami-1", 29, "k")


def test_only_types_of_the_launch_list_that_are_still_sold_count() -> None:
    types = (kind("m.large", 0.2), kind("c.large", 0.1))
    asked = with_fields(claim(types), instance_types=("m.large", "gone.large"))
    assert taken(fleet_options(asked, {item.name: item for item in types}, ZONES)) == [
        ("m.large", "a"),
        ("m.large", "b"),
    ]


def test_zones_need_a_subnet_and_must_be_allowed_by_name_or_id() -> None:
    types = (kind("m.large", 0.2),)
    assert taken(options(types, zones=("b", "c"))) == [("m.large", "b")]
    assert taken(options(types, rule(labels.ZONE, "In", "a"))) == [("m.large", "a")]
    assert taken(options(types, rule(labels.ZONE_ID, "NotIn", "id-a"))) == [("m.large", "b")]


def test_offerings_that_are_unavailable_are_left_out() -> None:
    known = kind("m.large", 0.2)
    offerings = (
        Offering("a", labels.ON_DEMAND, 0.2, available=False),
        Offering("a", labels.RESERVED, 0.0, available=False, reservation_id="cr-1"),
        Offering("b", labels.ON_DEMAND, 0.2),
    )
    assert taken(options((structs.replace(known, offerings=offerings),))) == [("m.large", "b")]


@pytest.mark.parametrize(
    ("rules", "capacity_type"),
    [
        ((), labels.SPOT),
        ((rule(labels.CAPACITY_TYPE, "In", *BOTH),), labels.SPOT),
        ((rule(labels.CAPACITY_TYPE, "In", labels.ON_DEMAND),), labels.ON_DEMAND),
        ((rule(labels.CAPACITY_TYPE, "NotIn", labels.SPOT),), labels.ON_DEMAND),
    ],
)
def test_spot_is_preferred_where_it_is_allowed(rules: tuple[RequirementSpec, ...], capacity_type: str) -> None:
    assert options((kind("m.large", 0.2, 0.1),), *rules).capacity_type == capacity_type


def test_spot_dearer_than_the_cheapest_on_demand_offering_is_left_out() -> None:
    types = (kind("m.large", 0.2, 0.15), kind("c.large", 0.1, 0.1), kind("r.large", 0.3, 0.11))
    assert {name for name, _ in taken(options(types))} == {"c.large"}
    only_dear = (kind("m.large", 0.1, 0.2),)
    assert options(only_dear).capacity_type == labels.ON_DEMAND
    spot_only = rule(labels.CAPACITY_TYPE, "In", labels.SPOT)
    assert options(only_dear, spot_only).capacity_type == labels.SPOT


def test_exotic_hardware_is_left_out_while_plain_types_remain() -> None:
    exotic = (kind("m.metal", 0.1), kind("m.metal-24xl", 0.1), kind("g.xlarge", 0.1, **{"nvidia.com/gpu": 1}))
    plain = kind("m.large", 0.5)
    assert {name for name, _ in taken(options((*exotic, plain)))} == {"m.large"}
    assert {name for name, _ in taken(options(exotic))} == {"m.metal", "m.metal-24xl", "g.xlarge"}


def test_min_values_keep_the_whole_choice_or_refuse_it() -> None:
    family = "karpenter.k8s.aws/instance-family"
    types = (kind("m.large", 0.2, 0.3), kind("c.metal", 0.1, 0.1))
    two = rule(family, "Exists", min_values=2)
    assert {name for name, _ in taken(options(types, two))} == {"m.large", "c.metal"}
    assert options(types[:1], two).overrides == ()


def test_values_of_other_keys_are_no_choice() -> None:
    kinds = [
        structs.replace(known, requirements=(*known.requirements, requirement(labels.ARCH, "In", (arch,))))
        for known, arch in ((kind("m.large", 0.2), "amd64"), (kind("m.xlarge", 0.3), "arm64"))
    ]
    assert options(kinds, rule("karpenter.k8s.aws/instance-family", "Exists", min_values=2)).overrides == ()
    assert len(options(kinds, rule(labels.ARCH, "Exists", min_values=2)).overrides) == 4


@pytest.mark.parametrize(("capacity_type", "families"), [(labels.RESERVED, 1), (labels.SPOT, 1), (labels.ON_DEMAND, 2)])
def test_a_capacity_type_that_is_too_little_choice_leaves_it_to_the_next_one(capacity_type: str, families: int) -> None:
    """One family is reserved, one is sold as spot, and two are sold on demand."""
    types = (with_offerings("m.large", held("cr-1"), spot=0.1), kind("c.large", 0.1))
    wide = rule("karpenter.k8s.aws/instance-family", "Exists", min_values=2)
    assert options(types).capacity_type == labels.RESERVED
    found = options(types, wide)
    assert (found.capacity_type, {name for name, _ in taken(found)}) == (labels.ON_DEMAND, {"m.large", "c.large"})
    only = rule(labels.CAPACITY_TYPE, "In", capacity_type)
    assert len({name for name, _ in taken(options(types, only))}) == families
    assert bool(options(types, only, wide).overrides) == (families == 2)


def test_what_is_reserved_is_taken_although_it_is_exotic() -> None:
    types = (with_offerings("m.metal", held("cr-1")), kind("m.large", 0.1))
    assert options(types).requested_from == "cr-1"


def test_a_type_known_by_now_to_be_too_small_is_left_out() -> None:
    small, large = kind("m.large", 0.1, memory=5500), kind("m.xlarge", 0.2)
    assert {name for name, _ in taken(options((small, large)))} == {"m.xlarge"}


def test_what_is_counted_on_is_the_estimate_only_where_the_plan_relied_on_it() -> None:
    unverified = structs.replace(kind("m.large", 0.1), verified=False, careful={"memory": 7000})
    assert assumed_allocatable(unverified, claim((unverified,)))["memory"] == 6000
    assert assumed_allocatable(unverified, claim((unverified,), relies_on_estimate=("m.large",)))["memory"] == 7000
    assert assumed_allocatable(kind("m.large", 0.1), claim(()))["memory"] == 7000
    tight = claim((unverified,), requests={"memory": 6500})
    assert fleet_options(tight, {"m.large": unverified}, ZONES).overrides == ()
    pilot = with_fields(tight, relies_on_estimate=("m.large",))
    assert fleet_options(pilot, {"m.large": unverified}, ZONES).overrides != ()


# Spot that is preferred for its risk


SPOT_TYPES = tuple(kind(f"m{number:02}.large", 1.0, 0.1 + number / 100) for number in range(10))
ALL_SPOT = [f"{item.name}/{zone}" for item in SPOT_TYPES for zone in ZONES]


def preferring(
    preferred: Sequence[str], types: Sequence[InstanceType] = SPOT_TYPES, *rules: RequirementSpec
) -> set[str]:
    known = {item.name: item for item in types}
    found = fleet_options(claim(types, *rules), known, ZONES, preferred=preferred)
    return {f"{override.instance_type}/{override.zone}" for override in found.overrides}


@pytest.mark.parametrize(
    ("preferred", "asked"),
    [
        (ALL_SPOT[2:], ALL_SPOT[2:]),
        ([*ALL_SPOT[2:], "x.large/a"], ALL_SPOT[2:]),
        (ALL_SPOT[5:], ALL_SPOT[5:]),
        (ALL_SPOT[6:], ALL_SPOT),
        (ALL_SPOT[::2], ALL_SPOT),
        ((), ALL_SPOT),
    ],
    ids=["most", "one that is not sold", "just enough", "too few", "one zone", "none"],
)
def test_preferred_spot_is_asked_for_alone_while_it_is_a_choice(preferred: Sequence[str], asked: Sequence[str]) -> None:
    assert preferring(preferred) == set(asked)


def test_what_is_preferred_of_spot_says_nothing_of_on_demand() -> None:
    on_demand = rule(labels.CAPACITY_TYPE, "In", labels.ON_DEMAND)
    assert preferring(ALL_SPOT[2:], SPOT_TYPES, on_demand) == set(ALL_SPOT)
    assert preferring(ALL_SPOT[2:], (SPOT_TYPES[0],), rule(labels.ZONE, "In", "z")) == set()
    assert preferring(ALL_SPOT[2:], (SPOT_TYPES[0],), rule(labels.ZONE, "In", "a")) == {ALL_SPOT[0]}


def test_a_choice_that_a_claim_must_keep_goes_before_what_is_preferred() -> None:
    family = rule("karpenter.k8s.aws/instance-family", "Exists", min_values=9)
    assert preferring(ALL_SPOT[2:], SPOT_TYPES, family) == set(ALL_SPOT[2:])
    assert preferring(ALL_SPOT[4:], SPOT_TYPES, family) == set(ALL_SPOT)


# Reservations, and what was asked for before


def held(name: str, zone: str = "a", price: float = 0.001, **fields: object) -> Offering:
    known: dict[str, object] = {"reservation_capacity": 3, "reservation_type": "default"}
    return Offering(zone, labels.RESERVED, price, reservation_id=name, **known | fields)  # type: ignore[arg-type]


def with_offerings(name: str, *offerings: Offering, price: float = 0.2, spot: float | None = None) -> InstanceType:
    known = kind(name, price, spot)
    return structs.replace(known, offerings=(*known.offerings, *offerings))


@pytest.mark.parametrize(
    ("first", "second", "taken_of"),
    [
        (held("cr-1"), held("cr-2"), "cr-1"),
        (held("cr-2"), held("cr-1"), "cr-1"),
        (held("cr-1", price=0.002), held("cr-2"), "cr-2"),
        (held("cr-1", reservation_type="capacity-block"), held("cr-2"), "cr-2"),
        (held("cr-1", reservation_interruptible=True), held("cr-2", reservation_type="capacity-block"), "cr-2"),
        (held("cr-1"), held("cr-2", reservation_capacity=4), "cr-2"),
        (held("cr-1", available=False), held("cr-2", "b"), "cr-2"),
    ],
    ids=["first by name", "by name", "cheaper", "no block", "a block before an interruptible one", "more left", "open"],
)
def test_one_reservation_is_taken_and_nothing_beside_it(first: Offering, second: Offering, taken_of: str) -> None:
    types = (with_offerings("m.large", first, spot=0.0001), with_offerings("c.large", second, price=0.00001))
    found = options(types)
    assert (found.capacity_type, found.requested_from) == (labels.RESERVED, taken_of)
    assert {override.reservation for override in found.overrides} == {taken_of}


def resting(*offerings: tuple[str, str, str]) -> Callable[[str, str, str], bool]:
    return lambda *offering: offering in offerings


@pytest.mark.parametrize(
    ("rests", "left"),
    [
        ((), "cr-1"),
        ((("cr-1", "a", "reserved"),), "on-demand"),
        ((("m.large", "a", "reserved"),), "on-demand"),
        ((("m.large", "b", "reserved"), ("cr-2", "a", "reserved"), ("cr-1", "a", "spot")), "cr-1"),
        ((("m.large", "a", "on-demand"), ("m.large", "b", "on-demand"), ("cr-1", "a", "reserved")), ""),
    ],
    ids=["nothing", "the reservation", "its type", "others", "all"],
)
def test_what_rests_is_not_asked_for(rests: Sequence[tuple[str, str, str]], left: str) -> None:
    types = (with_offerings("m.large", held("cr-1")),)
    found = fleet_options(claim(types), {"m.large": types[0]}, ZONES, resting(*rests))
    assert (found.requested_from if found.overrides else "") == left


@pytest.mark.parametrize(
    ("requested", "offers"),
    [("cr-1", 1), ("cr-2", 0), ("on-demand", 0), ("spot", 0)],
)
def test_a_request_that_is_repeated_asks_for_nothing_else(requested: str, offers: int) -> None:
    types = (with_offerings("m.large", held("cr-1"), spot=0.1),)
    found = fleet_options(claim(types), {"m.large": types[0]}, ZONES, requested_from=requested)
    assert len(found.overrides) == offers


@pytest.mark.parametrize("overlaid", [("m.large",), ("m.large", "c.large"), ()])
def test_ec2_is_told_the_order_where_any_price_is_a_users(overlaid: Sequence[str]) -> None:
    types = [
        structs.replace(
            item, offerings=tuple(structs.replace(each, overlaid=item.name in overlaid) for each in item.offerings)
        )
        for item in (kind("m.large", 0.2), kind("c.large", 0.1))
    ]
    assert options(types).strategy == ("prioritized" if overlaid else "")


@pytest.mark.parametrize(
    ("most", "names"),
    [(0.0, ["c.large", "m.large"]), (0.1, ["c.large"]), (0.2, ["c.large", "m.large"]), (0.09, [])],
)
def test_nothing_dearer_is_asked_for_than_a_ceiling_allows(most: float, names: list[str]) -> None:
    types = (kind("m.large", 0.2), kind("c.large", 0.1))
    asked = structs.replace(claim(types), most_hourly=most)
    assert (
        sorted({name for name, _ in taken(fleet_options(asked, {item.name: item for item in types}, ZONES))}) == names
    )


def test_spot_is_compared_with_on_demand_prices_alone() -> None:
    """A reservation costs next to nothing, which makes no spot dear."""
    reserved = held("cr-1", available=True)
    types = (with_offerings("m.large", reserved, price=0.5, spot=0.2),)
    asked = claim(types, rule(labels.CAPACITY_TYPE, "In", *BOTH))
    assert fleet_options(asked, {"m.large": types[0]}, ZONES).capacity_type == labels.SPOT


@pytest.mark.parametrize(
    ("requests", "capacity", "adapters"),
    [({"vpc.amazonaws.com/efa": 1}, 4, 4), ({"vpc.amazonaws.com/efa": 0}, 4, 0), ({}, 4, 0)],
)
def test_fabric_adapters_are_asked_for_where_a_pod_wants_one(
    requests: dict[str, int], capacity: int, adapters: int
) -> None:
    types = (kind("m.large", 0.2, **{"vpc.amazonaws.com/efa": capacity}),)
    asked = claim(types, requests={"cpu": 1000, "memory": 5000, **requests})
    found = fleet_options(asked, {"m.large": types[0]}, ZONES)
    assert {override.fabric_adapters for override in found.overrides} == {adapters}


def test_of_estimates_the_cheapest_that_can_be_had_are_explored() -> None:
    dear, cheap, same = kind("m.dear", 0.3), kind("m.cheap", 0.1), kind("m.alike", 0.1)
    gone = structs.replace(
        kind("m.gone", 0.01), offerings=tuple(structs.replace(o, available=False) for o in cheap.offerings)
    )
    assert [item.name for item in cheapest_types([dear, gone, cheap, same], 2)] == ["m.alike", "m.cheap"]
    assert [item.name for item in cheapest_types([gone, dear], 9)] == ["m.dear", "m.gone"]


def test_no_lease_is_taken_for_a_type_that_has_been_measured_since_or_is_not_sold_any_more() -> None:
    stage, known = Stage(), structs.replace(kind("m.large", 0.1), verified=True)
    relying = claim([known], relies_on_estimate=("m.large", "m.gone"))
    assert with_leases(relying, {"m.large": known}, stage.context) == {"m.large": known}
    assert "before capacity.acquire_pilot" not in stage.faults.points
