"""The threads of the watch function in virtual time: each is a task of the event loop, and waits in virtual time.

The modules that start threads are given these in place of those of the standard library for as long as a run lasts. So
what runs is the same code as in production, one thread at a time, in an order that follows from the moments alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from queue import Empty
from typing import Any

from shiplap.cluster import snapshot_keeper, watcher
from shiplap.flows.planning import decision_inputs
from shiplap.flows.watch import watch
from shiplap_lab.fakes.faults import Crash
from shiplap_lab.virtual_time.event_loop import EventLoop, Parked
from shiplap_lab.virtual_time.fault_injector import FaultInjector

_LOOK_S = 10.0
"""How often a watch looks whether it has a successor: each time costs as much as an effect."""

_LONGEST_S = 3600.0


class WaitingTasks:
    """Tasks that wait for something to become true."""

    def __init__(self, loop: EventLoop, faults: FaultInjector) -> None:
        self._loop, self._faults = loop, faults
        self._places: list[Parked] = []

    def wait(self, is_true: Callable[[], bool], timeout_s: float = inf) -> bool:
        """Let others run until it is true, at most so many seconds; whether it is."""
        until = self._loop.now() + timeout_s
        while not is_true() and (left := until - self._loop.now()) > 0:
            place = self._loop.park(min(left, _LONGEST_S))
            self._places.append(place)
            self._faults.stay(place)
        return is_true()

    def wake(self, after_s: float = 0.0) -> None:
        """It may have become true."""
        places, self._places = self._places, []
        for place in places:
            self._loop.release(place, after_s)


class VirtualThreads:
    """Makes threads, events and queues of one run."""

    def __init__(self, loop: EventLoop, faults: FaultInjector) -> None:
        self.loop, self.faults = loop, faults

    def thread(
        self,
        *,
        target: Callable[..., object],
        args: Sequence[Any] = (),
        name: str = "",  # noqa: ARG002 - as Thread is called
        daemon: bool = False,  # noqa: ARG002 - as above
    ) -> VirtualThread:
        """As `threading.Thread`."""
        return VirtualThread(self, lambda: target(*args))

    def event(self) -> VirtualEvent:
        """As `threading.Event`."""
        return VirtualEvent(self.waiting())

    def queue(self) -> VirtualQueue:
        """As `queue.Queue`."""
        return VirtualQueue(self.waiting())

    def waiting(self) -> WaitingTasks:
        return WaitingTasks(self.loop, self.faults)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The watch function has these threads; every cluster counts as large, so that it keeps snapshots of it."""
        made: Mapping[Any, Mapping[str, Any]] = {
            watch: {"Thread": self.thread, "Event": self.event, "FEWEST_PODS": 0},
            watcher: {"Thread": self.thread, "Event": self.event, "Queue": self.queue, "LOOK_S": _LOOK_S},
            snapshot_keeper: {"Event": self.event},
            decision_inputs: {"FEWEST_NODES": 1},
        }
        kept = [(module, name, getattr(module, name)) for module, names in made.items() for name in names]
        for module, names in made.items():
            for name, value in names.items():
                setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in kept:
                setattr(module, name, value)


class VirtualThread:
    """A thread of the invocation that starts it. When one thread dies, the process dies with all others."""

    def __init__(self, threads: VirtualThreads, body: Callable[[], object]) -> None:
        self._loop, self._faults, self._body = threads.loop, threads.faults, body
        self._invocation = threads.faults.current
        self._has_ended = False
        self._joining = threads.waiting()

    def start(self) -> None:
        """Begin it, when the one that starts it waits."""
        self._loop.after(0.0, lambda: self._loop.begin(self._run))

    def join(self) -> None:
        """Wait for its end."""
        self._joining.wait(lambda: self._has_ended)

    def _run(self) -> None:
        invocation = self._invocation
        if invocation is None or invocation.over:
            return
        self._faults.current = invocation
        try:
            self._body()
        except Crash:
            invocation.over = True
        finally:
            self._faults.current = None
            self._has_ended = True
            self._joining.wake()


class VirtualEvent:
    """As `threading.Event`."""

    def __init__(self, waiting: WaitingTasks) -> None:
        self._waiting, self._is_set = waiting, False

    def set(self) -> None:
        self._is_set = True
        self._waiting.wake()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds, and return True if the event is set by then."""
        return self._waiting.wait(self.is_set, timeout)


class VirtualQueue:
    """As `queue.Queue`."""

    def __init__(self, waiting: WaitingTasks) -> None:
        self._waiting = waiting
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiting.wake()

    def get(self, timeout: float) -> Any:
        """The oldest item. Raises Empty when there is none within so many seconds."""
        if not self._waiting.wait(lambda: bool(self._items), timeout):
            raise Empty
        return self._items.popleft()
