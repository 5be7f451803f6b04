"""A NodePool that is edited without end, and statuses that are: what the watch function asks for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from threading import Lock

import pytest
from msgspec.structs import replace

from shiplap.flows.messages import MANIFESTS_CHANGED
from shiplap.flows.watch.watch import watch
from shiplap.kubernetes.timestamps import epoch
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.live_stage import LiveStage
from tests.stepped_time import SteppedTime

MINUTE_S = 60.0
BETWEEN_EDITS_S = 0.6


@pytest.fixture
def stage() -> LiveStage:
    stage = LiveStage()
    stage.minute()
    stage.bus.events.clear()
    return stage


def watched_minute(
    stage: LiveStage, edit: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], int]:
    """One minute of the watch function, with an edit each BETWEEN_EDITS_S.

    Returns when it asked for a decision because of manifests, and the number of edits.
    """
    began = stage.clock.now()
    lock = Lock()
    edits = 0

    def pause(seconds: float) -> None:
        nonlocal edits
        with lock:
            if time.now() >= began + edits * BETWEEN_EDITS_S:
                edits += 1
                edit(edits)
        time.pause(seconds)

    with SteppedTime(began) as time:
        monkeypatch.setattr("shiplap.cluster.watcher.Queue", time.queue)
        context = replace(stage.context, clock=time, snapshots=FakeSnapshots())
        watch(stage.name, context, deadline=began + MINUTE_S, pause=pause, manifests=True)
        stage.clock.set(time.now())
    asked = [event for event in stage.bus.of_type("PodPending") if event.detail["reason"] == MANIFESTS_CHANGED]
    return [epoch(event.detail["time"]) for event in asked], edits


def test_a_pool_edited_a_hundred_times_a_minute_asks_for_one_decision_a_second_at_most(
    stage: LiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, edits = watched_minute(stage, lambda number: stage.edit("flex", weight=number % 100 + 1), monkeypatch)
    assert edits >= 95
    assert 5 <= len(asked) <= MINUTE_S + 1
    assert max(Counter(map(math.floor, asked)).values()) <= 2  # two neighbours may fall into one second of the clock
    (pool,) = (item for item in stage.read().manifests.node_pools if item.metadata.name == "flex")
    assert pool.spec.weight == edits % 100 + 1


def test_statuses_ask_for_no_decision_whoever_writes_them(stage: LiveStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(number: int) -> None:
        if number % 2:
            stage.server.patch("nodepools", "flex", {"status": {"nodes": number}}, subresource="status")
        else:
            stage.known.write_statuses(stage.settings, stage.context)

    asked, edits = watched_minute(stage, write, monkeypatch)
    assert edits >= 95
    assert asked == []
    assert stage.server.get("nodepools", "flex")["metadata"]["generation"] == 1
