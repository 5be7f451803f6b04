"""Weights of commitments: what one unit more of each would save, by the nodes that plans have bought."""

from __future__ import annotations

import numpy as np
import pytest

from shiplap.manifests.nodeclaim import PodReference
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import SavingsPlan
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom, RegionalRoom
from shiplap.policies.commitments.commitment_weights import (
    LEAST_WEIGHT,
    BoughtNode,
    PodDemand,
    bought_nodes,
    list_values,
    weighed_commitments,
)
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Plan, PlannedClaim
from shiplap.scheduling.planner import plan
from tests.builders.pods import pod, pods
from tests.conformance.commitments_savings import savings, snapshot_of
from tests.conformance.given import NOW

STEADY, ANY = "steady", "any"


class Demand(PodDemand):
    """The demand of the pods of two NodePools, in CPUs."""

    def __init__(self, steady: float, other: float) -> None:
        self.total = np.array([steady, other])
        self.scale = np.maximum(self.total, 1.0)


def node(node_pool: str, instance_type: str, hourly: float, *, spot: bool = False) -> BoughtNode:
    """It holds four CPUs of its NodePool's pods."""
    asks = np.array([4.0, 0.0] if node_pool == STEADY else [0.0, 4.0])
    return BoughtNode(instance_type, hourly, asks, not spot)


NODES = [node(STEADY, "m.large", 1.0), node(ANY, "m.large", 1.0), node(ANY, "m.large", 0.3, spot=True)]


@pytest.mark.parametrize(
    ("steady", "other", "dollars", "weight"),
    [
        (40.0, 40.0, 3.5, 1 / 0.7),  # half of what must not be on spot
        (40.0, 40.0, 10.5, 0.3 / 0.7),  # all of that, and half of what spot would do for
        (40.0, 40.0, 20.0, LEAST_WEIGHT),  # more than enough
        (0.0, 40.0, 3.5, 0.3 / 0.7),
    ],
)
def test_a_dollar_is_worth_what_the_last_one_saves(steady: float, other: float, dollars: float, weight: float) -> None:
    found = weighed_commitments(Demand(steady, other), NODES, savings(dollars))
    assert found.weights == {"sp": pytest.approx(weight, rel=1e-4)}


def test_reserved_instances_are_weighed_by_the_list_price_they_save() -> None:
    room = CommitmentRoom(regional=(RegionalRoom("m", 3 * 16), RegionalRoom("c", 16)))
    found = weighed_commitments(Demand(40.0, 40.0), NODES, room)
    assert found.weights == {"m": pytest.approx(1.0, rel=1e-4), "c": LEAST_WEIGHT}, "no node is of the other family"


def test_two_commitments_are_weighed_together() -> None:
    """The family's plan can pay only for what spot would do for; so the other plan is left to what may not be on spot.

    One after the other, the plan of the family would come first, and be worth as much.
    """
    nodes = [node(STEADY, "c.large", 1.0), node(ANY, "m.large", 1.0), node(ANY, "m.large", 0.3, spot=True)]
    ppm = 700_000
    both = CommitmentRoom(
        savings_plans=(
            SavingsPlan("own", 14 * MICROS, NOW * 2, "m", rate_ppm=ppm),
            SavingsPlan("sp", 7 * MICROS, NOW * 2, rate_ppm=ppm),
        )
    )
    found = weighed_commitments(Demand(60.0, 40.0), nodes, both)
    assert found.weights == {"own": LEAST_WEIGHT, "sp": pytest.approx(1 / 0.7, rel=1e-4)}


