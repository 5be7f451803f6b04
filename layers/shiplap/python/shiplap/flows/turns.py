"""Clusters that share an invocation take turns: each has a time of its own, and none waits for one that hangs.

First all are looked at side by side, each in a thread, with a short time limit: a look changes nothing. Clusters
without work are done with by that. The others are served one after the other, in the order in which they have waited,
as soon as they have answered; those that have not answered in time come last. No turn is shorter than a decision needs:
clusters for which the invocation has not enough time left are returned, and have waited longest next time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from math import inf
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

import msgspec

from shiplap.cluster.transport import time_limit
from shiplap.errors import ClusterUnreachable, TooManyRequests
from shiplap.ports import Clock
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

LOOK_S = 5.0
"""A look may last so many seconds: ten times what a cold connection and the longest answer to it need."""

GATHER_S = 1.0
"""So long, in seconds, the first turn waits for looks, so that the order and the shares of time are right."""

LEAST_TURN_S = 30.0
"""No turn is shorter, in seconds: a decision for a thousand pods and its launches take twenty."""

RESERVE_S = 5.0
"""Kept free at the end of an invocation, in seconds, for its own report."""


class Due(NamedTuple):
    """A cluster to be served. `since`, epoch seconds, is when the oldest message asked for it; 0 when it is not known.

    `asked` is whether a message names it; without one, it is served only if a look finds work.
    """

    cluster: ClusterSettings
    since: float = 0.0
    asked: bool = True


class ProbeResult(msgspec.Struct, frozen=True):
    """What a look showed: whether there is work, and whether the cluster answered in time."""

    work: bool
    answers: bool = True


Probe = Callable[[Due], bool]
"""Whether there is work; raises what `Turns` bears. It runs in a thread of its own and changes nothing."""


class Turns(NamedTuple):
    """How an invocation is divided.

    `deadline` is its end in epoch seconds, `least_s` the shortest turn in seconds. After `begins_until`, epoch seconds,
    no further turn begins. Without `look`, all are taken for clusters that answer and have work.
    """

    clock: Clock
    deadline: float
    look: Probe | None = None
    least_s: float = LEAST_TURN_S
    begins_until: float = inf

    def take(self, due: Sequence[Due], serve: Callable[[ClusterSettings, float], None]) -> list[Due]:
        """Serve all that have work.

        Args:
            due: clusters, each once.
            serve: serves one until a moment in epoch seconds, and raises nothing.

        Returns:
            Those whose turn did not come, the longest waiting first.
        """
        waiting = _Waiting(due, self.look)
        waiting.gather()
        ends_at = self.deadline - RESERVE_S
        served = 0
        while (item := waiting.next()) is not None:
            now = self.clock.now()
            if served and (now + self.least_s > ends_at or now > self.begins_until):
                return [item, *waiting.rest()]
            share_s = (ends_at - now) / (1 + waiting.number)
            until = min(ends_at, now + max(self.least_s, share_s))
            with time_limit(until - now):
                serve(item.cluster, until)
            served += 1
        return []


class _Waiting:
    """Clusters still to be served, by what looks have shown of them so far."""

    def __init__(self, due: Sequence[Due], look: Probe | None) -> None:
        self._ready: list[Due] = []
        self._last: list[Due] = []
        self._looked_at: dict[str, Due] = {}
        self._seen: Queue[tuple[str, ProbeResult]] = Queue()
        needless = look is None or (len(due) == 1 and due[0].asked)
        for item in due:
            if needless or look is None:
                self._ready.append(item)
                continue
            self._looked_at[item.cluster.name] = item
            arguments = (item, look, self._seen)
            Thread(target=_look, args=arguments, name=f"look-{item.cluster.name}", daemon=True).start()

    @property
    def number(self) -> int:
        """How many may still have to be served."""
        return len(self._ready) + len(self._last) + len(self._looked_at)

    def gather(self) -> None:
        """Wait a little for all looks."""
        deadline = time.monotonic() + GATHER_S
        while self._looked_at and (left := deadline - time.monotonic()) > 0:
            self._collect(left)

    def next(self) -> Due | None:
        """The one to be served now, after a wait for looks if there is none yet; None when all are."""
        while True:
            if not self._ready and self._looked_at and not self._collect(LOOK_S + 1.0):
                # Even their errors do not come: something below the time limit hangs.
                self._last += self._looked_at.values()
                self._looked_at.clear()
            self._collect(0.0)
            for some in (self._ready, self._last):
                if some:
                    some.sort(key=lambda item: (not item.asked, item.since, item.cluster.name))
                    return some.pop(0)
                if self._looked_at:
                    break
            else:
                return None

    def rest(self) -> list[Due]:
        """All that would have come next."""
        found = []
        while (item := self.next()) is not None:
            found.append(item)
        return found

    def _collect(self, wait_s: float) -> bool:
        """Collect the looks that have ended, after a wait for the first; whether there was any."""
        noted = False
        while self._looked_at:
            try:
                name, seen = self._seen.get(block=wait_s > 0, timeout=wait_s or None)
            except Empty:
                break
            noted, wait_s = True, 0.0
            item = self._looked_at.pop(name, None)
            if item is not None and not seen.answers:
                self._last.append(item)
            elif item is not None and (seen.work or item.asked):
                self._ready.append(item)
        return noted


def _look(item: Due, look: Probe, seen: Queue[tuple[str, ProbeResult]]) -> None:
    """The body of a looking thread. Whatever a look meets, serving the cluster meets it too, and says so."""
    try:
        with time_limit(LOOK_S):
            found = ProbeResult(look(item))
    except (ClusterUnreachable, TooManyRequests) as error:
        _LOG.warning("is served last: %s", error, extra={"cluster": item.cluster.name})
        found = ProbeResult(work=True, answers=False)
    except Exception:  # noqa: BLE001 - see above; a thread has no caller
        found = ProbeResult(work=True)
    seen.put((item.cluster.name, found))
