"""Prices of nodes and of what could be bought instead: the cheapest of just the offerings that are meant."""

from __future__ import annotations

import pytest

from shiplap.disruption.current_prices import PoolMarket
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.node_prices import offering_price
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements, requirement
from tests.builders.nodes import node

RESERVED = (
    Offering("z1", "reserved", 0.03, reservation_id="cr-dear"),
    Offering("z1", "reserved", 0.01, reservation_id="cr-cheap"),
)
OFFERED = (
    Offering("z1", "on-demand", 0.10),
    Offering("z2", "on-demand", 0.09),
    Offering("z1", "spot", 0.04),
    *RESERVED,
)
TYPE = InstanceType("m5.large", (), {}, {}, OFFERED)


@pytest.mark.parametrize(
    ("zone", "capacity_type", "price"),
    [
        ("z1", "on-demand", 0.10),
        ("z2", "on-demand", 0.09),
        ("z1", "spot", 0.04),
        ("z2", "spot", 0.0),
        ("z1", "reserved", 0.01),
    ],
)
def test_the_price_of_a_node_is_that_of_its_offering(zone: str, capacity_type: str, price: float) -> None:
    assert offering_price(OFFERED, node(zone=zone, capacity_type=capacity_type)) == price


def wanted(**values: str) -> Requirements:
    keys = {"zone": labels.ZONE, "capacity": labels.CAPACITY_TYPE, "reservation": labels.RESERVATION_ID}
    return {keys[name]: requirement(keys[name], "In", (value,)) for name, value in values.items()}


@pytest.mark.parametrize(
    ("given", "prices"),
    [
        ({"zone": "z2"}, [0.09]),
        ({"capacity": "on-demand"}, [0.09, 0.10]),
        ({"capacity": "reserved"}, [0.01, 0.03]),
        ({}, [0.01, 0.03]),
        ({"reservation": "cr-dear"}, [0.03]),
        ({"reservation": "cr-of-others"}, [0.04]),
        ({"zone": "z1", "capacity": "spot"}, [0.04]),
        ({"capacity": "reserved", "zone": "z2"}, []),
    ],
)
def test_what_can_be_bought_is_of_one_kind_reservations_first_and_the_cheapest_first(
    given: dict[str, str], prices: list[float]
) -> None:
    market = PoolMarket({"p": {"m5.large": TYPE}})
    found = market.buyable("p", "m5.large", wanted(**given))
    assert [offering.price for offering in found] == prices


def test_what_was_asked_before_is_no_answer_to_another_question() -> None:
    market = PoolMarket({"p": {"m5.large": TYPE}})
    asked = [wanted(reservation="cr-dear"), wanted(reservation="cr-cheap"), wanted(zone="z1"), wanted(zone="z2")]
    first = [market.buyable("p", "m5.large", each) for each in asked]
    fresh = [PoolMarket({"p": {"m5.large": TYPE}}).buyable("p", "m5.large", each) for each in asked]
    assert first == fresh == [market.buyable("p", "m5.large", each) for each in asked]
    assert [[offering.reservation_id for offering in some] for some in first[:2]] == [["cr-dear"], ["cr-cheap"]]
