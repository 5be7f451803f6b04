"""The active faults, and the time that effects take: every effect of every fake passes through here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.faults.functions.crash import CrashFault
from shiplap_lab.faults.played_faults import PlayedFaults
from shiplap_lab.virtual_time.event_loop import EventLoop, Parked
from shiplap_lab.virtual_time.trace import Trace

_LATENCY_S = {"compute.launch": 1.5, "compute.terminate": 0.4, "cluster.view": 0.3, "compute.resolve": 0.5}
_USUAL_S = 0.02
_READS = frozenset(
    {
        "capacity.learned",
        "capacity.pilots",
        "catalog.load",
        "cluster.disruption_budgets",
        "cluster.node",
        "cluster.nodes",
        "cluster.pending_pods",
        "cluster.pods_on",
        "cluster.view",
        "compute.instances",
        "compute.resolve",
        "compute.sweep_templates",
        "dry_runs.load",
        "health.ailing",
        "joins.read",
        "memory.load",
        "memory.save",
        "state.claim",
        "state.claim_of_instance",
        "state.claims",
        "state.commands",
        "state.epoch",
        "state.read",
        "status.load",
    }
)
"""Effects of a cluster at rest. What the disrupt function remembers is saved each time, and counts where it changes."""

_INSPECTING = frozenset({"catalog"})
"""Functions that only write what the Region sells: that never changes in a run."""


class Invocation(msgspec.Struct):
    """One run of a function. `points` counts the effects it has passed, `dies_at` the one it dies at, -1 for none.

    When it is `over`, all of its threads are.
    `turns` counts the function's invocations in the chain of messages that led to this one. `latency` draws how long
    its effects take.
    """

    function: str
    name: str
    deadline: float
    began_at: float = 0.0
    points: int = 0
    dies_at: int = -1
    over: bool = False
    turns: int = 1
    latency: Random | None = None


class FaultInjector(Faults, PlayedFaults):
    """Applies the active faults to the effects of functions; `current` is the invocation that runs now.

    `writes` counts effects that may have changed something. With `latency_by_moment`, how long the effects of an
    invocation take follows from its function and its moment, so that it is the same whatever others there are.

    Each of `on_point` is called at every moment at which a function could die, before it does.
    """

    def __init__(self, loop: EventLoop, trace: Trace, seed: int) -> None:
        Faults.__init__(self)
        PlayedFaults.__init__(self, loop, trace, seed)
        self.current: Invocation | None = None
        self.on_point: list[Callable[[Invocation, str], object]] = []
        self._at_work: dict[int, Invocation] = {}
        self._loop = loop
        self._trace = trace
        self._seed = seed
        self.writes = 0
        self.latency_by_moment = False
        self._latency = Random(f"{seed}:latency")  # noqa: S311 - repeatable chance

    def now_in(self, container: int) -> float:
        """Epoch seconds as the clock of a container shows them."""
        return self._loop.now() + sum(kind.clock_s(container) for kind in self.at_work)

    def run(self, invocation: Invocation, act: Callable[[], object]) -> bool:
        """Run a function to its end or its death; True if it ended."""
        planned = (kind.dies_at(invocation.function) for kind in self.kinds)
        invocation.dies_at = next((number for number in planned if number is not None), -1)
        invocation.latency = self._latency
        if self.latency_by_moment:
            moment = f"{self._seed}:latency:{invocation.function}:{invocation.began_at:.6f}"
            invocation.latency = Random(moment)  # noqa: S311 - repeatable chance
        self.current = invocation
        self._at_work[id(invocation)] = invocation
        try:
            act()
        except Crash as crash:
            if not self._loop.stopped:
                self._trace.record("died", invocation=invocation.name, at=str(crash))
            return False
        finally:
            self.current = None
            invocation.over = True
            del self._at_work[id(invocation)]
        return True

    def kill_all(self) -> None:
        """Every running function dies before its next effect."""
        for invocation in self._at_work.values():
            invocation.deadline = self._loop.now()

    def before(self, effect: str) -> None:
        """Let time pass; the function may die, or the effect may be refused."""
        invocation = self.current
        if invocation is None:
            return
        self.writes += effect not in _READS and invocation.function not in _INSPECTING
        latency = invocation.latency or self._latency
        slower_s = sum(kind.slows_s(effect) for kind in self.at_work)
        self.wait(_LATENCY_S.get(effect, _USUAL_S) * latency.uniform(0.5, 2.0) + slower_s)
        self._live(invocation, "before", effect)
        self._refuse(invocation, effect)

    def _refuse(self, invocation: Invocation, effect: str) -> None:
        for kind in self.at_work:
            if error := kind.refuses(effect, invocation.name):
                raise error

    def after(self, effect: str) -> None:
        """The function may die, or the answer may be lost."""
        invocation = self.current
        if invocation is None:
            return
        self._live(invocation, "after", effect)
        for kind in self.at_work:
            if error := kind.loses_answer(effect, invocation.name):
                raise error

    def wait(self, seconds: float) -> None:
        """Let other invocations run meanwhile."""
        own, self.current = self.current, None
        self._loop.wait(seconds)
        self.current = own

    def stay(self, place: Parked) -> None:
        """Let other invocations run until the place is released; the invocation may have ended meanwhile."""
        own, self.current = self.current, None
        self._loop.stay(place)
        if own is not None and (self._loop.stopped or own.over or self._loop.now() >= own.deadline):
            raise Crash("its process has ended")
        self.current = own

    def _live(self, invocation: Invocation, when: str, effect: str) -> None:
        if self._loop.stopped:
            raise Crash("the simulation is over")
        if invocation.over or self._loop.clock.now() >= invocation.deadline:
            raise Crash(f"{when} {effect}: out of time")
        for tell in self.on_point:
            tell(invocation, f"{when} {effect}")
        invocation.points += 1
        if invocation.points - 1 == invocation.dies_at:
            self.of(CrashFault).took_effect()
            raise Crash(f"{when} {effect}")
