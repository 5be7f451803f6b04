"""Virtual time: one queue of events, ordered by their moment and, where moments are equal, by when they were added.

A task that waits lets the loop go on until the wait is over. That is how invocations overlap: others work while a
function waits for an answer. Each task is a greenlet, because plain Python calls cannot be suspended otherwise. All run
in one thread, and the moments alone decide which one does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count

from greenlet import getcurrent, greenlet

from shiplap_lab.fakes.signals import FakeClock

Action = Callable[[], object]


class Parked:
    """One wait of a task for its release, at the latest at a moment (epoch seconds)."""

    def __init__(self, task: greenlet, until: float) -> None:
        self.task, self.until, self.left = task, until, False


class _Routine:
    """An event that repeats and does nothing while all is at rest. `reads`: what it does may follow from any write."""

    __slots__ = ("act", "reads", "seconds")

    def __init__(self, seconds: float, act: Action, reads: bool) -> None:  # noqa: FBT001 - private to this module
        self.seconds, self.act, self.reads = seconds, act, reads


class EventLoop:
    """Future events. `steps` counts those that have happened. While `stopped` is set, no further event happens.

    Attributes:
        now: epoch seconds.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.now = clock.now
        self.steps = 0
        self.stopped = False
        self._events: list[tuple[float, int, Action]] = []
        self._routines: list[tuple[float, int, _Routine]] = []
        self._numbers = count()
        self._waiting: dict[int, greenlet] = {}
        self._task: greenlet | None = None
        # The task that the loop itself resumed: when it waits, only the next event is left to do.
        self._woken: greenlet | None = None
        self._horizon = float("-inf")

    def at(self, moment: float, act: Action) -> None:
        """Add an event at a moment, epoch seconds; one in the past happens next."""
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Action) -> None:
        """Add an event so many seconds from now."""
        self.at(self.now() + seconds, act)

    def every(
        self, seconds: float, act: Action, *, first_s: float = 0.0, rests: bool = False, reads: bool = True
    ) -> None:
        """Add an event that repeats, for the first time in `first_s` seconds.

        `rests`: it does nothing while all is at rest, and `skip_routines` may pass over it. Unless it `reads`, what it
        does follows from nothing that is written.
        """
        if rests:
            self._add_routine(self.now() + first_s, _Routine(seconds, act, reads))
            return

        def repeat() -> None:
            self.after(seconds, repeat)
            act()

        self.after(first_s, repeat)

    def run_until(self, moment: float) -> None:
        """Process all events up to a moment, epoch seconds, and advance the clock to it."""
        self._horizon = moment
        while self._is_due(moment) and not self.stopped:
            self.steps += 1
            if self._routines and (not self._events or self._routines[0][:2] < self._events[0][:2]):
                self._do_routine()
            else:
                due, _, act = heapq.heappop(self._events)
                if due > self.now():
                    self.clock.set(due)
                act()
        if self.now() < moment and not self.stopped:
            self.clock.set(moment)

    def _is_due(self, moment: float) -> bool:
        """True if anything happens until a moment."""
        events, routines = self._events, self._routines
        return bool(events and events[0][0] <= moment) or bool(routines and routines[0][0] <= moment)

    def _add_routine(self, moment: float, routine: _Routine) -> None:
        heapq.heappush(self._routines, (moment, next(self._numbers), routine))

    def _do_routine(self) -> None:
        due, _, routine = self._routines[0]
        if due > self.now():
            self.clock.set(due)
        heapq.heapreplace(self._routines, (self.now() + routine.seconds, next(self._numbers), routine))
        routine.act()

    @property
    def is_waiting(self) -> bool:
        """True if a task has begun and not ended."""
        return bool(self._waiting)

    def all_routines_since(self, moment: float, *, others: float = float("-inf")) -> bool:
        """True if every routine that reads has happened after `moment`, and any other after `others`, epoch seconds."""
        return all(due - routine.seconds > (moment if routine.reads else others) for due, _, routine in self._routines)

    def skip_routines(self, moment: float) -> None:
        """Leave out what routines would do before a moment, epoch seconds, or before the next other event.

        They go on as if they had done it: at the same times, and in the same order where times are equal.
        """
        until = min(moment, self._events[0][0]) if self._events else moment
        skipped = []
        while self._routines and self._routines[0][0] < until:
            due, number, routine = heapq.heappop(self._routines)
            while due < until:
                before, due = due, due + routine.seconds
            skipped.append((before, number, due, routine))
        for _, _, due, routine in sorted(skipped, key=lambda item: item[:2]):
            self._add_routine(due, routine)

    def begin(self, act: Action) -> None:
        """Start a task; returns when it first waits, or ends. Raises what the task raises."""
        self._resume(greenlet(act))

    def wait(self, seconds: float) -> None:
        """Called in a task: let others run for so many seconds."""
        task = self._task
        resumer = task.parent if task is not None else None
        if task is None or resumer is None:
            raise RuntimeError("only a task may wait")
        if self.stopped:
            return
        moment = self.now() + seconds
        # Only the next event is left to do, so the task may do it in place of the loop.
        if self._woken is task and moment <= self._horizon and not self._is_due(moment):
            self.steps += 1
            if moment > self.now():
                self.clock.set(moment)
            return
        self._waiting[id(task)] = task
        self.at(moment, partial(self._wake, task))
        resumer.switch()

    def park(self, seconds: float) -> Parked:
        """A place for the current task, in which it may let others run until it is released, or for so many seconds."""
        if self._task is None:
            raise RuntimeError("only a task may park")
        return Parked(self._task, self.now() + seconds)

    def stay(self, place: Parked) -> None:
        """Called by the task of a place: let others run until it is released, or its time is over."""
        task = place.task
        if self.stopped or task.parent is None:
            return
        self._waiting[id(task)] = task
        self.at(place.until, partial(self._leave, place))
        task.parent.switch()
        place.left = True

    def release(self, place: Parked, after_s: float = 0.0) -> None:
        """Have a task go on that stays in a place."""
        self.after(after_s, partial(self._leave, place))

    def _leave(self, place: Parked) -> None:
        if not place.left:
            place.left = True
            self._wake(place.task)

    def close(self) -> None:
        """Stop, and resume every waiting task at once, so that it can end: no further event happens."""
        self.stopped = True
        while self._waiting:
            self._resume(next(iter(self._waiting.values())))

    def _wake(self, task: greenlet) -> None:
        """Resume a task that has waited, as an event of its own."""
        self._woken = task
        try:
            self._resume(task)
        finally:
            self._woken = None

    def _resume(self, task: greenlet) -> None:
        """Run a task until it waits or ends; what it raises is raised here, in its parent."""
        self._waiting.pop(id(task), None)
        outer, self._task = self._task, task
        task.parent = getcurrent()
        try:
            task.switch()
        finally:
            self._task = outer
