"""Keeping a cluster's snapshot: how often it is written, who writes it, and what is not kept."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from shiplap.cluster.snapshot_keeper import REFRESH_S, RELIST_S, SAVE_S, SUCCESSOR_S, PodMemory, SnapshotKeeper
from shiplap.errors import ClusterUnreachable, ResourceVersionGone, StoreError
from shiplap.flows.planning.decision_inputs import OLDEST_S
from shiplap.flows.watch.entry import LONGEST_S
from shiplap.kubernetes.compact_pods import SnapshotHeader, decode_pods
from shiplap.kubernetes.objects import Node, Pod
from shiplap.ports import WatchEvent
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.builders.pods import pod

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


@pytest.mark.parametrize(("age_s", "lists"), [(RELIST_S - 1, 1), (RELIST_S, 2)])
def test_a_keeper_lists_again_after_an_hour_though_no_change_was_missed(age_s: float, lists: int) -> None:
    """A deletion that no watch has told of would stay for as long as keepers go on from each other."""
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    kept.faults.on("before", "cluster.watch", lambda: kept.server.delete("pods", "p1", grace_s=0))
    kept.clock.advance(age_s / 2)
    keeper.round(1.0)
    kept.clock.advance(age_s / 2)
    keeper.round(1.0)
    keeper.round(1.0)
    assert kept.lists() == lists
    assert keeper.established.is_set()
    assert kept.standing().listed_at == (kept.clock.now() if lists == 2 else kept.clock.now() - age_s)


def test_keepers_that_go_on_from_each_other_list_an_hour_after_the_last_list() -> None:
    """Each takes over what the one before has read, and when that was; none begins the hour anew."""
    kept = Kept()
    kept.keeper().round(1.0)
    for _ in range(4):
        kept.clock.advance(RELIST_S / 5)
        kept.keeper().round(1.0)
    assert kept.lists() == 1
    kept.clock.advance(RELIST_S / 5)
    kept.keeper().round(1.0)
    assert kept.lists() == 2


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


def test_a_few_pods_that_are_large_are_not_kept_either() -> None:
    kept = Kept(pods=3)
    labels = {f"label-{place}": "x" * 60 for place in range(900)}
    kept.server.create("pods", {"metadata": {"name": "large", "labels": labels}, "spec": {"containers": []}})
    kept.server.bind("large", "n1")
    keeper = kept.keeper(most_pods=100)
    keeper.round(1.0)
    assert keeper.problems == {"SnapshotsTooLarge": 1}
    assert not kept.standing().complete


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


def test_room_is_shared_and_given_back() -> None:
    room = PodMemory(10)
    assert room.takes("a", 6)
    assert room.takes("b", 4)
    assert not room.takes("b", 5)
    assert room.takes("a", 10)  # what does not fit holds nothing
    assert not room.takes("b", 1)
    assert room.takes("a", 7)
    assert room.takes("b", 3)


def test_a_cluster_that_is_not_kept_leaves_all_room_to_others() -> None:
    kept = Kept()
    room = PodMemory(3)
    made = SnapshotKeeper(BLUE, kept.api, kept.store, clock=kept.clock, room=room, fewest_pods=4)
    made.established.set()
    made.round(1.0)
    assert room.takes("green", 3)
    assert not kept.standing().complete


def test_a_snapshot_of_few_pods_is_announced_once() -> None:
    kept = Kept()
    keeper = kept.keeper(fewest_pods=4)
    for _ in range(5):
        keeper.round(1.0)
        kept.clock.advance(REFRESH_S)
    assert (kept.saves(), kept.lists(), kept.names()) == (1, 1, [])
    assert "before cluster.watch" not in kept.faults.points


def test_nothing_is_written_before_the_predecessor_is_relieved() -> None:
    kept = Kept()
    keeper = kept.keeper(established=False)
    keeper.round(1.0)
    assert kept.saves() == 0
    keeper.established.set()
    keeper.round(1.0)
    assert kept.saves() == 1


@pytest.mark.parametrize(("writing_s", "waits_s"), [(0.0, SAVE_S), (0.5, SAVE_S), (2.0, 40.0)])
def test_a_snapshot_that_takes_long_to_write_is_written_less_often(writing_s: float, waits_s: float) -> None:
    kept = Kept()
    keeper = kept.keeper()
    kept.faults.on("after", "snapshots.save", lambda: kept.clock.advance(writing_s))
    keeper.round(1.0)
    kept.add("late")
    kept.clock.advance(waits_s - writing_s - 0.5)
    keeper.round(1.0)
    assert kept.saves() == 1
    kept.clock.advance(0.5)
    keeper.round(1.0)
    assert kept.saves() == 2


def test_a_successor_is_looked_for_seldom_at_first_and_each_round_later() -> None:
    kept = Kept()
    keeper = kept.keeper()

    def looks(rounds: int, step_s: float) -> int:
        before = kept.faults.points.count("after snapshots.kept_since")
        for _ in range(rounds):
            keeper.round(1.0)
            kept.clock.advance(step_s)
        return kept.faults.points.count("after snapshots.kept_since") - before

    assert looks(1, 240.0 - 1) == 1
    assert looks(1, 1.0) == 0
    assert looks(1, 0.0) == 1
    kept.clock.advance(SUCCESSOR_S)
    assert looks(4, 10.0) == 4


def test_a_successor_is_looked_for_from_the_moment_on_at_which_it_is_expected() -> None:
    kept = Kept()
    keeper = kept.keeper()
    kept.clock.advance(SUCCESSOR_S - 1)
    keeper.round(1.0)
    kept.store.save(BLUE, b"", kept.clock.now())
    kept.clock.advance(0.5)
    keeper.round(1.0)
    assert not keeper.retired.is_set()
    kept.clock.advance(0.5)
    keeper.round(1.0)
    assert keeper.retired.is_set()


def test_of_too_many_pods_no_further_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of 100,000 pods is 200 requests, and its pods may not fit into memory."""
    kept = Kept()
    keeper = kept.keeper(most_pods=2)
    pages: list[int] = []

    def bound_pages() -> Iterator[tuple[tuple[Pod, ...], str]]:
        for number in range(3):
            pages.append(number)
            yield tuple(pod(f"p{number}{place}", metadata={"uid": f"{number}{place}"}) for place in range(3)), "7"

    monkeypatch.setattr(kept.api, "bound_pages", bound_pages)
    keeper.round(1.0)
    assert pages == [0]
    assert keeper.problems == {"SnapshotsTooLarge": 1}


