"""Random clusters: whatever they look like, a plan keeps every rule, and nobody is left out who could have a node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.checker import violations
from tests.leftovers import could_be_placed
from tests.property.drawn_snapshots import flying, snapshots
from tests.thoroughness import draws

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(snapshots())
def test_a_plan_keeps_every_rule(snapshot: Snapshot) -> None:
    assert violations(snapshot, plan(snapshot)) == []


@SETTINGS
@given(snapshots())
def test_nobody_is_left_out_who_could_have_a_node(snapshot: Snapshot) -> None:
    assert could_be_placed(snapshot, plan(snapshot)) == []


@SETTINGS
@given(snapshots())
def test_planning_again_while_claims_are_in_flight_launches_nothing_for_the_same_pods(snapshot: Snapshot) -> None:
    first = plan(snapshot)
    again = msgspec.structs.replace(snapshot, claims=flying(first), epoch=1)
    second = plan(again)
    assert violations(again, second) == []
    settled = {entry for claim in first.node_claims for entry in claim.pods}
    assert not settled & {entry for claim in second.node_claims for entry in claim.pods}
    assert not settled & {record.pod for record in second.unschedulable}


@SETTINGS
@given(snapshots(), st.integers(0, 1000))
def test_the_order_of_lists_does_not_matter(snapshot: Snapshot, seed: int) -> None:
    shuffle = random.Random(seed)  # noqa: S311 - a shuffle for a test

    def mixed(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(shuffle.sample(items, len(items)))

    replace = msgspec.structs.replace
    view = replace(
        snapshot.view,
        pods=mixed(snapshot.view.pods),
        nodes=mixed(snapshot.view.nodes),
        daemon_sets=mixed(snapshot.view.daemon_sets),
    )
    other = replace(
        snapshot,
        view=view,
        manifests=replace(snapshot.manifests, node_pools=mixed(snapshot.manifests.node_pools)),
        catalogs=tuple(replace(item, instance_types=mixed(item.instance_types)) for item in snapshot.catalogs),
    )
    assert msgspec.json.encode(plan(other)) == msgspec.json.encode(plan(snapshot))
