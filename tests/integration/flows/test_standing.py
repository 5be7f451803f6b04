"""Tests which facts decisions take from the compact snapshot or list fresh, and what a stale view must never do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.errors import EpochMoved, ResourceVersionGone, StoreError
from shiplap.flows.planning import decision_inputs
from shiplap.flows.planning.decision_inputs import OLDEST_S
from shiplap.kubernetes import labels
from shiplap.kubernetes.compact_pods import SnapshotHeader, encode_pods
from shiplap.kubernetes.request_bodies import BOUND_PODS
from shiplap_lab.api_server.server import EVERYTHING
from shiplap_lab.fakes.cluster import FakeCluster, ListOptions
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.disrupted import Disrupted, kinds, oversized
from tests.integration.flows.stage import CLUSTER, Stage


@pytest.fixture(autouse=True)
def small_clusters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_inputs, "FEWEST_NODES", 0)


def kept(stage: Stage) -> SnapshotKeeper:
    """A watch function that has just written the stage's snapshot."""
    snapshots = FakeSnapshots(stage.faults)
    stage.context = replace(stage.context, snapshots=snapshots)
    keeper = SnapshotKeeper(stage.name, stage.cluster, snapshots, clock=stage.clock, fewest_pods=0)
    keeper.established.set()
    keeper.round(1.0)
    stage.faults.clear()
    return keeper


def lists_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record each list request from here on, with its field selector."""
    seen: list[tuple[str, str]] = []
    listing = FakeCluster._list

    def noted(api: FakeCluster, plural: str, typed: type, selection: ListOptions = EVERYTHING) -> tuple:
        seen.append((plural, selection.field_selector))
        return listing(api, plural, typed, selection)

    monkeypatch.setattr(FakeCluster, "_list", noted)
    return seen


def running(**settings: object) -> Disrupted:
    stage = oversized(**settings)
    kept(stage)
    return stage


def test_bound_pods_are_not_listed_and_all_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running()
    stage.add_pods(2, prefix="new", cpu="7")
    seen = lists_of(monkeypatch)
    assert len(stage.schedule().launched) == 2
    assert ("pods", BOUND_PODS) not in seen
    listed = {plural for plural, _ in seen}
    assert {"pods", "nodes", "daemonsets", "events"} <= listed


def test_what_a_snapshot_lacks_comes_from_the_changes_since() -> None:
    """A node that is full by now takes no pod; room that has become free since is used."""
    for frees in (False, True):
        stage = running()
        (name,) = [item["metadata"]["name"] for item in stage.server.list("nodes").items]
        if frees:
            stage.server.delete("pods", "web-000", grace_s=0)
        else:
            stage.add_pods(1, prefix="late", cpu="5", memory="1Gi")
            stage.server.bind("late-000", name)
        stage.add_pods(1, prefix="new", cpu="6", memory="1Gi")
        assert len(stage.schedule().launched) == (0 if frees else 1)


@pytest.mark.parametrize("defect", ["none", "unreadable", "foreign", "incomplete", "old", "refused", "forgotten"])
def test_without_a_snapshot_that_serves_pods_are_listed(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running()
    snapshots = stage.context.snapshots
    assert isinstance(snapshots, FakeSnapshots)
    now = stage.clock.now()
    about = SnapshotHeader(cluster=CLUSTER, version="1", taken_at=now, listed_at=now, kept_since=1.0)
    match defect:
        case "none":
            snapshots.documents.clear()
        case "unreadable":
            snapshots.save(CLUSTER, b"x", 1.0)
        case "foreign":
            snapshots.save(CLUSTER, encode_pods([], replace(about, cluster="green")), 1.0)
        case "incomplete":
            snapshots.save(CLUSTER, encode_pods([], replace(about, complete=False)), 1.0)
        case "old":
            stage.clock.advance(OLDEST_S + 1)
        case "refused":
            stage.faults.on("before", "snapshots.load", StoreError("denied"))
        case "forgotten":
            stage.faults.on("before", "cluster.watch", ResourceVersionGone("compacted", status=410))
    stage.add_pods(1, prefix="new", cpu="7", memory="1Gi")  # fits beside nothing
    seen = lists_of(monkeypatch)
    assert len(stage.schedule().launched) == 1
    assert ("pods", BOUND_PODS) in seen
    assert stage.meter.counts.get("SnapshotsNotRead", 0) == (defect in ("unreadable", "refused"))


def test_a_decision_of_several_rounds_loads_the_snapshot_once() -> None:
    stage = running()
    stage.add_pods(3, prefix="new", cpu="7")
    stage.faults.on("before", "state.commit", EpochMoved(stage.name, 1))
    assert stage.schedule().rounds == 2
    assert stage.faults.points.count("before snapshots.load") == 1


def test_a_node_is_emptied_by_what_it_holds_then_not_by_the_snapshot() -> None:
    """Decided twice on a view that lacks a pod: the last look finds it, and nothing begins."""
    stage = running()
    stage.disrupt()
    stage.clock.advance(60)
    kept(stage)
    (name,) = [item["metadata"]["name"] for item in stage.server.list("nodes").items]
    protected = {labels.DO_NOT_DISRUPT: "true"}

    def bind_unseen() -> None:
        stage.server.create(
            "pods",
            {
                "metadata": {"name": "precious", "annotations": protected},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
            },
        )
        stage.server.bind("precious", name)

    # After the view was made, before the decision is begun.
    stage.faults.on("before", "cluster.disruption_budgets", bind_unseen)
    assert stage.disrupt().begun == ()
    assert stage.meter.counts["ProposalsOutdated"] == 1
    assert stage.tainted() == []
    stage.minutes(10)
    assert kinds(stage) == ["m6i.2xlarge"]


def test_with_a_snapshot_nodes_are_replaced_as_without() -> None:
    stage = running()
    for _ in range(12):
        kept(stage)
        stage.minutes(1)
    assert kinds(stage) == ["m6i.large"]
    assert stage.pending() == 0


def test_budgets_are_read_fresh_whatever_the_snapshot_says(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running()
    seen = lists_of(monkeypatch)
    stage.disrupt()
    listed = {plural for plural, _ in seen}
    assert {"poddisruptionbudgets", "nodes"} <= listed
    assert ("pods", BOUND_PODS) not in seen
