"""Bound pods from the snapshot in the bucket, caught up with what has changed since."""

from __future__ import annotations

import pytest
from msgspec import structs

from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.errors import ClusterUnreachable, ResourceVersionGone, StoreError
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


def test_no_change_is_waited_for_once_all_is_known_that_was_listed() -> None:
    """More may have come since; the next look finds it."""
    cluster = Snapshotted()
    cluster.add("one")
    listed = cluster.stage.server.resource_version
    cluster.add("two")
    pods = cluster.known(FEWEST_NODES, listed)
    assert pods is not None
    assert sorted(pod.metadata.name for pod in pods) == ["a", "b", "c", "one"]
    assert cluster.names() == ["a", "b", "c", "one", "two"]


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


def test_what_was_caught_up_is_gone_on_from_for_half_a_minute_and_then_loaded_again() -> None:
    cluster = Snapshotted()
    assert cluster.names() == ["a", "b", "c"]
    cluster.snapshots.documents.clear()
    cluster.stage.clock.advance(30)
    assert cluster.names() == ["a", "b", "c"]
    cluster.stage.clock.advance(30)  # each look counts
    assert cluster.names() == ["a", "b", "c"]
    cluster.stage.clock.advance(31)
    assert cluster.names() is None
    assert cluster.names() is None


def test_after_a_gap_the_snapshot_is_loaded_anew() -> None:
    cluster = Snapshotted()
    assert cluster.names() == ["a", "b", "c"]
    cluster.add("late")
    cluster.stage.faults.on("before", "cluster.watch", ResourceVersionGone("too old"))
    assert cluster.names() == ["a", "b", "c", "late"]


@pytest.mark.parametrize(
    ("effect", "error", "metric"),
    [
        ("snapshots.load", StoreError("denied"), "SnapshotsNotRead"),
        ("cluster.watch", ClusterUnreachable("no answer"), "SnapshotsNotCaughtUp"),
        ("cluster.watch", ResourceVersionGone("too old"), None),
    ],
)
def test_a_snapshot_that_does_not_serve_is_counted_where_something_is_wrong(
    effect: str, error: Exception, metric: str | None
) -> None:
    cluster = Snapshotted()
    cluster.snapshots.faults = cluster.stage.faults
    cluster.stage.faults.on("before", effect, error)
    assert cluster.names() is None
    assert cluster.stage.meter.counts == ({metric: 1.0} if metric else {})


def test_a_snapshot_that_cannot_be_read_is_counted() -> None:
    cluster = Snapshotted()
    cluster.snapshots.documents[CLUSTER] = (b"garbage", 0.0)
    assert cluster.names() is None
    assert cluster.stage.meter.counts == {"SnapshotsNotRead": 1.0}


def test_without_a_bucket_or_a_snapshot_pods_are_listed() -> None:
    cluster = Snapshotted()
    assert BoundPods(CLUSTER, cluster.stage.context)(FEWEST_NODES, "1") is None
    cluster.snapshots.documents.clear()
    assert cluster.names() is None
    assert cluster.stage.meter.counts == {}


def test_a_bookmark_moves_on_and_changes_nothing_and_a_change_replaces_the_pod() -> None:
    cluster = Snapshotted()
    assert cluster.names() == ["a", "b", "c"]
    cluster.stage.server.create("nodes", {"metadata": {"name": "n9"}})  # versions go on without a change of pods
    cluster.stage.server.patch("pods", "a", {"metadata": {"labels": {"app": "web"}}})
    cluster.stage.server.create("nodes", {"metadata": {"name": "n8"}})
    pods = cluster.known(FEWEST_NODES, cluster.stage.server.resource_version)
    assert pods is not None
    assert {pod.metadata.name: dict(pod.metadata.labels) for pod in pods} == {"a": {"app": "web"}, "b": {}, "c": {}}