class Told:
    """Notes the pauses of a keeper and lets time pass in them."""

    def __init__(self, kept: Kept, stop: Event, most: int) -> None:
        self.pauses: list[float] = []
        self._kept, self._stop, self._most = kept, stop, most

    def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._kept.clock.advance(seconds)
        if len(self.pauses) == self._most:
            self._stop.set()


def test_pauses_grow_while_it_fails_and_begin_again_after_a_success() -> None:
    kept, stop = Kept(), Event()
    keeper = kept.keeper()
    told = Told(kept, stop, 9)
    for number in range(7):
        kept.faults.on("before", "cluster.bound_pages", ClusterUnreachable("no"), nth=number + 1)
    keeper.run(kept.clock.now() + 10_000, told, stop)
    assert told.pauses == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0, 1.0, 1.0]
    assert keeper.problems == {"SnapshotsNotKept": 7}


def test_a_round_lasts_seconds_and_no_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are short, so that a successor is found soon."""
    kept, asked, stop = Kept(), list[float](), Event()
    keeper = kept.keeper()

    def round_(timeout_s: float, _: Event) -> None:
        asked.append(timeout_s)
        kept.clock.advance(timeout_s)

    monkeypatch.setattr(keeper, "round", round_)
    keeper.run(kept.clock.now() + 45, lambda _: None, stop)
    assert asked == [20.0, 20.0, 5.0]
    asked.clear()
    kept.clock.advance(SUCCESSOR_S)
    keeper.run(kept.clock.now() + 25, lambda _: None, stop)
    assert asked == [10.0, 10.0, 5.0]


def test_after_a_round_that_succeeds_failures_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, stop = Kept(), Event()
    keeper = kept.keeper()
    told = Told(kept, stop, 4)
    lasts_s = iter([None, None, 1.5, None, None])

    def round_(*_: object) -> None:
        seconds = next(lasts_s)
        if seconds is None:
            raise ClusterUnreachable("no")
        kept.clock.advance(seconds)  # long enough to go on without a pause

    monkeypatch.setattr(keeper, "round", round_)
    keeper.run(kept.clock.now() + 1000, told, stop)
    assert told.pauses == [1.0, 2.0, 1.0, 2.0]


def test_a_keeper_without_pods_to_follow_looks_around_each_round() -> None:
    kept, stop = Kept(), Event()
    keeper = kept.keeper(fewest_pods=4)
    told = Told(kept, stop, 4)
    keeper.run(kept.clock.now() + 10_000, told, stop)
    assert told.pauses == [20.0] * 4
    late = kept.keeper(fewest_pods=4)
    kept.clock.advance(SUCCESSOR_S)
    stop.clear()
    told = Told(kept, stop, 3)
    late.run(kept.clock.now() + 10_000, told, stop)
    assert told.pauses == [10.0] * 3


def test_no_pause_outlasts_the_deadline() -> None:
    kept = Kept()
    told = Told(kept, Event(), 9)
    kept.keeper(fewest_pods=4).run(kept.clock.now() + 45, told, Event())
    assert told.pauses == [20.0, 20.0, 5.0]
    kept = Kept()
    kept.faults.on("before", "cluster.bound_pages", ClusterUnreachable("no"))
    told = Told(kept, Event(), 9)
    kept.keeper().run(kept.clock.now() + 0.5, told, Event())
    assert told.pauses == [0.5]


def test_bookmarks_move_the_version_on_and_odd_objects_are_counted() -> None:
    kept = Kept()
    keeper = kept.keeper()
    keeper.round(1.0)
    kept.server.create("configmaps", {"metadata": {"name": "unrelated"}})
    keeper.round(1.0)
    assert keeper.problems == {}
    keeper._see(WatchEvent("ADDED", Node(), "999", unreadable="broken"))
    assert keeper._version == "999"
    assert keeper.problems == {"ObjectsUnreadable": 1}
    kept.clock.advance(REFRESH_S)
    keeper._write_if_due()
    assert kept.names() == ["p0", "p1", "p2"]


def test_the_snapshot_says_since_when_it_is_kept_and_listed() -> None:
    kept = Kept()
    keeper = kept.keeper()
    began = kept.clock.now()
    kept.clock.advance(5.0)
    keeper.round(1.0)
    header = kept.standing()
    assert (header.cluster, header.kept_since, header.listed_at, header.taken_at) == (BLUE, began, began + 5, began + 5)
    assert header.complete
    assert kept.store.documents[BLUE][1] == began


def test_a_snapshot_is_refreshed_before_it_is_too_old_and_a_successor_looked_for_before_the_function_ends() -> None:
    assert SAVE_S < 60.0, "API servers remember changes for a little over a minute"
    assert SAVE_S < REFRESH_S < OLDEST_S
    assert SUCCESSOR_S < LONGEST_S
    assert REFRESH_S < RELIST_S
