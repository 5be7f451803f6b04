"""Between NodePools of equal weight the price decides, and names break ties; a weight goes before any price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.builders.pools import pool as disruptable
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.disruptions import disrupted, small
from tests.conformance.given import Outcome, given

ONE_GPU = {"nvidia.com/gpu": "1"}
SMALL = fake_type("small", cpu="4", memory="8Gi", pods="20", price=1.0)
LARGE = fake_type("large", cpu="16", memory="32Gi", pods="50", price=3.0)
DEAR = fake_type("dear", cpu="4", memory="8Gi", pods="20", price=1.5)
WIDE = fake_type("wide", cpu="16", memory="32Gi", pods="50", price=6.0)
GPU = fake_type("gpu", cpu="8", memory="16Gi", pods="20", price=5.0, extra=ONE_GPU)
DEAR_GPU = fake_type("dear-gpu", cpu="4", memory="8Gi", pods="20", price=7.0, extra=ONE_GPU)
TYPES = (SMALL, LARGE, DEAR, WIDE)
ON_DEMAND = rule(labels.CAPACITY_TYPE, "In", "on-demand")
NAMES = pytest.mark.parametrize(("first", "second"), [("a", "z"), ("z", "a")])
"""Each case holds whichever pool is last in the alphabet."""


def selling(name: str, *types: InstanceType, **fields: Any) -> NodePool:
    """A NodePool of these types, on demand."""
    return pool(name, rule(labels.INSTANCE_TYPE, "In", *(item.name for item in types)), ON_DEMAND, **fields)


def chosen(outcome: Outcome) -> list[tuple[str, str]]:
    """The NodePool and the type of each node, sorted."""
    return sorted((claim.node_pool, claim.launch.instance_type) for claim in outcome.plan.node_claims)


@NAMES
@pytest.mark.parametrize("improve_s", [0.0, 0.3])
@pytest.mark.parametrize(("number", "types"), [(1, ["small"]), (3, ["small"]), (30, ["large"] * 2)])
def test_the_cheaper_pool_gets_the_node(
    first: str, second: str, improve_s: float, number: int, types: list[str]
) -> None:
    pods = [pod(f"p{place:02}", cpu="1") for place in range(number)]
    pools = [selling(first, SMALL, LARGE), selling(second, DEAR, WIDE)]
    outcome = given(*pods, pools=pools, types=TYPES, improve_s=improve_s)
    assert chosen(outcome) == [(first, name) for name in types]


@NAMES
@pytest.mark.parametrize(("number", "kind"), [(1, "dear"), (15, "large")])
def test_what_all_pods_cost_counts_and_not_what_one_does(first: str, second: str, number: int, kind: str) -> None:
    """One pod is cheaper on the small type, fifteen on the large one."""
    pods = [pod(f"p{place:02}", cpu="1") for place in range(number)]
    outcome = given(*pods, pools=[selling(first, DEAR), selling(second, LARGE)], types=TYPES)
    assert {name for _, name in chosen(outcome)} == {kind}


@NAMES
def test_pods_of_many_sizes_go_to_the_cheaper_pool_in_bulk(first: str, second: str) -> None:
    pods = [pod(f"p{place:02}", cpu=f"{300 + place}m") for place in range(60)]
    outcome = given(*pods, pools=[selling(first, LARGE), selling(second, WIDE, DEAR)], types=TYPES, improve_s=0.3)
    assert {name for name, _ in chosen(outcome)} == {first}


@NAMES
def test_each_kind_of_pods_goes_to_the_pool_that_is_cheaper_for_it(first: str, second: str) -> None:
    """One pool sells cheap CPUs, the other cheap GPUs."""
    pools = [selling(first, SMALL, DEAR_GPU), selling(second, DEAR, GPU)]
    types = (SMALL, DEAR, GPU, DEAR_GPU)
    gpu = pod("g", cpu="1", requests=ONE_GPU)
    outcome = given(pod("p", cpu="3500m"), gpu, pools=pools, types=types)
    assert chosen(outcome) == sorted([(first, "small"), (second, "gpu")])


@NAMES
def test_spot_goes_before_dearer_on_demand_of_another_pool(first: str, second: str) -> None:
    both = fake_type("both", cpu="4", memory="8Gi", pods="20", price=1.0, offerings=(("spot", Z1), ("on-demand", Z1)))
    cheap = {"spot": 0.4, "on-demand": 1.0}
    offerings = tuple(replace(offer, price=cheap[offer.capacity_type]) for offer in both.offerings)
    spot = pool(first, rule(labels.CAPACITY_TYPE, "In", "spot", "on-demand"))
    outcome = given(pod("p"), pools=[spot, pool(second, ON_DEMAND)], types=[replace(both, offerings=offerings)])
    assert [(claim.node_pool, claim.launch.capacity_type) for claim in outcome.plan.node_claims] == [(first, "spot")]


@NAMES
def test_a_limit_of_the_cheaper_pool_leaves_the_rest_to_the_next(first: str, second: str) -> None:
    pods = [pod(f"p{place}", cpu="3") for place in range(3)]
    pools = [selling(first, SMALL, limits={"cpu": "4"}), selling(second, DEAR)]
    assert chosen(given(*pods, pools=pools, types=TYPES)) == sorted([(first, "small"), *[(second, "dear")] * 2])


@NAMES
@pytest.mark.parametrize(("least", "kind"), [(2, "small"), (3, "dear")])
def test_a_pool_whose_min_values_cannot_be_kept_is_not_the_cheaper_one(
    first: str, second: str, least: int, kind: str
) -> None:
    kinds = rule(labels.INSTANCE_TYPE, "In", "small", "large", min_values=least)
    outcome = given(pod("p"), pools=[pool(first, kinds, ON_DEMAND), selling(second, DEAR)], types=TYPES)
    assert [name for _, name in chosen(outcome)] == [kind]


@NAMES
def test_a_taint_of_the_cheaper_pool_keeps_out_only_those_that_do_not_tolerate_it(first: str, second: str) -> None:
    taint = {"key": "x", "effect": "NoSchedule"}
    pools = [selling(first, SMALL, taints=[taint]), selling(second, DEAR)]
    tolerant = pod("t", cpu="3", tolerations=[{"key": "x", "operator": "Exists"}])
    outcome = given(tolerant, pod("n", cpu="3"), pools=pools, types=TYPES)
    assert chosen(outcome) == sorted([(first, "small"), (second, "dear")])


@NAMES
@pytest.mark.parametrize("key", ["topology.kubernetes.io/zone", "kubernetes.io/hostname"])
def test_pods_that_are_spread_go_to_the_cheaper_pool(first: str, second: str, key: str) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    pods = [
        pod(f"p{place}", metadata={"labels": {"app": "w"}}, spec={"topologySpreadConstraints": [spread]})
        for place in range(6)
    ]
    outcome = given(*pods, pools=[selling(first, SMALL), selling(second, DEAR)], types=TYPES)
    assert {name for name, _ in chosen(outcome)} == {first}


@NAMES
def test_the_tiers_of_a_pool_keep_their_order_between_pools_of_one_weight(first: str, second: str) -> None:
    """A pool costs what its first tier with room does, however cheap a later one is."""
    tiered = pool(first, rule(labels.INSTANCE_TYPE, "In", "dear", "*"), ON_DEMAND)
    between = fake_type("between", cpu="4", memory="8Gi", pods="20", price=1.2)
    outcome = given(pod("p"), pools=[tiered, selling(second, between)], types=[*TYPES, between])
    assert chosen(outcome) == [(second, "between")]
    alone = given(pod("p"), pools=[tiered], types=[*TYPES, between])
    assert chosen(alone) == [(first, "dear")]


@NAMES
@pytest.mark.parametrize("zones", [(Z1, Z2), (Z2, Z1)])
def test_the_price_is_that_of_the_zone_which_a_pod_needs(first: str, second: str, zones: tuple[str, str]) -> None:
    here, there = (
        fake_type(f"in-{zone}", cpu="4", memory="8Gi", pods="20", price=price, offerings=(("on-demand", zone),))
        for zone, price in zip(zones, (0.5, 0.4), strict=True)
    )
    pools = [selling(first, here, DEAR), selling(second, there, DEAR)]
    outcome = given(pod("p", selector={labels.ZONE: zones[0]}), pools=pools, types=[here, there, DEAR])
    assert chosen(outcome) == [(first, here.name)]


@NAMES
def test_a_weight_goes_before_any_price(first: str, second: str) -> None:
    pools = [selling(first, SMALL), selling(second, DEAR, weight=1)]
    assert chosen(given(pod("p"), pools=pools, types=TYPES)) == [(second, "dear")]


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a"), ("m", "z", "a")])
def test_the_last_name_in_the_alphabet_breaks_a_tie(names: tuple[str, ...]) -> None:
    """As in Karpenter."""
    assert chosen(given(pod("p"), pools=[selling(name, SMALL) for name in names], types=TYPES)) == [("z", "small")]


@NAMES
def test_three_pools_are_tried_by_price_as_their_limits_are_reached(first: str, second: str) -> None:
    one: Mapping[str, Any] = {"limits": {"nodes": 1}}
    middle = fake_type("middle", cpu="4", memory="8Gi", pods="20", price=1.2)
    pools = [selling(first, SMALL, **one), selling("m", middle, **one), selling(second, DEAR, **one)]
    outcome = given(*(pod(f"p{place}", cpu="3") for place in range(4)), pools=pools, types=[*TYPES, middle])
    assert chosen(outcome) == sorted([(first, "small"), ("m", "middle"), (second, "dear")])
    assert len(outcome.plan.unschedulable) == 1


@NAMES
def test_consolidation_replaces_a_node_by_one_of_a_cheaper_pool_of_the_same_weight(first: str, second: str) -> None:
    """The first tier of the cheaper pool is sold out."""
    everywhere = (("on-demand", Z1), ("on-demand", Z2))
    gone = fake_type("gone", cpu="4", memory="8Gi", pods="20", price=0.9, offerings=everywhere, unavailable=everywhere)
    tiered = disruptable(first, rule(labels.INSTANCE_TYPE, "In", "gone", "*"), ON_DEMAND)
    verdict = disrupted(
        small("n", pool=second, labels={labels.INSTANCE_TYPE: "dear"}),
        pods=[pod("p", node="n", cpu="3")],
        pools=[tiered, disruptable(second, rule(labels.INSTANCE_TYPE, "In", "dear"), ON_DEMAND)],
        types=[gone, SMALL, DEAR],
    )
    assert [(claim.node_pool, claim.instance_types) for claim in verdict.command.replacements] == [(first, ("small",))]
