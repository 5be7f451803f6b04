"""Times the acts of a simulated cluster: by the simulation's event loop, or by a queue that real time drives."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol


class EventQueue(Protocol):
    """Future events; moments in epoch seconds. `virtual_time.EventLoop` is one."""

    def now(self) -> float: ...

    def at(self, moment: float, act: Callable[[], object]) -> None: ...

    def after(self, seconds: float, act: Callable[[], object]) -> None: ...


class SteppedEvents:
    """An EventQueue that its owner moves on; events of one moment happen in the order in which they were added."""

    def __init__(self) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def now(self) -> float:
        return self._now

    def at(self, moment: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self._now + seconds, act)

    def advance(self, now: float) -> None:
        """Let a moment come, and all events that are due by then."""
        self._now = now
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2]()
