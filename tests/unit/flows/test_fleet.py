"""Which offerings a claim's fleet may take."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from shiplap.flows.planning.planned_launches import FleetOptions, fleet_options
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.supply.existing_nodes import assumed_allocatable
from tests.node_claims import node_claim, with_fields

ZONES = ("a", "b")
BOTH = (labels.ON_DEMAND, labels.SPOT)


def kind(name: str, price: float, spot: float | None = None, **capacity: int) -> InstanceType:
    offerings = [Offering(zone, labels.ON_DEMAND, price, zone_id=f"id-{zone}") for zone in ZONES]
    if spot is not None:
        offerings += [Offering(zone, labels.SPOT, spot, zone_id=f"id-{zone}") for zone in ZONES]
    family = requirement("karpenter.k8s.aws/instance-family", "In", (name.partition(".")[0],))
    return InstanceType(
        name=name,
        requirements=(family,),
        capacity={"cpu": 2000, "memory": 8000, "pods": 29, **capacity},
        overhead={"cpu": 100, "memory": 1000},
        offerings=tuple(offerings),
        ami="ami-1",
        kubelet_hash="k",
    )


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
