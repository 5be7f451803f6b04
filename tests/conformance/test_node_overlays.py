"""NodeOverlays as Karpenter's suites test them: which are applied, and what conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.scheduling.supply.pool_catalogs import accepted_overlays
from tests.builders.overlays import overlay
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import Outcome, given

TYPE, ZONE, POOL = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/nodepool"
DEVICE = "example.com/device"
ONE, OTHER = rule(TYPE, "In", "one"), rule(TYPE, "In", "other")


def planned(*overlays: NodeOverlay, **more: Any) -> Outcome:
    """A pod for one of two types, the first of which is the cheaper one."""
    types = [fake_type("one", price=1.0), fake_type("other", price=2.0)]
    return given(pod(**more.pop("waiting", {})), types=types, overlays=overlays, **more)


def accepted(*overlays: NodeOverlay) -> list[str]:
    return sorted(item.metadata.name for item in accepted_overlays(planned(*overlays).snapshot))


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"price": "0.5"}, {"price": "0.7"}),
        ({"price": "0.5"}, {"price": "0.5"}),
        ({"adjustment": "+10%"}, {"adjustment": "-0.1"}),
        ({"price": "0.5"}, {"adjustment": "+10%"}),
        ({"capacity": {DEVICE: "1"}}, {"capacity": {DEVICE: "2"}}),
        ({"capacity": {DEVICE: "1"}}, {"capacity": {DEVICE: "1"}}),
    ],
)
def test_of_equal_weights_the_last_name_stands(first: dict[str, Any], last: dict[str, Any]) -> None:
    """Scenario 249."""
    assert accepted(overlay("a", ONE, weight=5, **first), overlay("b", ONE, weight=5, **last)) == ["b"]
    assert accepted(overlay("a", ONE, weight=6, **first), overlay("b", ONE, weight=5, **last)) == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (overlay("a", ONE, price="0.5"), overlay("b", OTHER, price="0.5")),
        (overlay("a", ONE, rule(ZONE, "In", Z1), price="0.5"), overlay("b", ONE, rule(ZONE, "In", Z2), price="0.5")),
        (overlay("a", ONE, price="0.5"), overlay("b", ONE, capacity={DEVICE: "1"})),
        (overlay("a", rule(POOL, "In", "x"), price="0.5"), overlay("b", rule(POOL, "In", "default"), price="0.5")),
    ],
    ids=["types", "zones", "price and capacity", "pools"],
)
def test_what_does_not_overlap_does_not_conflict(first: NodeOverlay, last: NodeOverlay) -> None:
    """Scenario 249."""
    assert accepted(first, last) == ["a", "b"]


def test_a_third_overlay_stands_between_two_that_conflict() -> None:
    """Scenario 249."""
    assert accepted(overlay("a", ONE, price="1"), overlay("b", OTHER, price="1"), overlay("c", ONE, price="1")) == [
        "b",
        "c",
    ]


def test_the_price_decides_what_is_launched() -> None:
    outcome = planned(overlay("cheaper", OTHER, adjustment="-75%"))
    assert (outcome.claim.launch.instance_type, outcome.claim.launch.price) == ("other", 0.5)
    free = planned(overlay("free", OTHER, adjustment="-100"))
    assert (free.claim.launch.instance_type, free.claim.launch.price) == ("other", 0.0)
    heavier = planned(overlay("light", OTHER, price="0.1", weight=1), overlay("heavy", OTHER, price="9", weight=2))
    assert heavier.claim.launch.instance_type == "one"


def test_a_resource_said_makes_room_for_pods_that_ask_for_it() -> None:
    wants = {"requests": {DEVICE: "1"}}
    assert not planned(waiting=wants).claims
    outcome = planned(overlay("devices", OTHER, rule(ZONE, "In", Z1), capacity={DEVICE: "2"}), waiting=wants)
    assert outcome.claim.instance_types == ("other",)


def test_an_overlay_for_one_pool_leaves_the_others_alone() -> None:
    """Scenario 251."""
    only = overlay("only", rule(POOL, "In", "first"), price="9")
    pools = [pool("first", weight=10), pool("second")]
    assert planned(only, pools=pools).claim.launch.price == 9.0
    second = planned(only, pools=pools, waiting={"selector": {POOL: "second"}})
    assert second.claim.launch.price == 1.0


def test_a_pool_without_types_does_not_stop_the_others() -> None:
    """Scenario 251."""
    pools = [pool("broken", weight=10, node_class="broken"), pool("default")]
    outcome = planned(overlay("cheaper", OTHER, price="0.5"), pools=pools, not_ready={"broken": "no subnets"})
    assert (outcome.claim.node_pool, outcome.claim.launch.price) == ("default", 0.5)
    assert "no subnets" in outcome.claim.reasons[0]
