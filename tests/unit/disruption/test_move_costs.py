"""Tests the saving that a command needs for its moves: their price, its nodes' expected remaining life, the overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.disruption.move_costs import OVERLAP_S, MoveCosts, expected_lives_s
from shiplap.disruption.standstill import LastDecision
from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.shiplap_annotations import MOVE_COST, node_pool_problem
from tests.beyond_bounds import beyond_bounds
from tests.builders.claims import node_claim
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.disruptions import NOW, Verdict, disrupted, holds_until, large
from tests.living_cluster import LivingCluster

HOUR_S = 3600.0
DEAR = fake_type("large", cpu="16", memory="32Gi", pods="50", price=1.0, offerings=(("on-demand", Z1),))
CHEAP = fake_type("small", cpu="4", memory="8Gi", pods="20", price=0.4, offerings=(("on-demand", Z1),))


def with_annotation(value: str) -> NodePool:
    made = pool()
    return replace(made, metadata=replace(made.metadata, annotations={MOVE_COST: value}))


def with_ages(*hours: float, pool_of: str = "default", state: ClaimState = ClaimState.INITIALIZED) -> dict[str, float]:
    claims = [
        node_claim(name=f"c{place}", node_pool=pool_of, state=state, created_at=NOW - age * HOUR_S)
        for place, age in enumerate(hours)
    ]
    return expected_lives_s(claims, DecisionClock(NOW))


def replaced(
    settings: DisruptionSettings,
    age_h: float,
    pools: list[NodePool] | None = None,
    expire_after: str = "Never",
    of_pods: Mapping[str, Any] = {},
) -> Verdict:
    """A node of 1.00 USD/h with two pods that a node of 0.40 USD/h could hold: 0.30 USD/h for each move."""
    node = large("a", created_at=NOW - age_h * HOUR_S, made={"expire_after": expire_after})
    pods = [pod_on(name, "a", cpu="1", **of_pods) for name in "pq"]
    return disrupted(node, pods=pods, pools=pools or [pool()], types=[CHEAP, DEAR], settings=settings)


@pytest.mark.parametrize(
    ("ages_h", "life_h"),
    [
        ((0.1,), 1),
        ((0.1, 1.9, 30), 1),
        ((2,), 2),
        ((0, 3.9, 50), 2),
        ((0, 0, 9, 9, 9), 8),
        ((5, 7, 17, 18), 4),
        ((23.9,), 16),
        ((24, 500), 24),
    ],
)
def test_nodes_are_expected_to_live_on_for_their_median_age(ages_h: tuple[float, ...], life_h: float) -> None:
    assert with_ages(*ages_h) == {"default": life_h * HOUR_S}


def test_nodes_that_leave_or_are_not_there_teach_nothing() -> None:
    assert with_ages(30, state=ClaimState.DRAINING) == {}
    assert with_ages(30, state=ClaimState.LAUNCHED) == {}


def test_a_saving_has_to_pay_for_its_moves_while_the_node_would_have_lived() -> None:
    """0.60 USD/h less 0.40 USD/h for five minutes of overlap in an hour, 0.28 USD for each of two moves."""
    overlap = 0.4 * OVERLAP_S / HOUR_S
    enough = (0.6 - overlap) / 2
    assert replaced(DisruptionSettings(move_cost=enough - 1e-3), 0.5).removed == {"a"}
    verdict = replaced(DisruptionSettings(move_cost=enough + 1e-3), 0.5)
    assert verdict.removed == set()
    assert verdict.blocked("a") == "would save $0.6016 an hour at most, less than $0.6019 for moving 2 pods"


@pytest.mark.parametrize("settings", [DisruptionSettings(move_cost=0.1), DisruptionSettings(least_saving_per_pod=0.1)])
@pytest.mark.parametrize(
    "dear",
    [
        {"priority": 1_000_000_000},
        {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1000000000"}}},
    ],
)
def test_every_move_costs_the_same(settings: DisruptionSettings, dear: dict[str, Any]) -> None:
    assert replaced(settings, 0.5).removed == {"a"}
    assert replaced(settings, 0.5, of_pods=dear).removed == {"a"}


def test_older_nodes_are_expected_to_live_longer() -> None:
    settings = DisruptionSettings(move_cost=1.0)
    assert replaced(settings, 3.9).removed == set()
    assert replaced(settings, 4.0).removed == {"a"}


def test_a_node_lives_no_longer_than_until_it_expires() -> None:
    settings = DisruptionSettings(move_cost=1.0)
    assert replaced(settings, 30, expire_after="40h").removed == {"a"}
    assert replaced(settings, 30, expire_after="33h").removed == set()
    assert replaced(settings, 30, expire_after="30h").removed == set()


def test_of_several_nodes_the_one_that_lives_shortest_says_how_soon_an_overlap_has_to_pay() -> None:
    short, long = (
        Candidate(Node(), node_claim(name=name), pool(name), NodeHistory(name, initialized_at=NOW), (), 1.0, 1.0)
        for name in ("short", "long")
    )
    costs = MoveCosts(DisruptionSettings(), {"short": HOUR_S, "long": 8 * HOUR_S}, NOW)
    for nodes in ([short, long], [long, short], [short]):
        assert costs.overlap(nodes, 0.4) == pytest.approx(0.4 * OVERLAP_S / HOUR_S)
    assert costs.overlap([long], 0.4) == pytest.approx(0.4 * OVERLAP_S / (8 * HOUR_S))


def test_a_nodepool_may_have_a_price_of_its_own() -> None:
    settings = DisruptionSettings(move_cost=1.0)
    assert replaced(settings, 0.5, [with_annotation("0.02")]).removed == {"a"}
    assert replaced(DisruptionSettings(move_cost=0.0), 0.5, [with_annotation("1")]).removed == set()


def test_the_deprecated_saving_per_pod_counts_alone_while_it_is_set() -> None:
    settings = DisruptionSettings(move_cost=1.0, least_saving_per_pod=0.299)
    assert replaced(settings, 0.5, [with_annotation("1")]).removed == {"a"}
    assert replaced(replace(settings, least_saving_per_pod=0.301), 90.0).removed == set()


def test_moves_without_a_price_only_have_to_pay_for_the_overlap() -> None:
    assert replaced(DisruptionSettings(move_cost=0.0), 0.5).removed == {"a"}
    assert replaced(DisruptionSettings(move_cost=0.0), 30, expire_after="1803m").removed == set()


@pytest.mark.parametrize("value", ["-1", "x", "", "1e3"])
def test_an_annotation_that_is_no_price_is_refused(value: str) -> None:
    assert node_pool_problem(MOVE_COST, value) == f"{value!r} is not an amount of USD, such as 0.05"
    with pytest.raises(InvalidInput, match="move-cost"):
        replaced(DisruptionSettings(), 0.5, [with_annotation(value)])


def test_the_settings_refuse_a_negative_price() -> None:
    reason = "must not be negative, is -1.0"
    assert beyond_bounds(DisruptionSettings(move_cost=-1.0)) == [(("moveCost",), reason)]
    assert beyond_bounds(DisruptionSettings(least_saving_per_pod=-1.0)) == [(("leastSavingPerPod",), reason)]


def test_a_decision_is_made_again_when_nodes_reach_a_further_step_of_life() -> None:
    cluster = LivingCluster([pool()], [DEAR], disruption=DisruptionSettings(move_cost=1.0))
    cluster.create([pod_on("p"), pod_on("q")])
    cluster.schedule()
    cluster.types["small"] = CHEAP
    cluster.now += 4 * HOUR_S - 60
    snapshot, last = cluster.disruption_snapshot(), LastDecision()
    assert last(snapshot).commands == ()
    assert holds_until(snapshot) == pytest.approx(snapshot.scheduling.now + 60, abs=0.01)
    cluster.now += 60
    assert [command.nodes for command in last(cluster.disruption_snapshot()).commands] == [tuple(cluster.nodes)]


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("move_cost", "moveCost"),
        ("least_saving_per_pod", "leastSavingPerPod"),
        ("least_saving_share", "leastSavingShare"),
        ("settle_s", "settleSeconds"),
        ("improve_s", "improveSeconds"),
        ("climb_back_s", "climbBackSeconds"),
    ],
)
def test_settings_may_be_nothing_and_not_less(field: str, written: str) -> None:
    assert beyond_bounds(replace(DisruptionSettings(), **{field: 0.0})) == []
    ((path, reason),) = beyond_bounds(replace(DisruptionSettings(), **{field: -0.5}))
    assert path == (written,)
    assert reason == "must not be negative, is -0.5"
    assert getattr(msgspec.convert({written: 0.25}, DisruptionSettings), field) == 0.25


def test_a_saving_is_a_share_below_all() -> None:
    assert beyond_bounds(DisruptionSettings(least_saving_share=0.99)) == []
    ((path, _),) = beyond_bounds(DisruptionSettings(least_saving_share=1.0))
    assert path == ("leastSavingShare",)


def test_what_disruption_does_unless_it_is_told_otherwise() -> None:
    """docs/explanation/disruption.md names these values."""
    assert DisruptionSettings() == DisruptionSettings(
        enabled=True,
        spot_to_spot=True,
        least_saving_per_pod=None,
        least_saving_share=0.1,
        settle_s=600.0,
        improve_s=0.6,
        climb_back_s=3600.0,
        expire_protected=False,
        move_cost=0.025,
    )
