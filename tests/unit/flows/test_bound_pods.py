"""Bound pods from the snapshot in the bucket, caught up with what has changed since."""

from __future__ import annotations

import pytest
from msgspec import structs

from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.errors import ClusterUnreachable, ResourceVersionGone, StoreError
from shiplap.flows.planning import decision_inputs
from shiplap.flows.planning.decision_inputs import (
    CARRIED_S,
    FEWEST_NODES,
    OLDEST_S,
    WHOLE_LOOK_S,
    BoundPods,
    CarriedPods,
)
from shiplap.ports import WatchEvent
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.stage import CLUSTER, Stage


class Snapshotted:
    """A stage with three bound pods, of which the bucket has a snapshot."""

    def __init__(self, cluster: str = CLUSTER) -> None:
        self.stage = Stage()
        self.snapshots = FakeSnapshots()
        for name in "abc":
            self.add(name)
        self.keep(cluster)
        if cluster != CLUSTER:
            self.snapshots.documents[CLUSTER] = self.snapshots.documents[cluster]
        self.known = BoundPods(CLUSTER, structs.replace(self.stage.context, snapshots=self.snapshots))

    def keep(self, cluster: str = CLUSTER) -> None:
        """Write a snapshot of the pods as they are now."""
        clock = self.stage.clock
        keeper = SnapshotKeeper(cluster, self.stage.cluster, self.snapshots, clock=clock, fewest_pods=1)
        keeper.established.set()
        keeper.round(1.0)

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


def test_what_was_caught_up_is_gone_on_from_for_two_minutes_and_then_loaded_again() -> None:
    cluster = Snapshotted()
    assert cluster.names() == ["a", "b", "c"]
    cluster.snapshots.documents.clear()
    cluster.stage.clock.advance(CARRIED_S)
    assert cluster.names() == ["a", "b", "c"]
    cluster.stage.clock.advance(CARRIED_S)  # each look counts
    assert cluster.names() == ["a", "b", "c"]
    cluster.stage.clock.advance(CARRIED_S + 1)
    assert cluster.names() is None
    assert cluster.names() is None


@pytest.mark.parametrize("lost", ["deletion", "addition", "change"])
def test_what_no_watch_told_of_is_found_by_a_whole_look(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Snapshotted()
    assert cluster.names() == ["a", "b", "c"]
    with monkeypatch.context() as patch:
        patch.setattr(cluster.stage.cluster, "watch", lambda *_: iter(()))
        if lost == "deletion":
            cluster.stage.server.delete("pods", "b", grace_s=0)
        elif lost == "addition":
            cluster.add("late")
        else:
            cluster.stage.server.patch("pods", "a", {"metadata": {"labels": {"app": "web"}}})
        # The version goes on, as with a watch that skips a change.
        marker = cluster.stage.server.create("nodes", {"metadata": {"name": "n9"}})
        event = WatchEvent("BOOKMARK", None, marker["metadata"]["resourceVersion"])
        patch.setattr(cluster.stage.cluster, "watch", lambda *_: iter((event,)))
        assert cluster.names() == ["a", "b", "c"], "lost"
    for _ in range(int(WHOLE_LOOK_S // CARRIED_S)):
        cluster.stage.clock.advance(CARRIED_S)
        assert cluster.names() == ["a", "b", "c"]
    cluster.keep()
    cluster.stage.clock.advance(1)
    pods = cluster.known(FEWEST_NODES, cluster.stage.server.resource_version)
    assert pods is not None
    found = {pod.metadata.name: dict(pod.metadata.labels) for pod in pods}
    assert found == {pod.metadata.name: dict(pod.metadata.labels) for pod in cluster.stage.cluster.pods_on("n1")}


def test_what_was_found_out_about_the_same_pods_is_known_at_the_next_look() -> None:
    cluster, asked = Snapshotted(), []

    def question(view: ClusterView) -> int:
        asked.append(len(view.pods))
        return len(view.pods)

    def look() -> int:
        pods = cluster.known(FEWEST_NODES, cluster.stage.server.resource_version)
        assert pods is not None
        return cluster.known.remembering(ClusterView(pods=tuple(pods), version=str(len(asked)))).of_pods(question)

    assert [look(), look(), look()] == [3, 3, 3]
    assert asked == [3]
    cluster.stage.server.patch("pods", "a", {"metadata": {"labels": {"app": "web"}}})
    assert [look(), look()] == [3, 3]
    assert asked == [3, 3], "another object of the same pod is asked about anew"


def test_pods_are_carried_of_the_clusters_looked_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, carried = Snapshotted(), CarriedPods()
    context = structs.replace(cluster.stage.context, snapshots=cluster.snapshots)
    monkeypatch.setattr(decision_inputs, "MOST_CARRIED", 3)
    first = carried.of(CLUSTER, context)
    assert first(FEWEST_NODES, "1") is not None
    assert carried.of("second", context) is not first
    assert carried.of(CLUSTER, context) is first
    monkeypatch.setattr(decision_inputs, "MOST_CARRIED", 2)
    carried.of("second", context)
    assert carried.of(CLUSTER, context) is not first


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
