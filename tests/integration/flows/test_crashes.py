"""A function that dies between any two effects, with three claims under way; the next ones finish its work.

Every point before and after every effect of a rehearsed run is a place to die. Afterwards only sweeps, and the timers
they set, are delivered: no message of the dead invocation comes back. Then there must be exactly the instances an
undisturbed run launches, each with a claim of its own, and every pod must run.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shiplap.manifests.nodeclaim import ClaimState
from shiplap.records.disruption_record import decided_again, read
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage, share

pytestmark = pytest.mark.thorough

PODS = 3
ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",)),)


def begin() -> Stage:
    """Three pods of which no two fit on one node."""
    stage = Stage(ONLY_LARGE)
    stage.recorder.least_bytes = 0
    stage.add_pods(PODS, cpu="1200m", memory="2Gi")
    return stage


def until_joined(stage: Stage) -> None:
    stage.schedule()
    stage.join()


def points_of(act: Callable[[Stage], object], prepare: Callable[[Stage], object]) -> list[str]:
    stage = begin()
    prepare(stage)
    stage.faults.clear()
    act(stage)
    return list(stage.faults.points)


def nothing(stage: Stage) -> None:
    """No preparation."""


ACTS: dict[str, tuple[Callable[[Stage], object], Callable[[Stage], object]]] = {
    "schedule": (Stage.schedule, nothing),
    "sweep": (Stage.sweep, nothing),
    "register": (Stage.attend, until_joined),
    "sweep after joining": (Stage.sweep, until_joined),
}
CASES = [
    pytest.param(name, number, id=f"{name}-{number:02d}-{point.replace(' ', '-')}")
    for name, (act, prepare) in ACTS.items()
    for number, point in enumerate(points_of(act, prepare))
]


def test_the_rehearsed_run_has_three_claims_and_passes_every_effect() -> None:
    stage = begin()
    assert len(stage.schedule().launched) == PODS
    passed = {point.partition(" ")[2] for name in ACTS for point in points_of(*ACTS[name])}
    assert passed >= {
        "state.read",
        "state.commit",
        "state.advance",
        "state.claim",
        "state.claim_of_instance",
        "state.claims",
        "cluster.view",
        "cluster.node",
        "cluster.patch_node",
        "compute.resolve",
        "compute.launch",
        "compute.instances",
        "capacity.learned",
        "capacity.observe",
        "capacity.pilots",
        "catalog.load",
        "recorder.chunk",
        "recorder.record",
        "bus.publish",
        "timers.remind",
    }


@pytest.mark.parametrize(("name", "number"), CASES)
def test_whatever_dies_is_finished_by_the_next(name: str, number: int) -> None:
    act, prepare = ACTS[name]
    stage = begin()
    prepare(stage)
    stage.faults.clear()
    stage.faults.crash_at(number)
    assert stage.dies(lambda: act(stage))
    stage.faults.clear()
    stage.timers.reminders.clear()
    stage.play_on()
    assert_accounted_for(stage)
    assert len(stage.compute.launches) == PODS


@pytest.mark.parametrize("second", range(0, 60, 7))
@pytest.mark.parametrize("first", range(0, 60, 11))
def test_the_next_may_die_too(first: int, second: int) -> None:
    stage = begin()
    for number in (first, second):
        stage.faults.clear()
        stage.faults.crash_at(number)
        stage.dies(stage.schedule)
        stage.clock.advance(61)
    stage.faults.clear()
    stage.play_on()
    assert_accounted_for(stage)
    assert len(stage.compute.launches) == PODS


def assert_accounted_for(stage: Stage) -> None:
    """Every instance has exactly one claim in service, every claim its instance, and each record can be replayed."""
    for name in stage.recorder.records:
        found = read(stage.recorder.document(name), name)
        assert found.record is not None
        assert decided_again(found.record) == found.written
    assert stage.pending() == 0
    serving = [claim for claim in stage.claims() if claim.state is ClaimState.INITIALIZED]
    assert {claim.instance_id for claim in serving} == {instance.id for instance in stage.compute.alive()}
    assert len(serving) == len(stage.compute.alive())


def until_overdue(stage: Stage) -> None:
    stage.schedule()
    stage.broken.update(instance.id for instance in stage.compute.launches)
    stage.clock.advance(1000)


def give_up(stage: Stage) -> None:
    stage.attend(*stage.due())


@pytest.mark.parametrize("number", range(len(points_of(give_up, until_overdue))))
def test_instances_that_never_join_are_ended_whatever_dies(number: int) -> None:
    stage = begin()
    until_overdue(stage)
    stage.faults.clear()
    stage.faults.crash_at(number)
    assert stage.dies(lambda: give_up(stage))
    stage.faults.clear()
    stage.timers.reminders.clear()
    stage.play_on()
    assert_accounted_for(stage)
    assert len(stage.compute.launches) == 2 * PODS


def small() -> Stage:
    """Three pods that fit the formula's estimate of the cheaper type each, on nodes that have less."""
    stage = Stage((family_pool("any", ("m6i", "r6i"), sizes=("large",)),), true_memory=share(0.88))
    kind = stage.types["m6i.large"]
    real = stage.true_capacity(kind.name)["memory"] - kind.overhead["memory"]
    stage.add_pods(PODS, cpu="1200m", memory=str((kind.allocatable["memory"] + real) // 2))
    until_joined(stage)
    stage.faults.clear()
    return stage


def _points_when_small() -> int:
    stage = small()
    stage.attend()
    return len(stage.faults.points)


@pytest.mark.parametrize("number", range(_points_when_small()))
def test_a_miss_is_learned_whatever_dies(number: int) -> None:
    stage = small()
    stage.faults.crash_at(number)
    assert stage.dies(stage.attend)
    stage.faults.clear()
    stage.timers.reminders.clear()
    stage.play_on()
    assert_accounted_for(stage)
    missed = [claim for claim in stage.claims() if claim.missed]
    assert len(missed) == 1
    retried = [
        claim for claim in stage.claims() if set(claim.plan.pods) & set(missed[0].plan.pods) and claim not in missed
    ]
    assert all(claim.plan.relies_on_estimate == () for claim in retried)
