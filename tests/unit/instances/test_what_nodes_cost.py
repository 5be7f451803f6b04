"""Tests the cost of a node: the paid price, else its offering, else its type elsewhere; and nodes that cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.node_prices import (
    UNKNOWN_PRICE,
    NodePrices,
    Price,
    capacity_type_of,
    offerings_by_type,
    total_price,
)
from tests.builders.claims import node_claim
from tests.builders.nodes import node

OFFERED = (
    Offering("a", "on-demand", 0.10),
    Offering("b", "on-demand", 0.12, price_estimated=True),
    Offering("a", "spot", 0.04),
    Offering("a", "spot", 0.05),
)
PRICES = NodePrices({"flex": {"m5.large": (Offering("a", "on-demand", 0.08),)}}, {"m5.large": OFFERED})


MANAGED, COMPUTE = "eks.amazonaws.com/capacityType", "eks.amazonaws.com/compute-type"
M5: dict[str, Any] = {"instance_type": "m5.large", "zone": "a"}


@pytest.mark.parametrize(
    ("marks", "price"),
    [
        ({**M5, "capacity_type": "on-demand"}, Price(0.10)),
        ({**M5, "capacity_type": "spot"}, Price(0.04)),
        (M5, Price(0.10, estimated=True)),
        ({**M5, "zone": "b", "capacity_type": "on-demand"}, Price(0.12, estimated=True)),
        ({**M5, "zone": "z", "capacity_type": "on-demand"}, Price(0.10, estimated=True)),
        ({**M5, "zone": "z", "capacity_type": "spot"}, Price(0.04, estimated=True)),
        ({**M5, "zone": "z"}, Price(0.10, estimated=True)),
        ({**M5, "capacity_type": "on-demand", "pool": "flex"}, Price(0.08)),
        ({**M5, "capacity_type": "on-demand", "pool": "other"}, Price(0.10)),
        ({"instance_type": "unknown", "zone": "a", "capacity_type": "spot"}, UNKNOWN_PRICE),
        ({**M5, "capacity_type": "on-demand", "labels": {COMPUTE: "fargate"}}, UNKNOWN_PRICE),
        ({**M5, "capacity_type": "on-demand", "labels": {COMPUTE: "hybrid"}}, UNKNOWN_PRICE),
        ({**M5, "capacity_type": "on-demand", "labels": {COMPUTE: "ec2"}}, Price(0.10)),
        ({**M5, "labels": {MANAGED: "SPOT"}}, Price(0.04)),
        ({**M5, "labels": {MANAGED: "ON_DEMAND"}}, Price(0.10)),
    ],
)
def test_a_node_costs_what_its_labels_name(marks: Mapping[str, Any], price: Price) -> None:
    assert PRICES.of(node(**marks)) == price


BOUGHT: dict[str, Any] = {"instance_id": "i", "instance_type": "m5.large", "zone": "a", "capacity_type": "spot"}


@pytest.mark.parametrize(
    ("marks", "fields", "price"),
    [
        ({**M5, "capacity_type": "on-demand"}, {"hourly": 0.07}, Price(0.07)),
        ({**M5, "zone": "b", "capacity_type": "on-demand"}, {"hourly": 0.12}, Price(0.12, estimated=True)),
        ({**M5, "zone": "b", "capacity_type": "on-demand"}, {"hourly": 0.11}, Price(0.11)),
        ({}, BOUGHT, Price(0.04)),
        ({"capacity_type": "on-demand"}, BOUGHT, Price(0.10)),
        ({"capacity_type": "on-demand"}, {**BOUGHT, "node_pool": "flex"}, Price(0.08)),
        ({"capacity_type": "on-demand", "pool": "other"}, {**BOUGHT, "node_pool": "flex"}, Price(0.10)),
    ],
)
def test_what_its_labels_do_not_say_its_claim_does(
    marks: Mapping[str, Any], fields: dict[str, Any], price: Price
) -> None:
    claim = node_claim(**{"name": "c", "node_pool": "none"} | fields)
    assert PRICES.of(node(**marks), claim) == price


@pytest.mark.parametrize(
    ("fields", "price"),
    [
        (BOUGHT, Price(0.04)),
        ({**BOUGHT, "hourly": 0.03}, Price(0.03)),
        ({**BOUGHT, "zone": "z"}, Price(0.04, estimated=True)),
        ({**BOUGHT, "node_pool": "flex", "capacity_type": "on-demand"}, Price(0.08)),
        ({}, UNKNOWN_PRICE),
    ],
)
def test_a_claim_without_a_node_costs_what_it_was_bought_as(fields: dict[str, Any], price: Price) -> None:
    assert PRICES.of_claim(node_claim(**{"name": "c", "node_pool": "none"} | fields)) == price


def test_a_reserved_node_whose_offering_is_gone_costs_its_nominal_part() -> None:
    reserved = PRICES.of(node(instance_type="m5.large", zone="z", capacity_type="reserved"))
    assert 0 < reserved.hourly < 0.01
    assert PRICES.of(node(instance_type="m5.large", zone="z", capacity_type="odd")) == UNKNOWN_PRICE


def test_the_list_price_is_the_cheapest_on_demand_one() -> None:
    assert PRICES.listed("m5.large") == 0.10
    assert PRICES.listed("unknown") == 0.0
    assert PRICES.is_estimated("none", "m5.large", "b", "on-demand")
    assert not PRICES.is_estimated("none", "m5.large", "a", "on-demand")
    assert not PRICES.is_estimated("none", "unknown", "a", "on-demand")


def test_a_sum_is_an_estimate_if_a_part_is() -> None:
    assert total_price([]) == Price()
    assert total_price([Price(1.0), Price(2.0)]) == Price(3.0)
    assert total_price([Price(1.0), Price(2.0, estimated=True)]) == Price(3.0, estimated=True)
    assert (Price(0.1).known, UNKNOWN_PRICE.known) == (True, False)


def test_of_an_offering_in_several_catalogues_the_first_counts() -> None:
    one = InstanceType(
        "m", (), {}, {}, (Offering("a", "spot", 0.1), Offering("a", "reserved", 0.2, reservation_id="x"))
    )
    two = InstanceType(
        "m", (), {}, {}, (Offering("a", "spot", 0.3), Offering("a", "reserved", 0.4, reservation_id="y"))
    )
    found = offerings_by_type([one], [two])
    assert [(item.price, item.reservation_id) for item in found["m"]] == [(0.1, ""), (0.2, "x"), (0.4, "y")]


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        ({}, ""),
        ({"capacity_type": "spot"}, "spot"),
        ({"labels": {MANAGED: "SPOT"}}, "spot"),
        ({"labels": {MANAGED: "ODD"}}, ""),
    ],
)
def test_a_capacity_type_is_karpenters_label_or_that_of_a_managed_group(marks: Mapping[str, Any], kind: str) -> None:
    assert capacity_type_of(node(**marks)) == kind
    if marks.get("labels") == {MANAGED: "SPOT"}:
        assert capacity_type_of(node(**marks, capacity_type="on-demand")) == "on-demand"
