"""Replacements never cost less than their least price, and knowing that price changes no decision."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.disruption.decide import decide
from shiplap.kubernetes import labels
from shiplap.scheduling.removal import Removals
from shiplap.scheduling.search.least_prices import SoldResources, worth_of_sizes
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.builders.pools import rule as requirement
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.living_cluster import LivingCluster
from tests.property.drawn_bodies import bodies
from tests.thoroughness import draws

ZONES = (("on-demand", Z1), ("on-demand", Z2))
TYPES = (
    fake_type("small", cpu="2", memory="4Gi", pods="10", price=1.0, offerings=ZONES),
    fake_type("medium", cpu="4", memory="16Gi", pods="20", price=2.1, offerings=ZONES),
    fake_type("large", cpu="16", memory="32Gi", pods="50", price=7.0, offerings=ZONES[:1]),
    fake_type("bargain", cpu="8", memory="32Gi", pods="40", price=0.9, offerings=ZONES),
)
BARGAIN = requirement(labels.INSTANCE_TYPE, "In", "bargain")
DEARER = requirement(labels.INSTANCE_TYPE, "NotIn", "bargain")
ONLY_BARGAINS: dict[str, Any] = {"selector": {labels.INSTANCE_TYPE: "bargain"}}
SELECTING: tuple[dict[str, Any], ...] = (
    ONLY_BARGAINS,
    {"selector": {labels.NODE_POOL: "preferred"}},
    {"selector": {labels.NODE_POOL: "other"}},
    {"selector": {labels.NODE_POOL: "preferred", labels.ZONE: Z2}},
)
"""What pods select beside the kinds of `bodies`."""
KINDS = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 10])
CPUS = st.sampled_from(["0", "500m", "1", "3", "3", "5"])
GROUPS = st.tuples(KINDS, CPUS, st.sampled_from(["100Mi", "2Gi", "7Gi"]), st.integers(1, 6))


@st.composite
def clusters(draw: st.DrawFn) -> LivingCluster:
    """Clusters in which the cheapest type by far is only bought where the preferred NodePool cannot."""
    limits = draw(st.sampled_from([{}, {"cpu": "8"}, {"nodes": "1"}]))
    preferred = pool("preferred", DEARER, weight=10, limits=limits, budgets=[{"nodes": "100%"}])
    others = draw(
        st.sampled_from([[], [pool("other", BARGAIN)], [pool("other", BARGAIN)], [pool("beside", weight=10)]])
    )
    cluster = LivingCluster([preferred, *others], TYPES)
    for place, (kind, cpu, memory, number) in enumerate(draw(st.lists(GROUPS, min_size=1, max_size=6))):
        body = SELECTING[kind - 7] if kind >= 7 else bodies(kind)
        cluster.create(pods(number, f"p{place}", cpu=cpu, memory=memory, **body))
        if draw(st.booleans()):
            cluster.schedule()
    cluster.schedule()
    cluster.delete([key for key, item in cluster.pods.items() if not item.spec.node_name])
    cluster.delete(draw(st.sets(st.sampled_from(sorted(cluster.pods)), max_size=6)) if cluster.pods else ())
    cluster.now += draw(st.sampled_from([0.0, 7200.0, 90_000.0]))
    return cluster


@settings(derandomize=True, deadline=None, max_examples=draws(80))
@given(clusters(), st.data())
def test_no_replacement_is_cheaper_than_the_least_price(cluster: LivingCluster, data: st.DataObject) -> None:
    snapshot = cluster.snapshot()
    names = sorted(node.metadata.name for node in snapshot.view.nodes)
    removals = Removals(snapshot, names)
    together = data.draw(st.lists(st.sets(st.sampled_from(names), min_size=2), max_size=3)) if len(names) > 1 else []
    for removed in [*({name} for name in names), *together]:
        planned, _ = removals.plan_without(removed)
        if not planned.unschedulable:
            assert removals.least_hourly(sorted(removed)) <= planned.hourly + 1e-6


GIB = 1 << 30
SOLD = st.tuples(st.integers(0, 64_000), st.integers(0, 256), st.floats(0.001, 4.0))
"""Millicores, GiB and USD per hour of a node."""


@settings(derandomize=True, deadline=None, max_examples=draws(200))
@given(st.lists(st.tuples(SOLD, st.integers(0, 7)), min_size=1, max_size=8))
def test_no_nodes_are_worth_as_much_for_less_than_the_least_price(
    nodes: list[tuple[tuple[int, int, float], int]],
) -> None:
    net = np.array([(millicores, gib * GIB) for (millicores, gib, _), _ in nodes], np.float64)
    price, number = np.array([price for (*_, price), _ in nodes]), np.array([number for _, number in nodes])
    bought = (number * price).sum()
    assert SoldResources(net, price).least_price(worth_of_sizes(number[None, :] @ net)[0]) <= bought * (1 + 1e-9) + 1e-9


def test_what_is_too_much_for_one_node_costs_two() -> None:
    net = np.array([(2000.0, 4.0 * GIB), (4000.0, 8.0 * GIB)])
    sold = SoldResources(net, np.array([0.1, 0.2]))
    assert sold.least_price(worth_of_sizes(net[:1])[0]) == pytest.approx(0.1)
    assert sold.least_price(worth_of_sizes(net[:1] * 1.05)[0]) == pytest.approx(0.2, rel=0.02)
    assert sold.least_price(worth_of_sizes(net[1:] * 1.05)[0]) == pytest.approx(0.3, rel=0.02)
    assert sold.least_price(np.zeros(17)) == 0.0
    assert SoldResources(net, np.array([0.0, 0.2])).least_price(worth_of_sizes(net)[0]) == 0.0


@settings(derandomize=True, deadline=None, max_examples=draws(40))
@given(clusters())
def test_without_a_least_price_the_same_is_decided(cluster: LivingCluster) -> None:
    snapshot = cluster.disruption_snapshot()
    with patch.object(Removals, "least_hourly", return_value=0.0):
        expected = decide(snapshot)
    assert decide(snapshot).commands == expected.commands


@pytest.mark.parametrize(("limits", "body"), [({}, ONLY_BARGAINS), ({"cpu": "1"}, {})])
def test_pods_that_only_a_lesser_pool_takes_are_priced_by_its_types(
    limits: dict[str, str], body: dict[str, Any]
) -> None:
    pools = [pool("preferred", DEARER, weight=10, limits=limits), pool("other", BARGAIN)]
    cluster = LivingCluster(pools, TYPES)
    cluster.create(pods(4, cpu="3", memory="2Gi", **body))
    cluster.schedule()
    names = sorted(cluster.nodes)
    removals = Removals(cluster.snapshot(), names)
    assert len(names) == 2
    assert all(0 < removals.least_hourly([name]) <= 0.9 for name in names)


def test_pods_that_select_a_pool_are_priced_by_its_types() -> None:
    pools = [pool("other", DEARER), pool("cheap", BARGAIN, weight=10)]
    cluster = LivingCluster(pools, TYPES)
    cluster.create(pods(2, cpu="3", memory="2Gi", selector={labels.NODE_POOL: "other"}))
    cluster.schedule()
    name, _ = cluster.nodes
    assert Removals(cluster.snapshot(), [name]).least_hourly([name]) == pytest.approx(2.0, rel=0.05)


def test_pods_that_lesser_pools_take_only_in_another_zone_are_priced_by_both() -> None:
    near = requirement(labels.ZONE, "In", Z1)
    cluster = LivingCluster([pool("preferred", DEARER, near, weight=10), pool("other", BARGAIN)], TYPES)
    cluster.create(pods(2, cpu="3", memory="2Gi", selector={labels.ZONE: Z2}))
    cluster.schedule()
    name = min(cluster.nodes)
    assert 0 < Removals(cluster.snapshot(), [name]).least_hourly([name]) <= 0.9
