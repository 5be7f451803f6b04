"""Objects as large as an API server stores them: what they cost is bounded by counters, and neighbours are planned.

`benchmarks/planning/adversarial.py` measures time and memory of the same clusters.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.planner import plan
from tests.hostile_clusters import DIMENSIONS, HostileCluster, StoredLists, cluster_of, drawn_cluster, snapshot_of
from tests.thoroughness import draws, sampled

PODS, HOSTILE = 24, 8


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable chance


def planned(cluster: HostileCluster) -> set[str]:
    """The pods that have a place; each of them is bounded, and nobody is forgotten."""
    snapshot = snapshot_of(cluster)
    compiled = compile_snapshot(snapshot)
    assert len(compiled.axis) <= BOUNDS.resources + 3
    decided = plan(snapshot)
    homes = {pod.name for home in (*decided.node_claims, *decided.existing_nodes) for pod in home.pods}
    told = {entry.pod.name for entry in (*decided.unschedulable, *decided.ignored)}
    waiting = {pod.metadata.name for pod in snapshot.view.pods if not pod.spec.node_name}
    waiting |= {pod.name for pod in snapshot.view.unreadable if pod.waits}
    assert homes | told == waiting
    assert not homes & told
    assert all(
        len(entry.message) <= BOUNDS.reason_characters + 30 for entry in (*decided.unschedulable, *decided.ignored)
    )
    for claim in decided.node_claims:
        assert all(len(words) <= BOUNDS.reason_characters + 30 for words in (*claim.reasons, *claim.gave_up))
    return homes


@pytest.mark.parametrize("dimension", sorted(DIMENSIONS))
def test_neighbours_of_pods_that_are_large_in_one_way_are_planned(dimension: str) -> None:
    """Pods with a number below HOSTILE are hostile, each with names of its own."""
    for seed in range(2):
        cluster = cluster_of(chance_of(seed), [dimension], [], PODS, HOSTILE, elements=20_000)
        honest = {f"p{number}" for number in range(HOSTILE, PODS) if number % 10 != 9}
        assert honest <= planned(cluster)


@settings(derandomize=True, deadline=None, max_examples=draws(25), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 40))
def test_a_hostile_cluster_is_planned_and_every_pod_told_of(seed: int) -> None:
    planned(drawn_cluster(seed, PODS))


@pytest.mark.parametrize("dimension", sampled(sorted(set(DIMENSIONS) - {"long_values"}), 7))
def test_what_a_view_holds_of_large_pods_is_bounded_however_much_they_have(dimension: str) -> None:
    """A pod of twenty thousand elements leaves its name and a reason."""
    cluster = cluster_of(chance_of(1), [dimension], [], PODS, HOSTILE, elements=20_000 * HOSTILE)
    assert len(msgspec.json.encode(snapshot_of(cluster).view)) < PODS * 4_000


def test_pages_of_large_pods_are_asked_for_in_parts_and_all_are_read() -> None:
    cluster = cluster_of(chance_of(1), ["managed_fields"], [], PODS, PODS, elements=PODS * 20_000)
    transport = StoredLists(cluster.lists, most_bytes=2**21)
    whole = snapshot_of(cluster).view
    assert snapshot_of(cluster, transport).view == whole
    assert transport.asked > 10
