"""Clusters that share an invocation take turns: each has a time of its own, and none waits for one that hangs.

First all are probed side by side, with a short time limit: a probe changes nothing and costs a request or two. It asks
the API server last or alone, so that one that hangs is found out. Clusters without work are done with by that. The
others are served one after the other, in the order in which they have waited, as soon as they have answered; those that
have not answered in time come last. No turn is shorter than a decision needs: clusters for which the invocation has not
enough time left are returned, and have waited longest next time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from math import inf
from queue import Empty, Queue
from threading import Thread
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
    """What a probe showed: whether there is work, and whether the cluster answered in time."""

    work: bool = True
    answers: bool = True


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
    """How an invocation is divided.

    `deadline` is its end in epoch seconds, `least_s` the shortest turn in seconds. After `begins_until`, epoch seconds,
    no further turn begins. Without `probe`, all are taken for clusters that answer and have work.
    """

    clock: Clock
    deadline: float
    probe: Probe | None = None
    least_s: float = LEAST_TURN_S
    begins_until: float = inf
    executor: ProbeExecutor = ThreadPerProbe()

    def take(self, due: Sequence[Due], serve: Callable[[ClusterSettings, float], None]) -> list[Due]:
        """Serve all that have work.

        Args:
            due: clusters, each once.
            serve: serves one until a moment in epoch seconds, and raises nothing.

        Returns:
            Those whose turn did not come, the longest waiting first.
        """
        waiting = _Waiting(due, self.probe, self.executor)
        waiting.gather()
        ends_at = self.deadline - RESERVE_S
        has_served = False
        while (item := waiting.next()) is not None:
            now = self.clock.now()
            if has_served and (now + self.least_s > ends_at or now > self.begins_until):
                return [item, *waiting.rest()]
            share_s = (ends_at - now) / (1 + waiting.number)
            until = min(ends_at, now + max(self.least_s, share_s))
            with time_limit(until - now):
                serve(item.cluster, until)
            has_served = True
        return []


class _Waiting:
    """Clusters still to be served, by what probes have shown of them so far."""

    def __init__(self, due: Sequence[Due], probe: Probe | None, executor: ProbeExecutor) -> None:
        self._ready: list[Due] = []
        self._last: list[Due] = []
        self._probed: dict[str, Due] = {}
        self._results: Queue[tuple[str, ProbeResult]] = Queue()
        if probe is None or (len(due) == 1 and due[0].named):
            self._ready += due
            return
        self._probed = {item.cluster.name: item for item in due}
        for item in due:
            executor.submit(f"probe-{item.cluster.name}", _probing(item, probe, self._results))

    @property
    def number(self) -> int:
        """How many may still have to be served."""
        return len(self._ready) + len(self._last) + len(self._probed)

    def gather(self) -> None:
        """Wait a little for all probes."""
        deadline = time.monotonic() + GATHER_S
        while self._probed and (left := deadline - time.monotonic()) > 0:
            self._collect(left)

    def next(self) -> Due | None:
        """The one to be served now, after a wait for probes if there is none yet; None when all are."""
        while True:
            if not self._ready and self._probed and not self._collect(PROBE_S + 1.0):
                # Even their errors do not come: something below the time limit hangs.
                self._last += self._probed.values()
                self._probed.clear()
            self._collect(0.0)
            for some in (self._ready, self._last):
                if some:
                    some.sort(key=lambda item: (not item.named, item.since, item.cluster.name))
                    return some.pop(0)
                if self._probed:
                    break
            else:
                return None

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
        """Whether there are neither claims nor commands. Raises StoreError."""
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
    """Whether pods wait, nodes are there or on their way, or are wanted without pods.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    from shiplap.scheduling.supply.templates import may_launch_without_pods  # noqa: PLC0415 - only who plans needs numpy

    if settings.paused or settings.live_manifests:  # their manifests are read at least every minute
        return True
    waiting = context.cluster.pending_pods(most=1)
    return bool(waiting) or may_launch_without_pods(settings.manifests) or not idle.holds(settings.name, context)


def needs_disruption(settings: ClusterSettings, context: FlowContext, idle: IdleClusters) -> bool:
    """Whether there are nodes of ours, or commands under way. A cluster without is not asked.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    return not idle.holds(settings.name, context) and check_answers(context)
