"""Virtual time: one queue of events, taken in the order of their moments, and of their making where these are equal.

Somebody who waits in the middle of something lets the loop go on until the wait is over. That is how invocations
overlap: what a function does not see while it waits for an answer is what others do meanwhile. Each has a thread of its
own only because Python can leave off in the middle of plain calls in no other way: never do two of them run, and who is
next follows from the moments alone. Threads are used again, until the loop is closed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from threading import Lock, Thread

from shiplap_lab.fakes.clock import FakeClock

Action = Callable[[], object]


class _Task:
    """Something that runs until it waits, and goes on from there. `back` is what sleeps until it, or who it hands over
    to, leaves off."""

    def __init__(self, act: Action, carrier: _Worker, ended: Callable[[_Task], object]) -> None:
        self.back = Lock()
        self.error: BaseException | None = None
        self.carrier = carrier
        self._act, self._ended = act, ended
        self._turn = Lock()
        self._turn.acquire()
        self._begun = False

    def go_on(self) -> None:
        """Let it run; it does at once what the others have left to it."""
        if not self._begun:
            self._begun = True
            self.carrier.carry(self)
        else:
            self._turn.release()

    def sleep(self) -> None:
        """Called by what runs: until it is to go on."""
        self._turn.acquire()

    def run(self) -> None:
        """What its carrier does."""
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - raised again where the strand was let run
            self.error = error
        finally:
            self._ended(self)
            self.back.release()


class _Worker:
    """A thread that runs one strand after the other: to start a thread takes longer than many a strand."""

    def __init__(self) -> None:
        self._thread = Thread(target=self._run, daemon=True)
        self._strand: _Task | None = None
        self._turn = Lock()
        self._turn.acquire()

    def carry(self, strand: _Task) -> None:
        """Run a strand; called when the one before has ended."""
        self._strand = strand
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()

    def end(self) -> None:
        """Called when it carries nothing."""
        self._strand = None
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        while (strand := self._strand) is not None:
            strand.run()
            del strand
            self._turn.acquire()


class _Resume:
    """The event that somebody who waits goes on."""

    __slots__ = ("_loop", "strand")

    def __init__(self, loop: EventLoop, strand: _Task) -> None:
        self._loop, self.strand = loop, strand

    def __call__(self) -> None:
        self._loop.wake(self.strand)


class EventLoop:
    """Events to come. `steps` counts those that have happened; `stopped` lets no further one happen."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.steps = 0
        self.stopped = False
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._strand: _Task | None = None
        self._waiting: dict[int, _Task] = {}
        # The one that the loop itself has let go on, so that nothing is left to do behind it but the next event.
        self._woken: _Task | None = None
        self._ended: list[_Task] = []
        self._idle: list[_Worker] = []
        self._horizon = float("-inf")

    def now(self) -> float:
        """Epoch seconds."""
        return self.clock.now()

    def at(self, moment: float, act: Action) -> None:
        """Have something happen at a moment, epoch seconds; what lies in the past happens next."""
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Action) -> None:
        """Have something happen so many seconds from now."""
        self.at(self.now() + seconds, act)

    def every(self, seconds: float, act: Action, *, first_s: float = 0.0) -> None:
        """Have something happen again and again, for the first time in `first_s` seconds."""

        def again() -> None:
            self.after(seconds, again)
            act()

        self.after(first_s, again)

    def run_until(self, moment: float) -> None:
        """Let everything happen that is due until a moment, epoch seconds, and let time pass until then."""
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
        """Do something that may wait; the loop goes on when it first does."""
        carrier = self._idle.pop() if self._idle else _Worker()
        self._let(_Task(act, carrier, self._ended.append))

    def wait(self, seconds: float) -> None:
        """Called in what was begun: let others go on for so many seconds."""
        strand = self._strand
        if strand is None:
            raise RuntimeError("only what was begun may wait")
        if self.stopped:
            return
        moment = self.now() + seconds
        # As nothing is left to do behind it but the next event, it may do itself what the loop would do.
        foremost = self._woken is strand
        if foremost and moment <= self._horizon and not (self._events and self._events[0][0] <= moment):
            self._pass_to(moment)
            return
        self._waiting[id(strand)] = strand
        self.at(moment, _Resume(self, strand))
        if not (foremost and self._handed_over(strand)):
            strand.back.release()
        strand.sleep()

    def wake(self, strand: _Task) -> None:
        """Let who has waited go on, as an event of its own."""
        self._woken = strand
        try:
            self._let(strand)
        finally:
            self._woken = None

    def close(self) -> None:
        """Stop; whoever still waits goes on at once, in a world in which nothing happens any more."""
        self.stopped = True
        while self._waiting:
            self._let(next(iter(self._waiting.values())))
        while self._idle:
            self._idle.pop().end()

    def _pass_to(self, moment: float) -> None:
        self.steps += 1
        if moment > self.now():
            self.clock.set(moment)

    def _handed_over(self, strand: _Task) -> bool:
        """Whether the next thing that happens is that somebody else goes on, who then has been let."""
        if self.stopped or self._events[0][0] > self._horizon:
            return False
        due, _, act = self._events[0]
        if not isinstance(act, _Resume) or act.strand is strand:
            return False
        heapq.heappop(self._events)
        self._pass_to(due)
        after = act.strand
        self._waiting.pop(id(after), None)
        after.back = strand.back
        self._strand = self._woken = after
        after.go_on()
        return True

    def _let(self, strand: _Task) -> None:
        self._waiting.pop(id(strand), None)
        outer, self._strand = self._strand, strand
        back = strand.back = Lock()
        back.acquire()
        strand.go_on()
        back.acquire()
        self._strand = outer
        while self._ended:
            ended = self._ended.pop()
            self._idle.append(ended.carrier)
            if ended.error is not None:
                raise ended.error
