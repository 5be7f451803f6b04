"""Capacity that starts itself: a timer, EC2's event or the sweep launches into a reservation, whichever is first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shiplap.flows.claim_updates import RESERVATION
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.interrupt.notices import STARTS, read_notice
from shiplap.flows.messages import RESERVATION_STARTED, PodsPending
from shiplap.flows.schedule.reservation_starts import SETTLED_S, SOON_S
from shiplap.settings import Settings
from tests.integration.flows.reservation_starts import block, delivered, reserved_only, start, waiting_stage
from tests.integration.flows.stage import ZONES, Stage

WITHIN_S = 90.0


def waiting_pods(stage: Stage) -> None:
    stage.add_pods(2, cpu="1200m")


def static_pool(stage: Stage) -> None:
    manifests = replace(stage.settings.manifests, node_pools=(reserved_only(replicas=2),))
    stage.settings = replace(stage.settings, manifests=manifests)


WANTS = pytest.mark.parametrize("want", [waiting_pods, static_pool])


def hints(stage: Stage) -> list[PodsPending]:
    return [told for told in stage.told() if isinstance(told, PodsPending) and told.reason == RESERVATION_STARTED]


def sweep_until(stage: Stage, at: float) -> None:
    """Sweep every minute until a moment, which the clock then shows."""
    while stage.clock.now() + 60 <= at:
        stage.clock.advance(60)
        stage.sweep()
    stage.clock.advance(at - stage.clock.now())


def reserved_in(stage: Stage) -> list[str]:
    return sorted(instance.reservation for instance in stage.compute.alive())


@WANTS
def test_the_sweep_alone_starts_what_waits_within_a_minute(want: Callable[[Stage], None]) -> None:
    stage = waiting_stage()
    want(stage)
    starts_at = stage.clock.now() + 600
    sweep_until(stage, starts_at - 1)
    stage.sweep()
    assert not stage.compute.requests, "a launch before the start fails"
    start(stage)
    stage.clock.advance(60)
    stage.sweep()
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    assert stage.clock.now() - starts_at < WITHIN_S


@WANTS
def test_a_timer_starts_what_waits_in_seconds(want: Callable[[Stage], None]) -> None:
    stage = waiting_stage(starts_in_s=630)
    want(stage)
    starts_at = stage.clock.now() + 630
    sweep_until(stage, starts_at - 30)
    start(stage)
    stage.clock.advance(30 + SETTLED_S)
    stage.attend_timers()
    (hint,) = hints(stage)
    stage.schedule(hint)
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    assert stage.clock.now() - starts_at <= SETTLED_S


@pytest.mark.parametrize(("in_s", "timers"), [(SOON_S, 1), (SOON_S + 1, 0), (0.0, 0), (-60.0, 0)])
def test_a_timer_is_set_by_the_last_sweep_before_the_start_alone(in_s: float, timers: int) -> None:
    stage = waiting_stage(starts_in_s=in_s)
    waiting_pods(stage)
    stage.sweep()
    stage.clock.advance(in_s + SETTLED_S + 1 if in_s > 0 else 120)
    assert [timer.step for timer in stage.due()].count(RESERVATION) == timers


def test_each_of_two_starts_has_a_timer_and_those_that_never_come_have_none() -> None:
    stage = waiting_stage(starts_in_s=20)
    now = stage.clock.now()
    never = (replace(block(now + 30, f"cr-{state}"), state=state) for state in ("payment-failed", "unsupported"))
    stage.compute.reservations = (*stage.compute.reservations, block(now + 50, "cr-2", zone=ZONES[1]), *never)
    waiting_pods(stage)
    stage.sweep()
    stage.clock.advance(20 + SETTLED_S)
    assert [timer.step for timer in stage.due()] == [RESERVATION]
    stage.clock.advance(30)
    assert [timer.step for timer in stage.due()] == [RESERVATION]


def test_nothing_is_asked_of_a_cluster_in_which_nothing_waits() -> None:
    stage = waiting_stage(starts_in_s=20)
    stage.sweep()
    stage.clock.advance(60)
    assert not stage.due()
    assert "before compute.resolve" not in stage.faults.points


@WANTS
@pytest.mark.parametrize("detail_type", STARTS)
def test_the_event_starts_what_waits_at_once(want: Callable[[Stage], None], detail_type: str) -> None:
    stage = waiting_stage()
    want(stage)
    stage.sweep()
    start(stage)  # earlier than was said
    stage.interrupt(delivered(stage, detail_type=detail_type))
    (hint,) = hints(stage)
    stage.schedule(hint)
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    assert stage.meter.counts["ReservationsStarted"] == 1


def test_an_event_is_no_order() -> None:
    """Doubled, late, too early, or of a reservation that nobody selects: what EC2 says of reservations decides."""
    stage = waiting_stage()
    waiting_pods(stage)
    stage.interrupt(delivered(stage))
    stage.schedule(*hints(stage))
    assert not stage.compute.requests
    start(stage)
    for name in ("cr-1", "cr-1", "cr-9"):
        stage.interrupt(delivered(stage, name))
        for hint in hints(stage):
            stage.schedule(hint)
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    assert len(stage.claims()) == 2


def test_an_event_has_only_clusters_planned_for_that_select_reservations() -> None:
    stage = Stage()
    stage.interrupt(delivered(stage))
    assert not hints(stage)


def test_the_event_has_each_cluster_planned_for_that_may_use_the_reservation() -> None:
    first = waiting_stage()
    stages = [first, waiting_stage(beside=first), Stage(beside=first)]
    stages[2].settings = replace(stages[2].settings, name="without")
    contexts = {stage.settings.name: stage.context for stage in stages}
    notice = read_notice(delivered(first), "queue")
    clusters = Settings(tuple(stage.settings for stage in stages))
    interrupt(notice, clusters, first.state, lambda cluster: contexts[cluster.name], first.meter)
    assert [[hint.cluster for hint in hints(stage)] for stage in stages] == [["demo"], ["demo-too"], []]


def test_what_was_answered_before_the_event_does_not_count() -> None:
    stage = waiting_stage()
    waiting_pods(stage)
    asked: list[bool] = []
    resolve = stage.compute.resolve
    stage.compute.resolve = lambda node_class, *, fresh=False: asked.append(fresh) or resolve(node_class, fresh=fresh)  # type: ignore[method-assign,func-returns-value]
    stage.sweep()
    assert asked == [False]
    stage.interrupt(delivered(stage))
    stage.schedule(*hints(stage))
    assert asked == [False, True]


def test_two_clusters_share_a_block_and_get_no_more_than_it_has() -> None:
    first = waiting_stage(starts_in_s=30)
    second = waiting_stage(starts_in_s=30, beside=first)
    for stage in (first, second):
        waiting_pods(stage)
        stage.sweep()
        start(stage, available=3)
    first.clock.advance(30 + SETTLED_S)
    for stage in (first, second):
        stage.attend_timers()
        stage.schedule(*hints(stage))
    assert sum(len(stage.compute.alive()) for stage in (first, second)) == 3


def test_two_reservations_start_at_their_own_times() -> None:
    stage = waiting_stage(starts_in_s=60)
    stage.compute.reservations = (*stage.compute.reservations, block(stage.clock.now() + 300, "cr-2", zone=ZONES[1]))
    stage.add_pods(4, cpu="1200m")
    sweep_until(stage, stage.clock.now() + 60)
    start(stage)
    stage.sweep()
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    start(stage, available=0)
    sweep_until(stage, stage.clock.now() + 240)
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    start(stage, "cr-2")
    stage.sweep()
    assert reserved_in(stage) == ["cr-1", "cr-1", "cr-2", "cr-2"]


@pytest.mark.parametrize("state", ["scheduled", "delayed", "payment-pending", "assessing", "payment-failed"])
def test_the_clock_alone_launches_nothing(state: str) -> None:
    """Ours may be ahead, EC2 may be late, the payment may have failed: then a launch would fail, and rest."""
    stage = waiting_stage(starts_in_s=10)
    stage.compute.reservations = tuple(replace(held, state=state, available=2) for held in stage.compute.reservations)
    waiting_pods(stage)
    sweep_until(stage, stage.clock.now() + 120)
    assert not stage.compute.requests
    start(stage)
    stage.sweep()
    assert reserved_in(stage) == ["cr-1", "cr-1"]


def test_a_block_that_starts_with_less_is_filled_as_far_as_it_goes() -> None:
    stage = waiting_stage()
    static_pool(stage)
    start(stage, available=1)
    stage.sweep()
    assert reserved_in(stage) == ["cr-1"]


def test_a_reservation_that_is_cancelled_before_its_start_is_waited_for_no_longer() -> None:
    stage = waiting_stage(starts_in_s=20)
    waiting_pods(stage)
    stage.compute.reservations = ()
    stage.sweep()
    stage.clock.advance(60)
    assert not stage.due()


# Words


def reasons(stage: Stage) -> set[str]:
    return {str(event["message"]) for event in stage.server.list("events").items}


def test_a_pod_is_told_which_reservation_it_waits_for() -> None:
    stage = waiting_stage()
    now = stage.clock.now()
    stage.compute.reservations = (
        replace(block(now + 100, "cr-never"), state="payment-failed"),
        block(now + 9000, "cr-2", zone=ZONES[1]),
        replace(block(now + 600), starts_at=now + 600),
        replace(block(now + 50, "cr-too-small"), instance_type="c7i-flex.large"),
    )
    waiting_pods(stage)
    stage.sweep()
    (told,) = reasons(stage)
    assert "waits for capacity reservation cr-1 (scheduled), which starts at 2023-11-14T22:23:20Z" in told


# Deaths


def begun() -> Stage:
    """Pods wait, and the block has started since the last sweep, which has set a timer."""
    stage = waiting_stage(starts_in_s=30)
    waiting_pods(stage)
    stage.sweep()
    start(stage)
    stage.clock.advance(30 + SETTLED_S)
    stage.faults.clear()
    return stage


def planned_again(stage: Stage) -> None:
    stage.schedule(PodsPending(stage.name, stage.clock.now(), reason=RESERVATION_STARTED))


ACTS: dict[str, Callable[[Stage], object]] = {
    "event": lambda stage: stage.interrupt(delivered(stage)),
    "timer": Stage.attend_timers,
    "hint": planned_again,
    "sweep": Stage.sweep,
}


def points_of(act: Callable[[Stage], object]) -> list[str]:
    stage = begun()
    act(stage)
    return list(stage.faults.points)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}-{number:02d}-{point.replace(' ', '-')}")
        for name, act in ACTS.items()
        for number, point in enumerate(points_of(act))
    ],
)
def test_whatever_dies_at_the_start_the_block_is_filled_once(name: str, number: int) -> None:
    stage = begun()
    stage.faults.crash_at(number)
    assert stage.dies(lambda: ACTS[name](stage))
    stage.faults.clear()
    stage.timers.reminders.clear()
    start(stage, available=2 - len(stage.compute.alive()))
    stage.play_on()
    assert reserved_in(stage) == ["cr-1", "cr-1"]
    assert len(stage.compute.launches) == 2
    assert len({claim.instance_id for claim in stage.claims()}) == 2
