"""Virtual time: one queue of events, taken in the order of their moments, and of their making where these are equal.

Somebody who waits in the middle of something runs the loop until the wait is over. That is how invocations overlap
without threads: what a function does not see while it waits for an answer is what others do meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from shiplap.twins.clock import TwinClock

Act = Callable[[], object]


class Loop:
    """Events to come. `steps` counts those that have happened; `stopped` lets no further one happen."""

    def __init__(self, clock: TwinClock) -> None:
        self.clock = clock
        self.steps = 0
        self.stopped = False
        self._events: list[tuple[float, int, Act]] = []
        self._numbers = count()

    def now(self) -> float:
        """Epoch seconds."""
        return self.clock.now()

    def at(self, moment: float, act: Act) -> None:
        """Have something happen at a moment, epoch seconds; what lies in the past happens next."""
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Act) -> None:
        """Have something happen so many seconds from now."""
        self.at(self.now() + seconds, act)

    def every(self, seconds: float, act: Act, *, first_s: float = 0.0) -> None:
        """Have something happen again and again, for the first time in `first_s` seconds."""

        def again() -> None:
            self.after(seconds, again)
            act()

        self.after(first_s, again)

    def run_until(self, moment: float) -> None:
        """Let everything happen that is due until a moment, epoch seconds, and let time pass until then."""
        while self._events and self._events[0][0] <= moment and not self.stopped:
            due, _, act = heapq.heappop(self._events)
            if due > self.now():
                self.clock.set(due)
            self.steps += 1
            act()
        if self.now() < moment and not self.stopped:
            self.clock.set(moment)
