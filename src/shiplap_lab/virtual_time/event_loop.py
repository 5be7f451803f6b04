"""Virtual time: one queue of events, ordered by their moment and, where moments are equal, by when they were added.

A task that waits lets the loop go on until the wait is over. That is how invocations overlap: others work while a
function waits for an answer. Each task has its own thread, because plain Python calls cannot be suspended otherwise.
Only one thread runs at a time, and the moments alone decide which one. Threads are reused until the loop is closed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from threading import Lock, Thread

from shiplap_lab.fakes.clock import FakeClock

Action = Callable[[], object]


class _Task:
    """Code that runs until it waits, and continues from there.

    `back` is released when the task, or the task it hands over to, waits or ends.
    """

    def __init__(self, act: Action, worker: _Worker, ended: Callable[[_Task], object]) -> None:
        self.back = Lock()
        self.error: BaseException | None = None
        self.worker = worker
        self._act, self._ended = act, ended
        self._turn = Lock()
        self._turn.acquire()
        self._begun = False

    def go_on(self) -> None:
        """Let it run, until it waits or ends."""
        if not self._begun:
            self._begun = True
            self.worker.run_task(self)
        else:
            self._turn.release()

    def sleep(self) -> None:
        """Called by the task itself: block until it may continue."""
        self._turn.acquire()

    def run(self) -> None:
        """Called in the worker's thread."""
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - raised again in the loop
            self.error = error
        finally:
            self._ended(self)
            self.back.release()


class _Worker:
    """A thread that runs one task after the other: starting a thread takes longer than many tasks."""

    def __init__(self) -> None:
        self._thread = Thread(target=self._run, daemon=True)
        self._task: _Task | None = None
        self._turn = Lock()
        self._turn.acquire()

    def run_task(self, task: _Task) -> None:
        """Run a task; called when the previous one has ended."""
        self._task = task
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()

    def end(self) -> None:
        """End the thread; called while no task runs in it."""
        self._task = None
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        while (task := self._task) is not None:
            task.run()
            del task
            self._turn.acquire()


class _Resume:
    """The event that a waiting task continues."""

    __slots__ = ("_loop", "task")

    def __init__(self, loop: EventLoop, task: _Task) -> None:
        self._loop, self.task = loop, task

    def __call__(self) -> None:
        self._loop.wake(self.task)


class EventLoop:
    """Future events. `steps` counts those that have happened. While `stopped` is set, no further event happens."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.steps = 0
        self.stopped = False
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._task: _Task | None = None
        self._waiting: dict[int, _Task] = {}
        # The task that the loop itself resumed: when it waits, only the next event is left to do.
        self._woken: _Task | None = None
        self._ended: list[_Task] = []
        self._idle: list[_Worker] = []
        self._horizon = float("-inf")

    def now(self) -> float:
        """Epoch seconds."""
        return self.clock.now()

    def at(self, moment: float, act: Action) -> None:
        """Add an event at a moment, epoch seconds; one in the past happens next."""
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Action) -> None:
        """Add an event so many seconds from now."""
        self.at(self.now() + seconds, act)

    def every(self, seconds: float, act: Action, *, first_s: float = 0.0) -> None:
        """Add an event that repeats, for the first time in `first_s` seconds."""

        def repeat() -> None:
            self.after(seconds, repeat)
            act()

        self.after(first_s, repeat)

    def run_until(self, moment: float) -> None:
        """Process all events up to a moment, epoch seconds, and advance the clock to it."""
        self._horizon = moment
        while self._events and self._events[0][0] <= moment and not self.stopped:
            due, _, act = heapq.heappop(self._events)
            if due > self.now():
                self.clock.set(due)
            self.steps += 1
            act()
        if self.now() < moment and not self.stopped:
            self.clock.set(moment)

    def begin(self, act: Action) -> None:
        """Start a task; returns when it first waits, or ends."""
        worker = self._idle.pop() if self._idle else _Worker()
        self._let(_Task(act, worker, self._ended.append))

    def wait(self, seconds: float) -> None:
        """Called in a task: let others run for so many seconds."""
        task = self._task
        if task is None:
            raise RuntimeError("only a task may wait")
        if self.stopped:
            return
        moment = self.now() + seconds
        # Only the next event is left to do, so the task may do it in place of the loop: switching threads takes time.
        foremost = self._woken is task
        if foremost and moment <= self._horizon and not (self._events and self._events[0][0] <= moment):
            self._pass_to(moment)
            return
        self._waiting[id(task)] = task
        self.at(moment, _Resume(self, task))
        if not (foremost and self._handed_over(task)):
            task.back.release()
        task.sleep()

    def wake(self, task: _Task) -> None:
        """Resume a task that has waited, as an event of its own."""
        self._woken = task
        try:
            self._let(task)
        finally:
            self._woken = None

    def close(self) -> None:
        """Stop, and resume every waiting task at once, so that it can end: no further event happens."""
        self.stopped = True
        while self._waiting:
            self._let(next(iter(self._waiting.values())))
        while self._idle:
            self._idle.pop().end()

    def _pass_to(self, moment: float) -> None:
        self.steps += 1
        if moment > self.now():
            self.clock.set(moment)

    def _handed_over(self, task: _Task) -> bool:
        """Resume the task whose turn is the next event; False if the next event is something else."""
        if self.stopped or self._events[0][0] > self._horizon:
            return False
        due, _, act = self._events[0]
        if not isinstance(act, _Resume) or act.task is task:
            return False
        heapq.heappop(self._events)
        self._pass_to(due)
        after = act.task
        self._waiting.pop(id(after), None)
        after.back = task.back
        self._task = self._woken = after
        after.go_on()
        return True

    def _let(self, task: _Task) -> None:
        self._waiting.pop(id(task), None)
        outer, self._task = self._task, task
        back = task.back = Lock()
        back.acquire()
        task.go_on()
        back.acquire()
        self._task = outer
        while self._ended:
            ended = self._ended.pop()
            self._idle.append(ended.worker)
            if ended.error is not None:
                raise ended.error
