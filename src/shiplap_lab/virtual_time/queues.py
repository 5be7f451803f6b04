"""Standard SQS queues: at least once, in any order, visible again after a time, dead letters after five deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, count

import msgspec

from shiplap.errors import StoreError
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.trace import Trace

MOST_DELIVERIES = 5

MOST_BYTES = 256 * 1024
"""Of a message. SQS takes more by now; EventBridge, which sends most of them, does not."""

_BATCH_BYTES = 6 * 1024 * 1024
"""Of a synchronous invocation's event: the event source mapping hands over fewer messages then."""

_TRANSIT_S = 0.1


class DeliverySettings(msgspec.Struct, frozen=True):
    """Sets how a queue's messages reach its function: batch size, batching window, visibility timeout, concurrency."""

    batch_size: int
    window_s: float
    visibility_s: float
    max_concurrency: int


class _Message(msgspec.Struct):
    body: str
    visible_at: float
    deliveries: int = 0
    turns: int = 0


class SimulatedQueue:
    """One queue and the function it feeds.

    `deliver` takes (message id, body) pairs and returns the ids to deliver again, or None when the function died.
    Attributes: `dead` counts messages that were given up.
    """

    def __init__(
        self,
        name: str,
        loop: EventLoop,
        faults: FaultInjector,
        trace: Trace,
        deliver: Callable[[list[tuple[str, str]]], set[str] | None],
        feed: DeliverySettings,
    ) -> None:
        self.name = name
        self.dead = 0
        self._loop, self._faults, self._trace, self._deliver = loop, faults, trace, deliver
        self._feed = feed
        self._messages: dict[str, _Message] = {}
        self._numbers = count(1)
        self._busy = 0
        self._poll_at = float("inf")

    def __len__(self) -> int:
        return len(self._messages)

    def turns_of(self, names: Iterable[str]) -> int:
        """The longest chain of messages that these continue."""
        return max((self._messages[name].turns for name in names if name in self._messages), default=0)

    def send(self, body: str, delay_s: float = 0.0, turns: int = 0) -> None:
        """Add a message: once, twice or never, as the active faults have it. `turns` is how long its chain is.

        Raises StoreError when it is too large, as the adapters do.
        """
        if len(body.encode()) > MOST_BYTES:
            raise StoreError(f"a message of {len(body.encode())} bytes exceeds the {MOST_BYTES} that are taken")
        at_work = self._faults.at_work
        if any(kind.drops(self.name, turns) for kind in at_work):
            return
        for kind in at_work:
            body = kind.sends(body)
        self._put(body, delay_s, turns)
        if any(kind.doubles(self.name) for kind in at_work):
            self._put(body, delay_s + 20.0, turns)

    def _put(self, body: str, delay_s: float, turns: int) -> None:
        late = sum(kind.delays_s(self.name) for kind in self._faults.at_work)
        message = _Message(body, self._loop.now() + delay_s + late + _TRANSIT_S, turns=turns)
        self._messages[f"{self.name}-{next(self._numbers)}"] = message
        self._wake(message.visible_at + self._feed.window_s)

    def _wake(self, moment: float) -> None:
        if moment < self._poll_at:
            self._poll_at = moment
            self._loop.at(moment, lambda: self._poll(moment))

    def _poll(self, moment: float) -> None:
        if moment != self._poll_at:
            return  # an earlier poll took its place
        self._poll_at = float("inf")
        now = self._loop.now()
        if self._busy >= self._feed.max_concurrency:
            self._wake(now + 1.0)
            return
        due = self._batch(now)
        for name in due:
            message = self._messages[name]
            message.deliveries += 1
            message.visible_at = now + self._feed.visibility_s
        self._plan_next()
        due = [name for name in due if not self._is_dead(name)]
        if due:
            self._loop.begin(lambda: self._hand_over(due))

    def _batch(self, now: float) -> list[str]:
        """As many messages as one invocation takes."""
        due = [name for name, message in self._messages.items() if message.visible_at <= now][: self._feed.batch_size]
        sizes = accumulate(len(self._messages[name].body) for name in due)
        fitting = sum(size <= _BATCH_BYTES for size in sizes)
        return due[: max(fitting, 1)]

    def _is_dead(self, name: str) -> bool:
        if self._messages[name].deliveries <= MOST_DELIVERIES:
            return False
        self._trace.record("dead letter", queue=self.name, body=self._messages.pop(name).body[:200])
        self.dead += 1
        return True

    def _hand_over(self, names: list[str]) -> None:
        self._busy += 1
        try:
            failed = self._deliver([(name, self._messages[name].body) for name in names])
        finally:
            self._busy -= 1
        if failed is not None:
            for name in set(names) - failed:
                self._messages.pop(name, None)
        self._plan_next()

    def _plan_next(self) -> None:
        if self._messages:
            soonest = min(message.visible_at for message in self._messages.values())
            self._wake(max(soonest, self._loop.now()) + self._feed.window_s)
