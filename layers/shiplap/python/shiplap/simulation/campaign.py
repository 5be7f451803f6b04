"""Many seeds of one scenario, in processes side by side; and for one that fails, the fewest faults that still do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from msgspec.structs import replace

from shiplap.simulation.chaos import draw
from shiplap.simulation.mutants import planted
from shiplap.simulation.run import Outcome, Simulation
from shiplap.simulation.scenario import Fault, Play, load

_MOST_TRIES = 120
"""Runs that shrinking may take."""


def run(play: Play, seed: int, *, hours: float | None = None, faults: Sequence[Fault] | None = None) -> Outcome:
    """One run. Without `faults` they are drawn from the seed; `hours` of virtual time at least, else the scenario's."""
    drawn = draw(play.scenario, seed) if faults is None else faults
    return Simulation(play, seed, drawn, play.scenario.hours if hours is None else hours).play()


def shrunk(play: Play, outcome: Outcome, *, hours: float | None = None) -> Outcome:
    """The run with the fewest faults that breaks the same promise: faults are left out one by one while it does."""
    promise = outcome.violations[0].promise
    best, tries, progress = outcome, 0, True
    while progress and tries < _MOST_TRIES:
        progress = False
        for number in range(len(best.faults)):
            fewer = best.faults[:number] + best.faults[number + 1 :]
            tries += 1
            again = run(play, outcome.seed, hours=hours, faults=fewer)
            if again.violations and again.violations[0].promise == promise:
                best, progress = again, True
                break
    return best


def outcomes(name: str, seeds: Iterable[int], *, processes: int, mutant: str = "") -> Iterator[Outcome]:
    """A run per seed, as they end; traces are left out. `mutant` names a defect that is planted first."""
    one = partial(_one, name, mutant)
    if processes == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(one, seeds, chunksize=4)


def first_failure(names: Sequence[str], seeds: Iterable[int], mutant: str, told: Callable[[Outcome], object]) -> int:
    """How many seeds it takes, each played with all scenarios, until a planted defect is found; 0 when none does."""
    for number, seed in enumerate(seeds, start=1):
        for name in names:
            outcome = _one(name, mutant, seed)
            if outcome.violations:
                told(outcome)
                return number
    return 0


def _one(name: str, mutant: str, seed: int) -> Outcome:
    with planted(mutant):
        return replace(run(load(name), seed), lines=())
