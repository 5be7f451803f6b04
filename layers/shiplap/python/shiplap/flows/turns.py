"""Clusters that share an invocation take turns: each has a time of its own, and none waits for one that hangs.

First all are probed side by side, with a short time limit: a probe changes nothing and costs a request or two. It asks
the API server last or alone, so that one that hangs is found out. Clusters without work are done with by that. The
others are served one after the other, as soon as they have answered; those that have not answered in time come last.
No turn is shorter than a decision needs: clusters for which the invocation has not enough time left are returned, and
have waited longest next time.

A cluster may answer a probe at once and its turn slowly, on purpose or not. So a process remembers how long turns took:
clusters whose turns were short come first, and among those whose turns took about as long, those that have waited
longest. While others wait, the first turn of a cluster in a process is no longer than a turn has to be.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from queue import Empty, Queue
from threading import Thread
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from shiplap.cluster.bounded_connections import time_limit
from shiplap.errors import ClusterUnreachable, TooManyRequests
from shiplap.flows.context import FlowContext
from shiplap.ports import Clock
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

PROBE_S = 5.0
"""A probe may last so many seconds: ten times what a cold connection and the longest answer to it need."""

GATHER_S = 1.0
"""So long, in seconds, the first turn waits for probes, so that the order and the shares of time are right."""

LEAST_TURN_S = 30.0
"""No turn is shorter, in seconds: a decision for a thousand pods and its launches take twenty."""

RESERVE_S = 5.0
"""Kept free at the end of an invocation, in seconds, for its own report."""

SHORT_TURN_S = 2.0
"""Turns below so many seconds count as equally long: a cluster delays those behind it by no more than that."""

REMEMBERED_S = 3600.0
"""For so many seconds the longest turn of a cluster decides its place: quick turns in between do not make up for it."""

FULL_SWEEP_S = 300.0
"""So often an idle cluster is swept all the same, in seconds: instances without a claim are only found by EC2."""


class Due(NamedTuple):
    """A cluster to be served. `since`, epoch seconds, is when the oldest message asked for it; 0 when it is not known.

    `named` is whether a message names it; without one, it is served only if a probe finds work.
    """

    cluster: ClusterSettings
    since: float = 0.0
    named: bool = True


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe: whether there is work, and whether the cluster answered in time."""

    work: bool = True
    answers: bool = True


class TurnTimes:
    """Remembers how long the turns of clusters took in this process.

    A rank is 0 for short turns, 1 for turns below twice that, and one more for each doubling.
    """

    def __init__(self) -> None:
        self._ended_at: defaultdict[str, dict[int, float]] = defaultdict(dict)
        """When the last turn of a rank ended, epoch seconds, by cluster."""

    def note(self, cluster: str, seconds: float, now: float) -> None:
        """A turn has ended; a clock that was set back meanwhile says nothing against the cluster."""
        self._ended_at[cluster][int(max(seconds, 0.0) / SHORT_TURN_S).bit_length()] = now

    def knows(self, cluster: str) -> bool:
        """True if the cluster has had a turn."""
        return cluster in self._ended_at

    def rank(self, cluster: str, now: float) -> int:
        """That of the longest turn within REMEMBERED_S; 1 of a cluster without one."""
        ended_at = self._ended_at.get(cluster, {})
        return max((rank for rank, at in ended_at.items() if now - at <= REMEMBERED_S), default=1)


Probe = Callable[[Due], bool]
"""Whether there is work; raises what `Turns` bears. It may run beside others and changes nothing."""


class ProbeExecutor(Protocol):
    """Runs probes."""

    def submit(self, name: str, probe: Callable[[], None]) -> None:
        """Start a probe, and wait for it or not."""


class ThreadPerProbe:
    """Runs each probe in a thread of its own, without waiting for it: one that hangs holds up nothing."""

    def submit(self, name: str, probe: Callable[[], None]) -> None:
        """Start a probe."""
        Thread(target=probe, name=name, daemon=True).start()


class Turns(NamedTuple):
    """Divides an invocation into turns of clusters.

    `deadline` is its end in epoch seconds, `least_s` the shortest turn in seconds. After `begins_until`, epoch seconds,
    no further turn begins. Without `probe`, all are taken for clusters that answer and have work. Without `times`,
    clusters come in the order in which they have waited.
    """

    clock: Clock
    deadline: float
    probe: Probe | None = None
    least_s: float = LEAST_TURN_S
    begins_until: float = inf
    executor: ProbeExecutor = ThreadPerProbe()
    times: TurnTimes | None = None

    def take(self, due: Sequence[Due], serve: Callable[[ClusterSettings, float], None]) -> list[Due]:
        """Serve all that have work.

        Args:
            due: clusters, each once.
            serve: serves one until a moment in epoch seconds, and raises nothing.

        Returns:
            Those whose turn did not come, in the order in which they would have been served.
        """
        waiting = _Waiting(due, self.probe, self.executor, self._ranks(due))
        waiting.gather()
        ends_at = self.deadline - RESERVE_S
        has_served = False
        while (item := waiting.next()) is not None:
            now = self.clock.now()
            if has_served and (now + self.least_s > ends_at or now > self.begins_until):
                return [item, *waiting.rest()]
            until = min(ends_at, now + self._length_s(item, ends_at - now, waiting.number))
            with time_limit(until - now):
                serve(item.cluster, until)
            if self.times is not None:
                self.times.note(item.cluster.name, self.clock.now() - now, self.clock.now())
            has_served = True
        return []

    def _ranks(self, due: Sequence[Due]) -> dict[str, int]:
        if self.times is None:
            return {}
        now = self.clock.now()
        return {item.cluster.name: self.times.rank(item.cluster.name, now) for item in due}

    def _length_s(self, item: Due, left_s: float, others: int) -> float:
        """Return how long a turn may last, given the time left and how many clusters wait behind it; in seconds."""
        if others and self.times is not None and not self.times.knows(item.cluster.name):
            return self.least_s
        return max(self.least_s, left_s / (1 + others))


