"""Functions about to run on a stage on which optional calls may hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from shiplap.flows.optional.optional_calls import OptionalCalls, OptionalPart
from shiplap.ports import Clock
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.fakes.stores import FakeDryRuns, FakeMemory, FakeStatus
from tests.bounded_calls import run_by
from tests.integration.flows.stage import ZONES, Stage

Act = Callable[[], Any]


class Played:
    """A function that is about to run on a stage: `act` runs it and returns what of its work can be compared."""

    def __init__(self, stage: Stage, act: Act) -> None:
        self.stage, self.act = stage, act


class NotedCalls(OptionalCalls):
    """Optional calls that note their parts."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(run_by(clock))
        self.parts: set[str] = set()

    def call(self, part: OptionalPart, scope: object, act: Callable[[], Any], clock: Clock) -> Any:
        self.parts.add(part.name)
        return super().call(part, scope, act, clock)


def prepared(stage: Stage, act: Callable[[Stage], Any]) -> Played:
    """The stage with all optional ports and budgets, after everything that goes before has happened."""
    calls = NotedCalls(stage.clock)
    stage.context = replace(
        stage.context,
        optional=calls,
        status=stage.context.status or FakeStatus(stage.faults),
        dry_runs=FakeDryRuns(stage.faults),
        memory=stage.context.memory or FakeMemory(stage.faults),
    )
    stage.settings = replace(stage.settings, zonal_shift=True)
    stage.faults.clear()
    return Played(stage, lambda: act(stage))


def run_dry(stage: Stage, instance_type: str, capacity_type: str) -> None:
    """EC2 has nothing of a type any more."""
    for zone in ZONES:
        stage.compute.capacity[instance_type, zone, capacity_type] = 0


def done(stage: Stage) -> list[tuple[str, str]]:
    """The states of claims with their types, whatever their names."""
    return sorted((claim.state, claim.known_instance.type) for claim in stage.claims())


def sweeping() -> Played:
    """A sweep finds nodes in service, a lost timer, and a pod that waits."""
    stage = Stage()
    stage.add_pods(3)
    stage.play_on()
    stage.add_pods(1, prefix="late", memory="6Gi", cpu="1500m")

    def act(stage: Stage) -> Any:
        report = stage.sweep()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)
