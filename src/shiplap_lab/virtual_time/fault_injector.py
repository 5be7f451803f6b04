"""The active faults, and the time that effects take: every effect of every fake passes through here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from random import Random

import msgspec

from shiplap.errors import (
    AwsError,
    AwsThrottled,
    ClusterUnreachable,
    ConditionFailed,
    ObjectConflict,
    ShiplapError,
    StoreThrottled,
)
from shiplap.ports import Instance
from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.scenarios.scenario import Fault
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

_CLUSTER = "cluster."
_EC2 = "compute."


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


class FaultInjector(Faults):
    """Applies the active faults to the effects of functions; `current` is the invocation that runs now.

    `writes` counts effects that may have changed something. With `latency_by_moment`, how long the effects of an
    invocation take follows from its function and its moment, so that it is the same whatever others there are.

    Each of `on_point` is called at every moment at which a function could die, before it does. `effects` counts by kind
    how often faults took effect.
    """

    def __init__(self, loop: EventLoop, trace: Trace, seed: int) -> None:
        super().__init__()
        self.current: Invocation | None = None
        self.effects: Counter[str] = Counter()
        self.on_point: list[Callable[[Invocation, str], object]] = []
        self._at_work: dict[int, Invocation] = {}
        self.active: dict[int, Fault] = {}
        self.crashes: dict[str, list[int]] = {}
        self._loop = loop
        self._trace = trace
        self._seed = seed
        self.writes = 0
        self.latency_by_moment = False
        self._latency = Random(f"{seed}:latency")  # noqa: S311 - repeatable chance
        self._chances: dict[int, Random] = {}
        self._skews: dict[tuple[int, int], float] = {}

    def random_of(self, number: int) -> Random:
        """The random numbers of one fault: leaving out another fault does not change them."""
        return self._chances.setdefault(number, Random(f"{self._seed}:{number}"))  # noqa: S311

    def drawn_from(self, instances: Iterable[Instance], number: int, fault: Fault) -> Iterator[tuple[float, Instance]]:
        """The share `amount` of instances, each with the seconds until its turn within the fault's minutes."""
        chance = self.random_of(number)
        for instance in instances:
            if chance.random() < fault.amount:
                yield chance.uniform(0, fault.minutes * 60), instance

    def active_of(self, kind: str, name: str = "") -> list[tuple[int, Fault]]:
        """The active faults of a kind whose target matches `name`, with their numbers."""
        if not self.active:
            return []
        return [
            (number, fault)
            for number, fault in sorted(self.active.items())
            if fault.kind == kind and (not name or fnmatchcase(name, fault.target))
        ]

    def hits(self, kind: str, name: str = "") -> bool:
        """True if a fault of a kind hits now, by its probability; a hit counts as an effect."""
        if not self.active:
            return False
        hit = any(self.random_of(number).random() < fault.amount for number, fault in self.active_of(kind, name))
        self.effects[kind] += hit
        return hit

    def amount_of(self, kind: str, name: str = "") -> float:
        """The amounts of the active faults of a kind together; if there are any, that counts as an effect."""
        faults = self.active_of(kind, name)
        self.effects[kind] += bool(faults)
        return sum(fault.amount for _, fault in faults)

    def now_in(self, container: int) -> float:
        """Epoch seconds as the clock of a container shows them."""
        now = self._loop.now()
        if not self.active:
            return now
        return now + sum(self._skew(number, fault, container) for number, fault in self.active_of("clock-skew"))

    def _skew(self, number: int, fault: Fault, container: int) -> float:
        key = (number, container)
        if key not in self._skews:
            chance = Random(f"{self._seed}:{number}:clock:{container}")  # noqa: S311 - repeatable chance
            self._skews[key] = chance.uniform(-fault.amount, fault.amount)
            self.effects["clock-skew"] += 1
        return self._skews[key]

    def run(self, invocation: Invocation, act: Callable[[], object]) -> bool:
        """Run a function to its end or its death; True if it ended."""
        planned = self.crashes.get(invocation.function)
        if planned:
            invocation.dies_at = planned.pop(0)
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
        self.wait(_LATENCY_S.get(effect, _USUAL_S) * latency.uniform(0.5, 2.0) + self._slower(effect))
        self._live(invocation, "before", effect)
        if self.active:
            self._refuse(invocation, effect)

    def _refuse(self, invocation: Invocation, effect: str) -> None:
        if effect.startswith(_CLUSTER) and self.active_of("api-down"):
            self.effects["api-down"] += 1
            raise ClusterUnreachable("the API server does not answer")
        if effect == "cluster.patch_node" and self.hits("conflict"):
            raise ObjectConflict("the object has been modified", status=409)
        if self.hits("refuse", effect) or (effect.startswith(_EC2) and self.hits("throttle", effect)):
            self._trace.record("refused", invocation=invocation.name, effect=effect)
            raise _refusal(effect)

    def after(self, effect: str) -> None:
        """The function may die, or the answer may be lost."""
        invocation = self.current
        if invocation is None:
            return
        self._live(invocation, "after", effect)
        if not self.active:
            return
        lost = effect == "compute.launch" and self.hits("no-answer")
        if lost or self.hits("answer-lost", effect):
            self._trace.record("answer lost", invocation=invocation.name, effect=effect)
            raise _silence(effect)

    def _slower(self, effect: str) -> float:
        return self.amount_of("slow", effect) if self.active else 0.0

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
            self.effects["crash"] += 1
            raise Crash(f"{when} {effect}")


def _refusal(effect: str) -> ShiplapError:
    """The error that the adapter raises when AWS or the cluster refuses the request for now."""
    if effect.startswith(_CLUSTER):
        return ClusterUnreachable("503 Service Unavailable", status=503)
    if effect.startswith(("compute.", "health.")):
        return AwsThrottled("Request limit exceeded", code="RequestLimitExceeded")
    return StoreThrottled("throughput exceeded")


def _silence(effect: str) -> ShiplapError:
    """The error that the adapter raises when a request was carried out but its answer was lost."""
    if effect.startswith(_CLUSTER):
        return ClusterUnreachable("connection reset")
    if effect.startswith("compute."):
        return AwsError("connection reset", code="")
    if effect in ("state.advance", "state.advance_all", "state.commit"):
        return ConditionFailed("a repeated request met what it had written itself")
    return StoreThrottled("connection reset")
