"""Holds time that passes only while all threads wait, so that loops of threads are tested without a sleep."""

from __future__ import annotations

from math import inf
from queue import Empty, Queue
from threading import Condition, Thread, get_ident
from threading import enumerate as enumerate_threads
from typing import Any


class SteppedTime:
    """A clock, in epoch seconds, with the pause and the queue of threads that are started after it.

    While its own thread waits at an empty queue and all others pause, time jumps to where the first of them goes on.
    The end of the context is past every deadline: the others end as well.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._turn = Condition()
        self._until: dict[int, float] = {}
        self._before = set(enumerate_threads())
        self.waits: list[float] = []
        """How many seconds each read of a queue would have waited at most."""

    def __enter__(self) -> SteppedTime:
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._now = inf  # past every deadline
            self._turn.notify_all()
        for thread in self._others():
            thread.join()

    def now(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        with self._turn:
            until = self._until[get_ident()] = self._now + seconds
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._now >= until)

    def queue(self) -> Queue[Any]:
        return _SteppedQueue(self)

    def told(self) -> None:
        """Wake the thread that waits at a queue."""
        with self._turn:
            self._turn.notify_all()

    def wait(self, queue: Queue[Any], seconds: float) -> None:
        """Let so much time pass, or less if something is put into the queue."""
        self.waits.append(seconds)
        end = self._now + seconds
        with self._turn:
            while queue.empty() and self._now < end:
                if self._all_pause():
                    self._now = min([end, *(moment for moment in self._until.values() if moment > self._now)])
                    self._turn.notify_all()
                else:
                    self._turn.wait(0.01)  # a thread that ends tells nobody

    def _others(self) -> list[Thread]:
        return [thread for thread in enumerate_threads() if thread not in self._before]

    def _all_pause(self) -> bool:
        return all(self._until.get(thread.ident or 0, self._now) > self._now for thread in self._others())


class _SteppedQueue(Queue[Any]):
    def __init__(self, time: SteppedTime) -> None:
        super().__init__()
        self._time = time

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        self._time.told()

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        if block and self.empty():
            self._time.wait(self, timeout if timeout is not None else inf)
        elif block:
            self._time.waits.append(timeout or 0.0)
        if self.empty():
            raise Empty
        return super().get(block=False)
