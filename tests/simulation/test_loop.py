"""Virtual time: what waits lets others go on, in the order of the moments, and nothing is left behind at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.faults.fault import Fault
from shiplap_lab.simulation.idle_minutes import IdleMinutes
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.trace import Trace


class Told:
    """Acts that say when they get anywhere, in seconds since the start."""

    def __init__(self) -> None:
        self.loop = EventLoop(FakeClock())
        self.lines: list[tuple[str, float]] = []
        self.start = self.loop.now()

    def say(self, what: str) -> None:
        self.lines.append((what, round(self.loop.now() - self.start, 3)))

    def act(self, name: str, *waits: float) -> Callable[[], None]:
        def run() -> None:
            for number, seconds in enumerate(waits):
                self.say(f"{name}{number}")
                self.loop.wait(seconds)
            self.say(f"{name} ends")

        return run

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.start + seconds)


def test_what_waits_overlaps_and_the_first_to_begin_may_end_first() -> None:
    told = Told()
    told.loop.after(1, lambda: told.loop.begin(told.act("a", 2, 2)))
    told.loop.after(2, lambda: told.loop.begin(told.act("b", 10)))
    told.run(20)
    assert told.lines == [("a0", 1), ("b0", 2), ("a1", 3), ("a ends", 5), ("b ends", 12)]


def test_of_equal_moments_the_one_made_first_comes_first() -> None:
    told = Told()
    for name in "abc":
        told.loop.after(1, lambda name=name: told.loop.begin(told.act(name, 1)))  # type: ignore[misc]
    told.run(5)
    assert [what for what, _ in told.lines] == ["a0", "b0", "c0", "a ends", "b ends", "c ends"]


def test_who_waits_alone_goes_on_in_time_and_not_before_what_else_is_due() -> None:
    told = Told()
    told.loop.after(1, lambda: told.loop.begin(told.act("a", 1, 1, 1, 1)))
    told.loop.after(4, lambda: told.say("due"))
    told.run(3.5)
    assert told.lines == [("a0", 1), ("a1", 2), ("a2", 3)]
    told.run(4.5)
    assert told.lines[3:] == [("due", 4), ("a3", 4)]
    told.run(9)
    assert told.lines[5:] == [("a ends", 5)]
    assert told.loop.steps == 6


def test_what_has_begun_others_lets_these_come_first() -> None:
    """Though nothing is due: who began them has not come to its end yet."""
    told = Told()

    def two() -> None:
        told.loop.begin(told.act("a", 1, 1))
        told.say("between")
        told.loop.begin(told.act("b", 1))

    told.loop.after(1, two)
    told.run(9)
    assert told.lines == [("a0", 1), ("between", 1), ("b0", 1), ("a1", 2), ("b ends", 2), ("a ends", 3)]


def test_an_error_comes_out_where_the_loop_runs() -> None:
    told = Told()

    def fails() -> None:
        told.loop.wait(1)
        raise ValueError("it broke")

    told.loop.after(1, lambda: told.loop.begin(fails))
    with pytest.raises(ValueError, match="it broke"):
        told.run(5)


def test_who_waits_hands_over_to_who_is_next_and_not_past_the_moment_asked_for() -> None:
    told = Told()
    for name, waits in (("a", (2, 2, 2)), ("b", (1, 2, 2)), ("c", (1.5, 0, 2))):
        told.loop.after(1, lambda name=name, waits=waits: told.loop.begin(told.act(name, *waits)))  # type: ignore[misc]
    told.run(3.2)
    assert told.lines[3:] == [("b1", 2), ("c1", 2.5), ("c2", 2.5), ("a1", 3)]
    assert told.loop.now() == told.start + 3.2
    told.run(9)
    assert told.lines[7:] == [("b2", 4), ("c ends", 4.5), ("a2", 5), ("b ends", 6), ("a ends", 7)]
    assert told.loop.steps == 3 + 9


def test_an_error_comes_out_there_whoever_let_it_go_on() -> None:
    told = Told()

    def fails() -> None:
        told.loop.wait(1)
        told.loop.wait(0.5)
        raise ValueError("it broke")

    told.loop.after(1, lambda: told.loop.begin(told.act("a", 1, 1, 1)))
    told.loop.after(1, lambda: told.loop.begin(fails))
    with pytest.raises(ValueError, match="it broke"):
        told.run(9)
    assert told.lines == [("a0", 1), ("a1", 2)]
    told.run(9)
    assert told.lines[2:] == [("a2", 3), ("a ends", 4)]


def test_only_what_was_begun_may_wait() -> None:
    with pytest.raises(RuntimeError):
        Told().loop.wait(1)


def test_closing_lets_all_come_to_an_end_at_once() -> None:
    told, threads = Told(), threading.active_count()
    told.loop.after(1, lambda: told.loop.begin(told.act("a", 100, 100)))
    told.loop.after(2, lambda: told.loop.begin(told.act("b", 100)))
    told.run(5)
    told.loop.close()
    assert told.lines == [("a0", 1), ("b0", 2), ("a1", 5), ("a ends", 5), ("b ends", 5)]
    assert threading.active_count() == threads
    told.run(500)
    assert len(told.lines) == 5


def test_all_tasks_run_in_the_thread_of_the_loop() -> None:
    told, used = Told(), set()
    for moment in range(1, 6):
        told.loop.after(moment, lambda: told.loop.begin(lambda: used.add(threading.current_thread())))
    told.run(9)
    told.loop.close()
    assert used == {threading.current_thread()}


def test_a_task_stays_in_its_place_until_it_is_released_or_its_time_is_over() -> None:
    told = Told()

    def act() -> None:
        for seconds in (10, 3):
            place = told.loop.park(seconds)
            told.loop.after(2 if seconds == 10 else 99, lambda place=place: told.loop.release(place))  # type: ignore[misc]
            told.loop.stay(place)
            told.say("goes on")

    told.loop.after(1, lambda: told.loop.begin(act))
    told.run(200)
    assert told.lines == [("goes on", 3), ("goes on", 6)]


def test_what_stays_in_a_place_ends_with_the_loop_and_only_a_task_may_stay() -> None:
    told = Told()

    def act() -> None:
        told.loop.stay(told.loop.park(50))
        told.say("goes on")

    told.loop.after(1, lambda: told.loop.begin(act))
    told.run(5)
    told.loop.close()
    assert told.lines == [("goes on", 5)]
    with pytest.raises(RuntimeError, match="task"):
        told.loop.park(1)


def test_routines_that_are_skipped_go_on_as_if_they_had_happened() -> None:
    def play(*, skips: bool) -> list[tuple[str, float]]:
        told = Told()
        for name, seconds, first_s in (("slow", 60.0, 7.0), ("quick", 2.0, 0.1), ("look", 10.0, 7.0)):
            told.loop.every(seconds, partial(told.say, name), first_s=first_s, rests=True)
        told.loop.every(200.0, partial(told.say, "always"), first_s=50.0)
        told.loop.run_until(told.start + 20)
        assert not told.loop.all_routines_since(told.start + 8)
        assert told.loop.all_routines_since(told.start + 6)
        if skips:
            told.loop.skip_routines(told.start + 200)
            told.loop.run_until(told.start + 50)
            told.loop.skip_routines(told.start + 130)
        told.loop.run_until(told.start + 200)
        return told.lines

    skipped = play(skips=True)
    assert skipped == [line for line in play(skips=False) if line[1] <= 20 or line[1] == 50 or line[1] >= 130]
    assert [name for name, at in skipped if at == 187.0] == ["slow", "look"]


def test_what_reads_nothing_need_not_happen_again_after_each_write() -> None:
    told = Told()
    told.loop.every(10.0, partial(told.say, "reads"), first_s=10.0, rests=True)
    told.loop.every(100.0, partial(told.say, "inspects"), first_s=5.0, rests=True, reads=False)
    told.loop.run_until(told.start + 60)
    assert told.loop.all_routines_since(told.start + 50)
    assert told.loop.all_routines_since(told.start + 50, others=told.start + 4)
    assert not told.loop.all_routines_since(told.start + 50, others=told.start + 6)
    assert not told.loop.all_routines_since(told.start + 61)


def test_a_minute_is_idle_after_a_fault_only_when_all_has_been_inspected_again() -> None:
    told = Told()
    faults = FaultInjector(told.loop, Trace(told.loop.now, told.start), 1)
    idle = IdleMinutes(told.loop, faults, {}, ())
    idle.look()
    told.loop.every(10.0, partial(told.say, "reads"), first_s=10.0, rests=True)
    told.loop.every(100.0, partial(told.say, "inspects"), first_s=5.0, rests=True, reads=False)

    def rests_at(seconds: float) -> bool:
        """True if the routine after this moment is left out."""
        told.loop.run_until(told.start + seconds)
        said = len(told.lines)
        idle.look()
        idle.skip(told.start + seconds + 15)
        told.loop.run_until(told.start + seconds + 14)
        return len(told.lines) == said

    assert rests_at(20.5)
    faults.active[0] = Fault("subnets")
    assert not rests_at(40.5)
    del faults.active[0]
    assert not rests_at(60.5)
    assert rests_at(110.5)
    faults.writes += 1
    assert not rests_at(130.5)
    assert rests_at(150.5)
