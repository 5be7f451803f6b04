"""Deaths of functions: every way of getting to a point of a life of a cluster at which a function may die."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.virtual_time.fault_injector import Invocation


class Death(NamedTuple):
    """A function that dies at a point: at which of its invocations' effects, and when that invocation begins."""

    function: str
    number: int
    began_at: float
    path: tuple[str, ...]

    @property
    def fault(self) -> Fault:
        """The fault that brings it about: the next invocation from just before on."""
        return Fault("crash", (self.began_at - 0.0005) / 60, 0.0, self.function, self.number)


class Life(NamedTuple):
    """A life of a cluster, the same each time but for the deaths in it."""

    play: Play
    seed: int
    faults: tuple[Fault, ...]
    hours: float

    def played(self, *deaths: Fault) -> RunOutcome:
        """Play it; `played(death.fault)` with one death."""
        return Simulation(self.play, self.seed, (*self.faults, *deaths), self.hours, skips_quiet=True).play()


_KNOWN: dict[int, dict[str, tuple[Death, ...]]] = {}


def deaths_of(life: Life, functions: Sequence[str]) -> dict[str, tuple[Death, ...]]:
    """Return for each function a death for every way of getting to a point: the effects before it, each once.

    A life is played for that once in a process.
    """
    if id(life) not in _KNOWN:
        _KNOWN[id(life)] = _recorded(life, functions)
    return _KNOWN[id(life)]


def _recorded(life: Life, functions: Sequence[str]) -> dict[str, tuple[Death, ...]]:
    simulation = Simulation(life.play, life.seed, life.faults, life.hours)
    start = simulation.loop.now()
    paths: dict[str, tuple[str, ...]] = {}
    found: dict[tuple[str, tuple[str, ...]], Death] = {}

    def pass_by(invocation: Invocation, point: str) -> None:
        before = paths.get(invocation.name, ())
        path = before if point in before[-4:] else (*before, point)
        paths[invocation.name] = path
        if path is not before:
            death = Death(invocation.function, invocation.points, invocation.began_at - start, path)
            found.setdefault((invocation.function, path), death)

    simulation.faults.on_point.append(pass_by)
    assert simulation.play().violations == ()
    return {name: tuple(item for (function, _), item in found.items() if function == name) for name in functions}


def broken_by(life: Life, known: Sequence[Death]) -> Iterator[tuple[str, object]]:
    """Yield the deaths after which a promise is broken, or nothing comes to rest."""
    for death in known:
        outcome = life.played(death.fault)
        died = outcome.effects.get("crash", 0) == 1
        if outcome.violations or outcome.settled_at < 0 or not died:
            yield death.path[-1], (death.fault, outcome.violations, died)