class _Waiting:
    """Clusters still to be served, by what probes have shown of them so far, and by their ranks (`TurnTimes.rank`)."""

    def __init__(
        self,
        due: Sequence[Due],
        probe: Probe | None,
        executor: ProbeExecutor,
        ranks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._ready: list[Due] = []
        self._last: list[Due] = []
        self._probed: dict[str, Due] = {}
        self._ranks = ranks
        self._results: Queue[tuple[str, ProbeResult]] = Queue()
        if probe is None or (len(due) == 1 and due[0].named):
            self._ready += due
            return
        self._probed = {item.cluster.name: item for item in due}
        for item in due:
            executor.submit(f"probe-{item.cluster.name}", _probing(item, probe, self._results))

    @property
    def number(self) -> int:
        """The number of clusters that may still have to be served."""
        return len(self._ready) + len(self._last) + len(self._probed)

    def gather(self) -> None:
        """Wait a little for all probes but those of clusters that come last anyway."""
        deadline = time.monotonic() + GATHER_S
        first = min(map(self._rank, self._probed.values()), default=0)
        while any(self._rank(item) == first for item in self._probed.values()):
            if (left := deadline - time.monotonic()) <= 0:
                break
            self._collect(left)

    def next(self) -> Due | None:
        """The one to be served now, after a wait for probes if there is none yet; None when all are."""
        while True:
            self._collect(0.0)
            for some in (self._ready, self._last):
                some.sort(key=lambda item: (self._rank(item), not item.named, item.since, item.cluster.name))
            earlier = min(map(self._rank, self._probed.values()), default=inf)
            if self._ready:
                if self._rank(self._ready[0]) <= earlier or not self._collect(GATHER_S):
                    return self._ready.pop(0)
            elif not self._probed:
                return self._last.pop(0) if self._last else None
            elif not self._collect(PROBE_S + 1.0):
                # Even their errors do not come: something below the time limit hangs.
                self._last += self._probed.values()
                self._probed.clear()

    def _rank(self, item: Due) -> int:
        return self._ranks.get(item.cluster.name, 0)

    def rest(self) -> list[Due]:
        """All that would have come next."""
        remaining = []
        while (due := self.next()) is not None:
            remaining.append(due)
        return remaining

    def _collect(self, wait_s: float) -> bool:
        """Collect the probes that have ended, after a wait for the first; whether there was any."""
        noted = False
        while self._probed:
            try:
                name, result = self._results.get(block=wait_s > 0, timeout=wait_s or None)
            except Empty:
                break
            noted, wait_s = True, 0.0
            due = self._probed.pop(name, None)
            if due is not None and not result.answers:
                self._last.append(due)
            elif due is not None and (result.work or due.named):
                self._ready.append(due)
        return noted


def _probing(due: Due, probe: Probe, results: Queue[tuple[str, ProbeResult]]) -> Callable[[], None]:
    """One probe, to be run by an executor. Whatever it meets, serving the cluster meets it too, and says so."""

    def act() -> None:
        try:
            with time_limit(PROBE_S):
                result = ProbeResult(probe(due))
        except (ClusterUnreachable, TooManyRequests) as error:
            _LOG.warning("is served last: %s", error, extra={"cluster": due.cluster.name})
            result = ProbeResult(answers=False)
        except Exception:  # noqa: BLE001 - see above; a thread has no caller
            result = ProbeResult()
        results.put((due.cluster.name, result))

    return act


# What probes ask


def check_answers(context: FlowContext) -> bool:
    """True. Raises ClusterError where the API server does not answer the smallest list."""
    context.cluster.pending_pods(most=1)
    return True


class IdleClusters:
    """Clusters that had neither claims nor commands at some epoch. Both are only added together with a step of it, so
    they have none as long as it stands: a request instead of nine. What others put into the table is found after
    FULL_SWEEP_S.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, float]] = {}

    def holds(self, cluster: str, context: FlowContext) -> bool:
        """True if there are neither claims nor commands. Raises StoreError."""
        epoch = context.state.epoch(cluster)  # before the others: what is added meanwhile moves it
        known_epoch, at = self._since.get(cluster, (-1, 0.0))
        if known_epoch == epoch and context.clock.now() < at + FULL_SWEEP_S:
            return True
        self._since.pop(cluster, None)
        if context.state.claims(cluster) or context.state.commands(cluster):
            return False
        self._since[cluster] = (epoch, context.clock.now())
        return True


def needs_sweep(settings: ClusterSettings, context: FlowContext, idle: IdleClusters) -> bool:
    """True if pods wait, nodes are there or on their way, or nodes are wanted without pods.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    from shiplap.scheduling.supply.templates import may_launch_without_pods  # noqa: PLC0415 - only who plans needs numpy

    if settings.paused or settings.live_manifests:  # their manifests are read at least every minute
        return True
    if any(item.settings.asks_without_pods for item in settings.policies):
        return True
    waiting = context.cluster.pending_pods(most=1)
    return bool(waiting) or may_launch_without_pods(settings.manifests) or not idle.holds(settings.name, context)


def needs_disruption(settings: ClusterSettings, context: FlowContext, idle: IdleClusters) -> bool:
    """True if there are nodes of ours, or commands under way. Shiplap does not ask a cluster without them.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    return not idle.holds(settings.name, context) and check_answers(context)
