"""Random clusters whose pods have topology constraints: whatever they look like, a plan keeps every one of them."""

from __future__ import annotations

import random

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.planner import plan
from tests.checker import violations
from tests.conformance import given as case
from tests.property.drawn_topologies import clusters
from tests.thoroughness import draws
from tests.topology_checker import affinity_violations, topology_violations

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(clusters())
def test_a_plan_keeps_every_topology_constraint(snapshot: Snapshot) -> None:
    result = plan(snapshot)
    assert violations(snapshot, result) == []
    assert topology_violations(snapshot, result) == []


@SETTINGS
@given(clusters())
def test_plans_while_claims_are_in_flight_keep_them_too(snapshot: Snapshot) -> None:
    first = plan(snapshot)
    flight = tuple(case.in_flight(claim) for claim in first.node_claims)
    again = msgspec.structs.replace(snapshot, claims=flight, epoch=1)
    second = plan(again)
    # Spreads are not judged again: a node launched for other pods may be a new domain, which was not there before.
    assert affinity_violations(again, second) == []
    settled = {entry for claim in first.node_claims for entry in claim.pods}
    assert not settled & {entry for claim in second.node_claims for entry in claim.pods}


@SETTINGS
@given(clusters(), st.integers(0, 1000))
def test_the_order_of_pods_and_nodes_does_not_matter(snapshot: Snapshot, seed: int) -> None:
    shuffle = random.Random(seed)  # noqa: S311 - a shuffle for a test
    pods = tuple(shuffle.sample(snapshot.view.pods, len(snapshot.view.pods)))
    nodes = tuple(shuffle.sample(snapshot.view.nodes, len(snapshot.view.nodes)))
    other = msgspec.structs.replace(snapshot, view=ClusterView(pods, nodes))
    assert msgspec.json.encode(plan(other)) == msgspec.json.encode(plan(snapshot))
