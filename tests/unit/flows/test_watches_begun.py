"""Tests the start of the watches of several clusters, and the facts that each watch gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.cluster.snapshot_keeper import PodMemory
from shiplap.cluster.watcher import ChangeBatch
from shiplap.errors import ClustersNotServed, ClusterUnreachable
from shiplap.flows.watch import entry
from shiplap.flows.watch import watch as module
from tests.integration.flows.stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_each_cluster_is_watched_for_what_it_has(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, dict[str, Any]] = {}

    def watch(cluster: str, _: object, *, established: Event, pause: object, **options: Any) -> int:
        told[cluster] = options
        established.set()
        return len(told)

    monkeypatch.setattr(module, "watch", watch)
    room, deadline = PodMemory(5), stage.clock.now() + 60
    contexts = dict.fromkeys(("plain", "live", "buffered"), stage.context)
    number = module.watch_all(
        contexts, deadline=deadline, pause=lambda _: None, room=room, live=("live",), buffered=("buffered",)
    )
    assert number == 1 + 2 + 3
    common = {"deadline": deadline, "room": room}
    assert told == {
        "buffered": {**common, "manifests": False, "buffers": True},
        "live": {**common, "manifests": True, "buffers": False},
        "plain": {**common, "manifests": False, "buffers": False},
    }


def test_nothing_is_watched_when_the_time_is_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "watch", lambda *_, **__: 1)
    assert module.watch_all({"a": stage.context}, deadline=stage.clock.now(), pause=lambda _: None) == 0


def test_watches_begin_one_after_the_other_and_one_that_hangs_holds_up_neither_the_next_nor_the_process(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []

    class Noting:
        def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
            self._name, self._target = name, target
            assert daemon

        def start(self) -> None:
            steps.append(self._name)

        def join(self) -> None:
            self._target()

    class Waited(Event):
        def wait(self, timeout: float | None = None) -> bool:
            steps.append(timeout)
            return False

    monkeypatch.setattr(module, "Thread", Noting)
    monkeypatch.setattr(module, "Event", Waited)
    monkeypatch.setattr(module, "watch", lambda *_, **__: 1)
    contexts = dict.fromkeys(("b", "a"), stage.context)
    assert module.watch_all(contexts, deadline=stage.clock.now() + 60, pause=lambda _: None) == 2
    assert steps == ["watch-a", 3.0, "watch-b", 3.0]


def test_of_several_clusters_those_are_named_whose_watches_were_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they were watched again afterwards, and others have been all the time."""
    tries: dict[str, int] = {}

    def watch(cluster: str, *_: object, **__: object) -> int:
        tries[cluster] = tries.get(cluster, 0) + 1
        if cluster != "sound" and tries[cluster] == 1:
            raise {"away": ClusterUnreachable("down"), "odd": ZeroDivisionError("a defect")}[cluster]
        return 1

    monkeypatch.setattr(module, "watch", watch)
    pauses: list[float] = []
    contexts = dict.fromkeys(("sound", "away", "odd"), stage.context)
    with pytest.raises(ClustersNotServed) as told:
        module.watch_all(contexts, deadline=stage.clock.now() + 100, pause=pauses.append)
    assert all(name in str(told.value) for name in ("away", "odd"))
    assert "sound" not in str(told.value)
    assert (tries, pauses) == ({"sound": 1, "away": 2, "odd": 2}, [60.0, 60.0])
    assert stage.meter.counts == {"WatchesGivenUp": 2.0, "ClusterUnreachable": 1.0, "UnexpectedErrors": 1.0}


@pytest.mark.parametrize(("manifests", "buffers"), [(True, False), (False, True)])
def test_a_watch_has_a_keeper_of_its_snapshot_which_ends_with_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, manifests: bool, buffers: bool
) -> None:
    made: dict[str, Any] = {}

    class Keeper:
        def __init__(self, *about: object, **options: Any) -> None:
            made["about"], made["options"], made["keeper"] = about, options, self
            self.established, self.retired, self.problems = Event(), Event(), Counter({"SnapshotsNotKept": 2})

        def run(self, deadline: float, pause: object, stop: Event) -> None:
            made["stop"] = stop

    class Started:
        def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], name: str, daemon: bool) -> None:
            assert daemon
            self._run = lambda: target(*args)

        def start(self) -> None:
            self._run()

    def changes(api: object, *, established: Callable[[], None], **options: Any) -> Iterator[ChangeBatch]:
        made["changes"] = options
        established()
        yield ChangeBatch(room_taken=True)
        assert not made["stop"].is_set()

    monkeypatch.setattr(module, "SnapshotKeeper", Keeper)
    monkeypatch.setattr(module, "Thread", Started)
    monkeypatch.setattr(module, "change_batches", changes)
    snapshots: Any = object()
    context = replace(stage.context, snapshots=snapshots)
    room, established, deadline = PodMemory(5), Event(), stage.clock.now() + 60
    watch_options: dict[str, Any] = {"manifests": manifests, "buffers": buffers}
    told = module.watch(
        "demo", context, deadline=deadline, pause=print, room=room, established=established, **watch_options
    )
    assert told == 1
    assert made["about"] == ("demo", stage.cluster, snapshots)
    assert made["options"] == {"clock": stage.clock, "room": room, "fewest_pods": 2000}
    keeper = made["keeper"]
    expected = {"clock": stage.clock, "deadline_at": deadline, "pause": print, "retired": keeper.retired}
    assert made["changes"] == expected | watch_options
    assert (keeper.established.is_set(), established.is_set(), made["stop"].is_set()) == (True, True, True)
    assert stage.meter.counts == {"SnapshotsNotKept": 2.0}


def test_a_watch_ends_some_seconds_before_its_function_does(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []
    monkeypatch.setattr(entry, "watch_all", lambda *_, deadline, **__: ends.append(deadline) or 0)
    install: Any = SimpleNamespace(reporting=nullcontext, memory_mib=128, clock=stage.clock, pause=None)
    for left_ms in (25_000, 3_600_000):
        context: Any = SimpleNamespace(aws_request_id="1", get_remaining_time_in_millis=partial(int, left_ms))
        assert entry.handle({"clusters": []}, context, install) == {"told": 0}
    assert [end - stage.clock.now() for end in ends] == [25 - entry.RESERVE_S, entry.LONGEST_S]
