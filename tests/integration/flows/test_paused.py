"""A paused cluster: nothing of it changes, and afterwards everything goes on where it stood."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.flows.disrupt.disruption_round import DisruptionReport, disrupt
from shiplap.flows.lifecycle.lifecycle import LifecycleReport
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_lab.fakes.stores import FakeMemory
from tests.integration.flows.stage import Stage


def pause(stage: Stage, *, paused: bool) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, paused=paused)


def test_nothing_is_launched_until_the_pause_is_over() -> None:
    stage = Stage()
    stage.add_pods(2)
    pause(stage, paused=True)
    for report in (stage.schedule(), stage.sweep()):
        assert (report.launched, report.unschedulable, report.rounds, report.unfinished) == ((), 0, 0, "")
    assert stage.faults.points == []
    assert stage.meter.counts == {"InvocationsPaused": 2}
    pause(stage, paused=False)
    stage.play_on()
    assert stage.pending() == 0


@pytest.mark.parametrize("minutes", [1, 120], ids=["short", "longer than a node may take to join"])
def test_nodes_that_join_during_the_pause_are_taken_into_service_after_it(minutes: int) -> None:
    stage = Stage()
    stage.add_pods(2)
    stage.schedule()
    pause(stage, paused=True)
    stage.join()
    stage.clock.advance(60.0 * minutes)
    assert stage.attend() == LifecycleReport()
    assert stage.meter.counts["InvocationsPaused"] == 1
    assert {claim.state for claim in stage.claims()} == {ClaimState.LAUNCHED}
    launched = {instance.id for instance in stage.compute.alive()}
    pause(stage, paused=False)
    stage.play_on()
    assert {instance.id for instance in stage.compute.alive()} == launched
    assert stage.pending() == 0


def test_no_disruption_begins() -> None:
    stage = Stage()
    stage.add_pods(2)
    stage.play_on()
    pause(stage, paused=True)
    for _ in range(30):
        stage.clock.advance(60)
        assert disrupt(stage.settings, stage.context, FakeMemory()) == DisruptionReport()
    assert stage.meter.counts["InvocationsPaused"] == 30
    assert stage.meter.counts["Nodes"] > 0
