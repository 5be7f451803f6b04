"""NodeOverlays as one NodePool sees them."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.overlays import adjusted, apply, without_conflicts
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    NodeOverlay,
    NodeOverlaySpec,
    NodePool,
    RequirementSpec,
)
from tests.builders.pools import pool
from tests.unit.instances.given_instances import GIB, MIB, known, resolved, seen, yields


def overlay(name: str, *requirements: tuple[str, str, tuple[str, ...]], **spec: Any) -> NodeOverlay:
    wanted = tuple(RequirementSpec(*each) for each in requirements)
    return NodeOverlay(ObjectMeta(name=name), NodeOverlaySpec(requirements=wanted, **spec))


M5 = ("node.kubernetes.io/instance-type", "In", ("m5.large",))
SPOT = ("karpenter.sh/capacity-type", "In", ("spot",))
ZONE_A = ("topology.kubernetes.io/zone", "In", ("us-east-1a",))


def types() -> list[InstanceType]:
    return [yields(name, answered=resolved()) for name in ("m5.large", "m5.xlarge")]


def prices(kind: InstanceType) -> dict[tuple[str, str], float]:
    return {(each.zone[-1], each.capacity_type): each.price for each in kind.offerings}


def one(*overlays: NodeOverlay, of: NodePool | None = None) -> InstanceType:
    """m5.large after the overlays."""
    return apply(types(), of or pool(), overlays)[0]


def test_no_overlays_change_nothing() -> None:
    assert apply(types(), pool(), []) == tuple(types())


def test_a_price_holds_for_matching_offerings_only() -> None:
    before, after = prices(types()[0]), prices(one(overlay("a", M5, SPOT, ZONE_A, price="0.01")))
    assert after == before | {("a", "spot"): 0.01}
    changed = one(overlay("a", M5, SPOT, ZONE_A, price="0.01")).offerings[1]
    assert (changed.price, changed.price_estimated) == (0.01, False)


def test_other_types_stay_as_they_are() -> None:
    assert apply(types(), pool(), [overlay("a", M5, price="0.01", capacity={"memory": "9Gi"})])[1] == types()[1]


@pytest.mark.parametrize(
    ("adjustment", "expected"),
    [
        ("+0.1", 1.1),
        ("-0.1", 0.9),
        ("+10%", 1.1),
        ("-10%", 0.9),
        ("-100%", 0.0),
        ("-5", 0.0),
        ("0.25", 0.25),
        ("0", 0.0),
    ],
)
def test_adjustments(adjustment: str, expected: float) -> None:
    assert adjusted(1.0, adjustment) == pytest.approx(expected)


@pytest.mark.parametrize("adjustment", ["", "10%", "cheap", "+", "1e3", "--1", "nan"])
def test_adjustments_that_are_none(adjustment: str) -> None:
    with pytest.raises(ValueError, match="price"):
        adjusted(1.0, adjustment)


def test_the_heaviest_decides_and_adjustments_do_not_add_up() -> None:
    base = types()[0].offerings[0].price
    made = one(
        overlay("light", M5, price_adjustment="+50%", weight=1), overlay("heavy", M5, price_adjustment="+10%", weight=2)
    )
    assert made.offerings[0].price == pytest.approx(base * 1.1)


def test_equal_weights_on_the_same_price_reject_the_one_processed_later() -> None:
    made = one(
        overlay("a", M5, price="0.5", weight=3, capacity={"memory": "9Gi"}), overlay("b", M5, price="0.5", weight=3)
    )
    assert made.offerings[0].price == 0.5
    assert made.capacity["memory"] == types()[0].capacity["memory"], "a comes after b and is dropped as a whole"


def test_equal_weights_on_different_things_do_not_conflict() -> None:
    made = one(
        overlay("a", M5, price="0.5"),
        overlay("b", M5, capacity={"smarter-devices/fuse": "10"}),
        overlay("c", M5, capacity={"memory": "9Gi"}),
    )
    assert made.offerings[0].price == 0.5
    assert made.capacity["smarter-devices/fuse"] == 10
    assert made.capacity["memory"] == 9 * GIB


def test_a_conflict_in_one_pool_rejects_everywhere() -> None:
    team = overlay("team", M5, ("team", "In", ("a",)), price="0.5")
    common = overlay("common", M5, price="0.6")
    pools = [(pool("one", labels={"team": "a"}), types()), (pool("two"), types())]
    assert [each.metadata.name for each in without_conflicts(pools, [team, common])] == ["team"]
    assert len(without_conflicts(pools[1:], [team, common])) == 2


def test_requirements_on_the_pool_and_its_labels() -> None:
    by_pool = overlay("a", ("karpenter.sh/nodepool", "In", ("default",)), price="0.5")
    assert one(by_pool).offerings[0].price == 0.5
    assert one(by_pool, of=pool("other")).offerings[0].price != 0.5
    by_label = overlay("a", ("team", "In", ("a",)), price="0.5")
    assert one(by_label, of=pool(labels={"team": "a"})).offerings[0].price == 0.5
    assert one(by_label).offerings[0].price != 0.5, "an undefined label does not match"
    assert one(overlay("a", ("team", "NotIn", ("a",)), price="0.5")).offerings[0].price == 0.5


def test_an_offering_in_the_zone_makes_capacity_count_for_the_whole_type() -> None:
    assert one(overlay("a", ZONE_A, capacity={"memory": "9Gi"})).capacity["memory"] == 9 * GIB
    nowhere = ("topology.kubernetes.io/zone", "In", ("us-east-1f",))
    assert one(overlay("a", nowhere, capacity={"memory": "9Gi"})).sources["memory"] == "formula"


def test_memory_said_is_memory_known() -> None:
    made = apply([yields("r5a.8xlarge")], pool(), [overlay("a", capacity={"memory": "253755Mi"})])[0]
    assert made.verified
    assert made.sources["memory"] == "override"
    assert made.allocatable["memory"] == 250826 * MIB


def test_other_resources_said_leave_memory_unverified() -> None:
    made = one(overlay("a", capacity={"pods": "15", "ephemeral-storage": "120Gi"}))
    assert not made.verified
    assert made.capacity["pods"] == made.careful["pods"] == 15
    assert made.careful["ephemeral-storage"] == 120 * GIB
    assert made.careful["memory"] < made.capacity["memory"]
    assert made.allocatable["ephemeral-storage"] == (120 - 1 - 12) * GIB, "a tenth of the disk is kept back"


def test_what_a_kubelet_refuted_is_not_promised_again() -> None:
    before = yields("m5.large", answered=resolved())
    report = known(seen("m5.large", 7500 * MIB, kubelet=before.kubelet_hash))
    learned = yields("m5.large", answered=resolved(), learned=(report,))
    more = apply([learned], pool(), [overlay("a", capacity={"memory": "9Gi"})])[0]
    assert (more.capacity["memory"], more.sources["memory"]) == (7500 * MIB, "learned")
    less = apply([learned], pool(), [overlay("a", capacity={"memory": "7Gi"})])[0]
    assert (less.capacity["memory"], less.sources["memory"]) == (7 * GIB, "override")


@pytest.mark.parametrize(
    "broken",
    [
        overlay("a", price="cheap"),
        overlay("a", capacity={"memory": "much"}),
        overlay("a", ("zone", "Like", ("x",)), price="1"),
    ],
)
def test_overlays_that_cannot_be_read(broken: NodeOverlay) -> None:
    with pytest.raises(InvalidInput, match="NodeOverlay/a"):
        apply(types(), pool(), [broken])
