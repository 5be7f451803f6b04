"""The faults that are active now, their chance, and how often each kind took effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Protocol

from shiplap.ports import Instance
from shiplap_lab.faults.fault import Fault


class VirtualTime(Protocol):
    """The clock of a run, in epoch seconds, and acts that happen later."""

    def now(self) -> float: ...
    def after(self, seconds: float, act: Callable[[], object]) -> object: ...


class Record(Protocol):
    """The trace of a run."""

    def record(self, what: str, **facts: Any) -> None: ...


class ActiveFaults:
    """The active faults by their number. `effects` counts by kind how often faults took effect."""

    def __init__(self, loop: VirtualTime, trace: Record, seed: int) -> None:
        self.active: dict[int, Fault] = {}
        self.effects: Counter[str] = Counter()
        self.loop, self.trace, self.seed = loop, trace, seed
        self._chances: dict[int, Random] = {}

    def random_of(self, number: int) -> Random:
        """The random numbers of one fault: leaving out another fault does not change them."""
        return self._chances.setdefault(number, Random(f"{self.seed}:{number}"))  # noqa: S311

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

    @property
    def is_api_down(self) -> bool:
        """True while nobody reaches the clusters: kinds that act there try again later."""
        return bool(self.active_of("api-down"))
