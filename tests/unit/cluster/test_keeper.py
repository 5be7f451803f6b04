"""Keeping a cluster's snapshot: how often it is written, who writes it, and what is not kept."""

from __future__ import annotations

from threading import Event

import pytest

from shiplap.cluster.snapshot_keeper import REFRESH_S, RELIST_S, SAVE_S, SUCCESSOR_S, PodMemory, SnapshotKeeper
from shiplap.errors import ClusterUnreachable, ResourceVersionGone, StoreError
from shiplap.kubernetes.compact_pods import SnapshotHeader, decode_pods
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.fakes.stores import FakeSnapshots

BLUE = "blue"


class Kept:
    """A cluster with some bound pods, and what its keepers do."""

    def __init__(self, pods: int = 3) -> None:
        self.clock = FakeClock(1000.0)
        self.faults = Faults()
        self.server = ApiServer(self.clock)
        self.api = FakeCluster(self.server, faults=self.faults)
        self.store = FakeSnapshots(self.faults)
        for number in range(pods):
            self.add(f"p{number}")

    def add(self, name: str) -> None:
        self.server.create("pods", {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}})
        self.server.bind(name, "n1")

    def keeper(self, *, established: bool = True, most_pods: int = 100, fewest_pods: int = 1) -> SnapshotKeeper:
        self.clock.advance(1.0)
        made = SnapshotKeeper(
            BLUE, self.api, self.store, clock=self.clock, room=PodMemory(most_pods), fewest_pods=fewest_pods
        )
        if established:
            made.established.set()
        return made

    def standing(self) -> SnapshotHeader:
        return decode_pods(self.store.documents[BLUE][0])[0]

    def names(self) -> list[str]:
        return sorted(pod.metadata.name for pod in decode_pods(self.store.documents[BLUE][0])[1])

    def saves(self) -> int:
        return self.faults.points.count("after snapshots.save")

    def lists(self) -> int:
        return self.faults.points.count("after cluster.bound_pages")


def test_a_snapshot_is_written_at_once_and_then_at_most_every_so_often() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    assert (kept.names(), kept.saves()) == (["p0", "p1", "p2"], 1)
    assert kept.standing().version == kept.server.resource_version
    kept.add("late")
    keeper.round(1.0)
    assert kept.saves() == 1
    kept.clock.advance(SAVE_S)
    keeper.round(1.0)
    assert (kept.names()[0], kept.saves()) == ("late", 2)
    assert kept.lists() == 1


def test_a_pod_that_goes_leaves_the_snapshot() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    kept.server.delete("pods", "p1", grace_s=0)
    kept.clock.advance(SAVE_S)
    keeper.round(1.0)
    assert (kept.names(), kept.lists()) == (["p0", "p2"], 1)


def test_a_list_forgets_pods_that_went_unseen() -> None:
    """The API server forgets changes after minutes; then only a list tells what is still there."""
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    kept.server.delete("pods", "p1", grace_s=0)
    kept.faults.on("before", "cluster.watch", ResourceVersionGone("too old"))
    keeper.round(1.0)
    keeper.round(1.0)
    assert (kept.names(), kept.lists()) == (["p0", "p2"], 2)


def test_while_nothing_changes_only_its_version_is_kept_fresh() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    before = kept.standing()
    kept.server.create("configmaps", {"metadata": {"name": "unrelated"}})
    kept.clock.advance(REFRESH_S - 1)
    keeper.round(1.0)
    assert kept.saves() == 1
    kept.clock.advance(1)
    keeper.round(1.0)
    assert kept.saves() == 2
    assert int(kept.standing().version) > int(before.version)
    assert kept.standing().taken_at == kept.clock.now()


def test_changes_that_no_decision_sees_are_not_written() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    kept.server.patch("pods", "p0", {"metadata": {"annotations": {"note": "1"}}})
    kept.clock.advance(SAVE_S)
    keeper.round(1.0)
    assert kept.saves() == 1


