"""Tests the amounts that nodes and claims take off the limits of their NodePool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import structs

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.resources import Axis
from shiplap.scheduling.supply.charges import charge_node, charge_of_types, limits_of_pools
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS, PoolLimits
from shiplap.scheduling.supply.pool_catalogs import catalogues_of
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import snapshot_of

BOUGHT = (("on-demand", Z1), ("spot", Z1))
TYPES = (
    fake_type("small", cpu="2", memory="4Gi", price=1.0, offerings=BOUGHT),
    fake_type("large", cpu="8", memory="16Gi", price=4.0, offerings=BOUGHT, unavailable=BOUGHT[:1]),
)
RULES = {"max-hourly-price": "100", "min-on-demand": "25%", "min-on-demand-vcpus": "50%"}
MARKS = {labels.INSTANCE_TYPE: "small", labels.ZONE: Z1, labels.CAPACITY_TYPE: "on-demand"}


def limited() -> NodePool:
    made = pool(limits={"cpu": "100", "nodes": "10"})
    rules = {f"shiplap.dev/{key}": value for key, value in RULES.items()}
    return structs.replace(made, metadata=structs.replace(made.metadata, annotations=rules))


def table() -> TypeTable:
    return catalogues_of(snapshot_of([], types=TYPES), [limited()], Axis((HOURLY, SPOT_VCPUS)))["default"].table


def limits_with(
    nodes: Sequence[Node] = (), paired: Mapping[str, NodeClaim] | None = None, waiting: Sequence[NodeClaim] = ()
) -> PoolLimits:
    known = table()
    return limits_of_pools([limited()], known.axis, {"default": known}, nodes, paired or {}, waiting)["default"]


def used(limits: PoolLimits) -> dict[str, Any]:
    """Return the used part of 100 vCPUs, 10 nodes and 100 USD; room for spot is what may still be spot."""
    left = dict(zip(limits.axis.names, limits.left.tolist(), strict=True))
    return {
        "cpu": 100_000 - left["cpu"],
        "nodes": 10 - limits.nodes_left,
        "usd": (100_000_000 - left[HOURLY]) / 1e6,
        "room for spot": left[SPOT_VCPUS],
        "counted": (limits.nodes, limits.steady, limits.steady_vcpus),
    }


def standing(name: str = "n", cpu: str = "4", node_pool: str = "default", **marks: str) -> Node:
    return node(name, pool=node_pool, cpu="0", capacity={"cpu": cpu} if cpu else {}, labels={**MARKS, **marks})


NOTHING = {"cpu": 0, "nodes": 0, "usd": 0.0, "room for spot": 0, "counted": (0, 0, 0)}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"cpu": 8000, "usd": 4.0, "room for spot": -8000, "counted": (1, 0, 0)}),
        (
            {"rules": "on-demand"},
            {"cpu": 8000, "usd": 4.0, "room for spot": 2000, "counted": (1, 1, 2000)},
        ),
        (
            {"instance_type": "small", "capacity_type": "spot"},
            {"cpu": 2000, "usd": 1.0, "room for spot": -2000, "counted": (1, 0, 0)},
        ),
        (
            {"instance_type": "small", "capacity_type": "on-demand", "hourly": 0.75},
            {"cpu": 2000, "usd": 0.75, "room for spot": 2000, "counted": (1, 1, 2000)},
        ),
        (
            {"hourly": 0.75},
            {"cpu": 8000, "usd": 4.0, "room for spot": -8000, "counted": (1, 0, 0)},
        ),
        (
            {"hourly": 4.5},
            {"cpu": 8000, "usd": 4.5, "room for spot": -8000, "counted": (1, 0, 0)},
        ),
        (
            {"instance_types": ("gone",), "allocatable": {"cpu": 3000}, "capacity_type": "reserved"},
            {"cpu": 3000, "usd": 0.18, "room for spot": 3000, "counted": (1, 1, 3000)},
        ),
        (
            {"instance_types": ("gone",), "capacity_type": "reserved"},
            {"cpu": 0, "usd": 0.06, "room for spot": 0, "counted": (1, 1, 0)},
        ),
    ],
    ids=[
        "any of its types",
        "never spot",
        "launched as spot",
        "bought",
        "planned as a cheap one of its types",
        "planned as a type that has got cheaper",
        "of a type that is gone",
        "of nothing known",
    ],
)
def test_a_claim_takes_the_most_and_is_sure_of_the_least_that_it_may_turn_out_with(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    known: dict[str, Any] = {"instance_types": ("small", "large"), "state": ClaimState.LAUNCHING, **fields}
    if kind := known.pop("rules", ""):
        requirement = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": (kind,)}
        known["requirements"] = pool("default", requirement).spec.template.spec.requirements[1:]
    assert used(limits_with(waiting=[node_claim(name="c", **known)])) == {"nodes": 1, **expected}


def test_claims_that_leave_or_are_of_other_pools_take_nothing() -> None:
    known: dict[str, Any] = {"instance_types": ("small",)}
    others = [
        node_claim(name="a", state=ClaimState.DRAINING, **known),
        node_claim(name="b", state=ClaimState.TERMINATING, **known),
        node_claim(name="c", state=ClaimState.LAUNCHED, node_pool="another", **known),
    ]
    assert used(limits_with(waiting=others)) == NOTHING
    counted = node_claim(name="d", state=ClaimState.DISRUPTING, **known)
    assert used(limits_with(waiting=[*others, counted]))["nodes"] == 1


@pytest.mark.parametrize(
    ("made", "fields", "expected"),
    [
        (standing(), None, {"cpu": 4000, "usd": 1.0, "room for spot": 4000, "counted": (1, 1, 4000)}),
        (
            standing(**{labels.CAPACITY_TYPE: "spot"}),
            None,
            {"cpu": 4000, "usd": 1.0, "room for spot": -4000, "counted": (1, 0, 0)},
        ),
        (
            standing(**{labels.CAPACITY_TYPE: ""}),
            None,
            {"cpu": 4000, "usd": 1.2, "room for spot": -4000, "counted": (1, 0, 0)},
        ),
        (
            standing(**{labels.CAPACITY_TYPE: ""}),
            {"capacity_type": "on-demand"},
            {"cpu": 4000, "usd": 1.2, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
        (
            standing(**{labels.INSTANCE_TYPE: "large"}),
            None,
            {"cpu": 4000, "usd": 4.0, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
        (
            standing(**{labels.ZONE: Z2}),
            None,
            {"cpu": 4000, "usd": 1.2, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
        (
            standing(**{labels.INSTANCE_TYPE: "gone"}),
            None,
            {"cpu": 4000, "usd": 0.24, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
        (
            standing(),
            {"hourly": 0.75},
            {"cpu": 4000, "usd": 0.75, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
        (
            standing(cpu=""),
            {"instance_type": "small", "hourly": 0.75},
            {"cpu": 2000, "usd": 0.75, "room for spot": 2000, "counted": (1, 1, 2000)},
        ),
        (
            standing(node_pool=""),
            {"instance_type": "small"},
            {"cpu": 4000, "usd": 1.0, "room for spot": 4000, "counted": (1, 1, 4000)},
        ),
    ],
    ids=[
        "on-demand",
        "spot",
        "unknown",
        "as its claim says",
        "not sold now",
        "not sold there",
        "of a type that is gone",
        "as it was bought",
        "not reported yet",
        "of the pool of its claim",
    ],
)
def test_a_node_takes_the_capacity_and_the_price_that_it_has(
    made: Node, fields: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    claim = None if fields is None else node_claim(name="c", node_name="n", state=ClaimState.INITIALIZED, **fields)
    limits = limits_with([made], {} if claim is None else {"n": claim})
    assert used(limits) == {"nodes": 1, **expected}
    charge_node(limits, made, claim, table(), -1)
    assert used(limits) == NOTHING, "it is given back"


def test_nodes_that_leave_take_nothing_and_hide_none_behind_them() -> None:
    going = node("a", pool="default", cpu="0", capacity={"cpu": "4"}, deleting=True)
    draining = node_claim(name="c", node_name="b", state=ClaimState.DRAINING)
    nodes = [going, standing("b"), standing("c", node_pool="another"), standing("d")]
    assert used(limits_with(nodes, {"b": draining}))["nodes"] == 1


def test_a_share_of_nodes_and_of_vcpus_is_bounded_as_the_pool_says() -> None:
    limits = limits_with()
    assert (limits.spot_bound, limits.vcpu_bound) == (2500, 5000)
    assert used(limits) == NOTHING


def test_of_several_types_the_most_of_each_resource_is_taken() -> None:
    known = table()
    assert charge_of_types(["small", "gone", "large"], known).tolist() == known.capacity.max(axis=0).tolist()
    assert charge_of_types(["small"], known).tolist() == known.capacity[known.index["small"]].tolist()


def test_a_type_without_a_price_takes_the_estimate_and_a_fifth() -> None:
    free = tuple(structs.replace(offering, price=0.0) for offering in TYPES[0].offerings)
    spot_only = (TYPES[0].offerings[0], *free[1:])
    sold = [
        structs.replace(TYPES[0], name="unknown", offerings=free),
        structs.replace(TYPES[0], name="unknown spot", offerings=spot_only),
    ]
    found = catalogues_of(snapshot_of([], types=sold), [limited()], Axis((HOURLY, SPOT_VCPUS)))["default"].table
    taken = found.capacity[:, found.axis.names.index(HOURLY)].tolist()
    assert dict(zip(found.names, taken, strict=True)) == {"unknown": 120_000, "unknown spot": 1_200_000}
