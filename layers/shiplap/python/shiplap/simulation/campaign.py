"""Many seeds of one scenario, in processes side by side; and for one that fails, the fewest faults that still do it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import repeat

import msgspec
from msgspec.structs import replace

from shiplap.simulation.chaos import draw
from shiplap.simulation.mutants import MUTANTS, planted
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


class Found(msgspec.Struct, frozen=True):
    """How a planted defect was found: after how many seeds (0: not at all), in which scenario, by which promise."""

    mutant: str
    seeds: int = 0
    scenario: str = ""
    promise: str = ""


def first_failure(mutant: str, seeds: Iterable[int]) -> Found:
    """How many seeds it takes, each played with all of the defect's scenarios, until a promise is broken."""
    for number, seed in enumerate(seeds, start=1):
        for name in MUTANTS[mutant].scenarios:
            outcome = _one(name, mutant, seed)
            if outcome.violations:
                return Found(mutant, number, name, outcome.violations[0].promise)
    return Found(mutant)


def hunt(mutants: Iterable[str], seeds: Sequence[int], *, processes: int) -> Iterator[Found]:
    """`first_failure` of each, in their order, side by side."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(first_failure, mutants, repeat(seeds))


def _one(name: str, mutant: str, seed: int) -> Outcome:
    with planted(mutant):
        return replace(run(_loaded(name), seed), lines=())


@cache
def _loaded(name: str) -> Play:
    """A play never changes; its manifests are checked once in a process."""
    return load(name)