def test_a_successor_goes_on_without_a_list_and_its_predecessor_retires() -> None:
    kept = Kept()
    first = kept.keeper()
    first.round(1.0)
    kept.add("late")
    second = kept.keeper(established=False)
    second.round(1.0)
    first.round(1.0)
    assert not first.retired.is_set()
    assert kept.saves() == 1  # nothing is announced before the successor stands in
    second.established.set()
    second.round(1.0)
    assert (kept.names()[0], kept.lists()) == ("late", 1)
    first.round(1.0)
    assert not first.retired.is_set()  # that early none is expected, and each question is a request
    kept.clock.advance(SUCCESSOR_S)
    first.round(1.0)
    assert first.retired.is_set()
    second.round(1.0)
    assert not second.retired.is_set()


@pytest.mark.parametrize(("age_s", "lists"), [(RELIST_S - 2, 1), (RELIST_S - 1, 2)])
def test_a_successor_lists_once_the_last_list_is_an_hour_old(age_s: float, lists: int) -> None:
    """A keeper is made a second after the time has passed."""
    kept = Kept()
    kept.keeper().round(1.0)
    kept.clock.advance(age_s)
    kept.keeper().round(1.0)
    assert kept.lists() == lists


def test_a_snapshot_that_cannot_be_read_is_made_anew() -> None:
    kept = Kept()
    kept.store.save(BLUE, b"something else", 1.0)
    keeper = kept.keeper()
    keeper.round(1.0)
    assert kept.names() == ["p0", "p1", "p2"]
    assert keeper.problems == {"SnapshotsUnreadable": 1}


def test_one_of_another_cluster_is_not_gone_on_from() -> None:
    other, kept = Kept(5), Kept()
    other.keeper().round(1.0)
    kept.store.documents[BLUE] = (other.store.documents[BLUE][0].replace(b"", b""), 1.0)
    keeper = SnapshotKeeper("green", kept.api, kept.store, clock=kept.clock, fewest_pods=1)
    kept.store.documents["green"] = kept.store.documents[BLUE]
    keeper.established.set()
    keeper.round(1.0)
    assert [pod.metadata.name for pod in decode_pods(kept.store.documents["green"][0])[1]] == ["p0", "p1", "p2"]


@pytest.mark.parametrize("limits", [{"most_pods": 2}, {"fewest_pods": 4}])
def test_too_many_and_too_few_pods_are_not_kept_but_the_keeper_is_told(limits: dict[str, int]) -> None:
    kept = Kept()
    keeper = kept.keeper(**limits)
    keeper.round(1.0)
    kept.clock.advance(2 * REFRESH_S)
    keeper.round(1.0)
    assert kept.saves() == 1
    assert (kept.standing().complete, kept.names()) == (False, [])
    assert kept.store.kept_since(BLUE) == 1001.0
    assert "before cluster.watch" not in kept.faults.points
    assert keeper.problems == ({"SnapshotsTooLarge": 1} if "most_pods" in limits else {})


def test_a_cluster_that_grows_too_large_is_given_up() -> None:
    kept = Kept()
    keeper = kept.keeper(most_pods=4)
    keeper.round(1.0)
    for name in ("a", "b"):
        kept.add(name)
    kept.clock.advance(SAVE_S)
    for _ in range(2):
        keeper.round(1.0)
    assert not kept.standing().complete


def test_what_fails_is_counted_and_tried_again_after_a_pause() -> None:
    kept = Kept()
    keeper = kept.keeper()
    kept.faults.on("before", "cluster.bound_pages", ClusterUnreachable("down"))
    kept.faults.on("before", "snapshots.save", StoreError("denied"))
    stop, pauses = Event(), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        kept.clock.advance(seconds)
        if len(pauses) == 4:
            stop.set()

    keeper.run(kept.clock.now() + 600, pause, stop)
    assert keeper.problems == {"SnapshotsNotKept": 2}
    assert pauses[:2] == [1.0, 2.0]
    assert kept.names() == ["p0", "p1", "p2"]


def test_it_ends_at_its_deadline_and_when_it_has_retired() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.run(kept.clock.now(), lambda _: None, Event())
    assert kept.saves() == 0
    kept.store.save(BLUE, b"", kept.clock.now() + 5)
    keeper.run(kept.clock.now() + 600, kept.clock.advance, Event())
    assert keeper.retired.is_set()
    assert kept.saves() == 1  # the successor's
