"""Bound pods from the snapshot in the bucket, caught up with what has changed since."""

from __future__ import annotations

import pytest
from msgspec import structs

from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.errors import ClusterUnreachable, ResourceVersionGone
from shiplap.flows.planning.decision_inputs import FEWEST_NODES, OLDEST_S, BoundPods
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.stage import CLUSTER, Stage


class Snapshotted:
    """A stage with three bound pods, of which the bucket has a snapshot."""

    def __init__(self, cluster: str = CLUSTER) -> None:
        self.stage = Stage()
        self.snapshots = FakeSnapshots()
        for name in "abc":
            self.add(name)
        clock = self.stage.clock
        keeper = SnapshotKeeper(cluster, self.stage.cluster, self.snapshots, clock=clock, fewest_pods=1)
        keeper.established.set()
        keeper.round(1.0)
        if cluster != CLUSTER:
            self.snapshots.documents[CLUSTER] = self.snapshots.documents[cluster]
        self.known = BoundPods(CLUSTER, structs.replace(self.stage.context, snapshots=self.snapshots))

    def add(self, name: str) -> None:
        self.stage.server.create("pods", {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}})
        self.stage.server.bind(name, "n1")

    def names(self, nodes: int = FEWEST_NODES) -> list[str] | None:
        pods = self.known(nodes, self.stage.server.resource_version)
        return None if pods is None else sorted(pod.metadata.name for pod in pods)


@pytest.mark.parametrize("seen_before", [False, True])
def test_pods_that_went_and_came_since_are_known(seen_before: bool) -> None:
    cluster = Snapshotted()
    if seen_before:
        assert cluster.names() == ["a", "b", "c"]
    cluster.stage.server.delete("pods", "b", grace_s=0)
    cluster.add("late")
    assert cluster.names() == ["a", "c", "late"]


@pytest.mark.parametrize("opaque", ["", "0x1f"])
def test_where_versions_have_no_order_all_changes_are_applied(opaque: str) -> None:
    cluster = Snapshotted()
    cluster.add("one")
    cluster.add("two")
    pods = cluster.known(FEWEST_NODES, opaque)
    assert pods is not None
    assert sorted(pod.metadata.name for pod in pods) == ["a", "b", "c", "one", "two"]


def test_a_small_cluster_is_listed() -> None:
    assert Snapshotted().names(FEWEST_NODES - 1) is None


def test_a_snapshot_that_its_keeper_left_behind_is_not_used() -> None:
    cluster = Snapshotted()
    cluster.stage.clock.advance(OLDEST_S)
    assert cluster.names() == ["a", "b", "c"]
    old = Snapshotted()
    old.stage.clock.advance(OLDEST_S + 1)
    assert old.names() is None


def test_the_snapshot_of_another_cluster_is_not_used() -> None:
    assert Snapshotted("another").names() is None


@pytest.mark.parametrize("error", [ResourceVersionGone("too old"), ClusterUnreachable("no answer")])
def test_pods_are_listed_when_changes_cannot_be_told(error: Exception) -> None:
    cluster = Snapshotted()
    for number in (1, 2):
        cluster.stage.faults.on("before", "cluster.watch", error, nth=number)
    assert cluster.names() is None
