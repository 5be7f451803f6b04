"""What is remembered of gangs in flows: written after decisions, read before them, and never needed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import StoreThrottled
from shiplap.flows.policies.gangs_inputs import TRIES
from shiplap.policies.gangs.memory.gang_tries import GangTries
from tests.integration.flows.gangs_stage import ONLY_LARGE, add_gang, only, stage_of_gangs
from tests.integration.flows.stage import Stage

LIMITED = (replace(ONLY_LARGE[0], spec=replace(ONLY_LARGE[0].spec, limits={"cpu": "4"})),)


def remembered(stage: Stage) -> tuple[GangTries, ...]:
    store = stage.context.policy_port(TRIES)
    assert store is not None
    return store.read(stage.settings.name)


def test_tries_are_counted_from_sweep_to_sweep_and_told_on_pods() -> None:
    stage = stage_of_gangs(pools=LIMITED)
    add_gang(stage)
    for _ in range(8):
        stage.sweep()
        stage.clock.advance(60)
    (found,) = remembered(stage)
    assert (found.gang, found.number) == ("default/train", 4)  # at minutes 0, 1, 3 and 7
    said = [event["message"] for event in stage.objects("events").values()]
    assert any("tried 4 times, next at" in message for message in said)
    assert stage.compute.requests == []


def test_a_refused_launch_is_a_try_and_returning_capacity_ends_the_pause() -> None:
    stage = stage_of_gangs()
    only(stage, 1, 1, 1)
    add_gang(stage)
    stage.sweep()
    assert [item.number for item in remembered(stage)] == [1]
    stage.compute.capacity.clear()
    for _ in range(12):
        stage.clock.advance(60)
        stage.sweep()
    assert len(stage.compute.alive()) == 3


def test_where_no_gang_waits_nothing_is_read_or_written() -> None:
    stage = stage_of_gangs()
    stage.add_pods(2)
    stage.sweep()
    assert not [name for name in stage.faults.points if "gang_tries" in name]
    assert remembered(stage) == ()


@pytest.mark.parametrize("broken", ["read", "save"])
def test_a_memory_that_refuses_keeps_no_gang_waiting(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of_gangs(pools=LIMITED)
    add_gang(stage)
    stage.sweep()
    before = remembered(stage)

    def refuse(*_: Any) -> None:
        raise StoreThrottled("too many requests")

    monkeypatch.setattr(stage.context.policy_ports["gang_tries"], broken, refuse)
    stage.clock.advance(60)
    stage.sweep()
    count = {"read": "GangTriesNotRead", "save": "GangTriesNotWritten"}[broken]
    assert stage.meter.counts[count] >= 1
    monkeypatch.undo()
    assert remembered(stage) == before
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=ONLY_LARGE))
    stage.sweep()
    assert len(stage.compute.alive()) == 3