def test_a_plan_whose_rate_is_above_the_list_price_pays_for_nothing() -> None:
    """List prices have fallen below what the plan takes. The plan of another family is weighed as if alone."""
    rates = {"m.large": 2 * MICROS, "c.large": MICROS // 2}
    dear = SavingsPlan("dear", 14 * MICROS, NOW * 2, "m", rates)
    fair = SavingsPlan("fair", 7 * MICROS, NOW * 2, "c", rates)
    nodes = [node(STEADY, "m.large", 1.0), node(ANY, "c.large", 1.0)]
    found = weighed_commitments(Demand(40.0, 80.0), nodes, CommitmentRoom(savings_plans=(dear, fair)))
    assert found.weights == {"dear": LEAST_WEIGHT, "fair": pytest.approx(2.0, rel=1e-4)}


def test_what_pods_cost_at_list_prices_is_that_of_the_cheapest_nodes() -> None:
    values = list_values(Demand(40.0, 40.0), NODES)
    assert values.tolist() == [pytest.approx(0.25, rel=1e-4), pytest.approx(0.075, rel=1e-4)]


def test_the_ledger_takes_a_dollar_at_the_weight_of_its_commitment() -> None:
    room = CommitmentRoom(
        regional=(RegionalRoom("m", 8),),
        savings_plans=(SavingsPlan("sp", MICROS, NOW * 2, rate_ppm=700_000),),
        weight=0.5,
        weights={"sp": 2.0},
    )
    cover = CommitmentLedger(room).quote("m.large", "z1", MICROS)  # half of it reserved, the other half by the plan
    assert (cover.uncovered, cover.taken) == (0, 850_000)
    assert cover.weighed == 0.5 * 500_000 + 2.0 * 350_000


def test_bought_nodes_ask_for_what_their_pods_ask() -> None:
    waiting = tuple(pods(8, cpu="1"))
    snapshot = snapshot_of(*waiting, room=None)
    made: Plan = plan(snapshot)
    demand = PodDemand(snapshot, made)
    covered = {claim.name: claim.launch.capacity_type == "on-demand" for claim in made.node_claims}
    nodes = bought_nodes(demand, made.node_claims, covered)
    of = {claim.launch.instance_type: 0 for claim in made.node_claims}
    for claim in made.node_claims:
        of[claim.launch.instance_type] += 1
    together = sum(bought.asks * of[bought.instance_type] for bought in nodes)
    assert together.tolist() == demand.total.tolist()
    first = made.node_claims[0]
    values = np.ones(len(demand.total))
    assert demand.worth(first, values) == demand.of(first.pods).sum()
    rest = demand.without([first])
    assert (rest.total + demand.of(first.pods)).tolist() == demand.total.tolist()
    assert demand.of([PodReference("default", "a stranger")]).tolist() == [0.0] * len(demand.total)


def test_nodes_of_two_pools_and_nodes_that_keep_room_are_not_averaged_together() -> None:
    """One type at one price: nodes of each NodePool ask for what its own pods ask. Room that is kept asks nothing."""

    def claim(name: str, node_pool: str, *pods_of: str, virtual: bool = False) -> PlannedClaim:
        references = tuple(PodReference("default", item) for item in pods_of)
        return PlannedClaim(
            name=name,
            node_pool=node_pool,
            node_class="default",
            tier=0,
            requirements=(),
            taints=(),
            labels={},
            requests={},
            instance_types=("m.large",),
            launch=LaunchChoice("m.large", "z1", "on-demand", 1.0),
            pods=references,
            virtual_pods=references if virtual else (),
        )

    waiting = (*pods(2, "small", cpu="1"), pod("large", cpu="4"), pod("spare", cpu="2"))
    claims = [
        claim("a", STEADY, "small-0"),
        claim("b", STEADY, "small-1"),
        claim("c", ANY, "large"),
        claim("d", ANY, "spare", virtual=True),
    ]
    demand = PodDemand(snapshot_of(*waiting, room=None), Plan(node_claims=tuple(claims)))
    bought = bought_nodes(demand, claims, {item.name: True for item in claims})
    assert sorted(float(node.asks.max()) for node in bought) == [1000.0, 4000.0]


def test_a_plan_without_nodes_asks_for_nothing() -> None:
    """As where limits leave no room at list prices."""
    snapshot = snapshot_of(*pods(2, cpu="1"), room=None)
    demand = PodDemand(snapshot, Plan())
    made = plan(snapshot)
    nodes = bought_nodes(demand, made.node_claims, {claim.name: True for claim in made.node_claims})
    assert list_values(demand, nodes).tolist() == []
    found = weighed_commitments(demand, nodes, savings(1.0))
    assert (found.weights, found.hourly) == ({"sp": LEAST_WEIGHT}, 0.0)
