"""Runs of a scenario with many seeds in parallel processes, and comparisons of two sets of manifests.

For a seed that fails, the fewest faults that still break the same invariant are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from hashlib import sha256
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple, replace

import shiplap
import shiplap_lab
from shiplap.manifests.custom_resources import Manifests
from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import MUTANTS, planted
from shiplap_lab.simulation.recording import run_with_timeline
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.simulation.timeline import Sample, Timeline

_MOST_TRIES = 120
"""Runs that shrinking may take."""


def run_seed(play: Play, seed: int, *, hours: float | None = None, faults: Sequence[Fault] | None = None) -> RunOutcome:
    """One run. Without `faults` they are drawn from the seed; `hours` of virtual time at least, else the scenario's."""
    drawn = draw_faults(play.scenario, seed) if faults is None else faults
    return Simulation(play, seed, drawn, play.scenario.hours if hours is None else hours).play()


def with_fewest_faults(play: Play, outcome: RunOutcome, *, hours: float | None = None) -> RunOutcome:
    """The run with the fewest faults that breaks the same invariant: faults are left out one by one."""
    promise = outcome.violations[0].promise
    best, tries, progress = outcome, 0, True
    while progress and tries < _MOST_TRIES:
        progress = False
        for number in range(len(best.faults)):
            fewer = best.faults[:number] + best.faults[number + 1 :]
            tries += 1
            again = run_seed(play, outcome.seed, hours=hours, faults=fewer)
            if again.violations and again.violations[0].promise == promise:
                best, progress = again, True
                break
    return best


def run_seeds(
    name: str,
    seeds: Iterable[int],
    *,
    processes: int,
    mutant: str = "",
    hours: float | None = None,
    results: KeptResults | None = None,
) -> Iterator[RunOutcome]:
    """A run per seed, as they end; traces are left out. `mutant` names a defect that is planted first.

    Seeds that `results` has come first and are not played again; those that are played are kept there as they end.
    """
    known = results.outcomes if results is not None else {}
    yield from (known[seed] for seed in seeds if seed in known)
    for outcome in _played(
        partial(_one, name, mutant, hours), [seed for seed in seeds if seed not in known], processes
    ):
        if results is not None:
            results.keep(outcome)
        yield outcome


def _played(one: Callable[[int], RunOutcome], seeds: Sequence[int], processes: int) -> Iterator[RunOutcome]:
    if processes == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(one, seeds, chunksize=4)


class _KeptResult(msgspec.Struct, frozen=True):
    """A line of the file: the outcome of one seed, and a digest of what was played by which code."""

    played: str
    outcome: RunOutcome


class KeptResults:
    """The outcomes of a campaign in a file of JSON lines, so that it can be interrupted and continued.

    Outcomes of other code, another scenario, planted defect or number of hours are not taken for those of this one.

    Attributes:
        outcomes: by seed.
    """

    def __init__(self, path: Path, name: str, mutant: str = "", hours: float | None = None) -> None:
        self._path = path
        self._played = sha256(msgspec.json.encode((_digest_of_code(), _loaded(name), mutant, hours))).hexdigest()
        lines = path.read_bytes().splitlines() if path.exists() else ()
        kept = (item for item in map(_decoded, lines) if item is not None and item.played == self._played)
        self.outcomes = {item.outcome.seed: item.outcome for item in kept}

    def keep(self, outcome: RunOutcome) -> None:
        """Append one."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(_KeptResult(self._played, outcome)) + b"\n")


def _decoded(line: bytes) -> _KeptResult | None:
    try:
        return msgspec.json.decode(line, type=_KeptResult)
    except msgspec.DecodeError:
        return None  # whoever wrote it was interrupted


@cache
def _digest_of_code() -> str:
    """Of all modules that decide what a seed's run is."""
    digest = sha256()
    for package in (shiplap, shiplap_lab):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


MOST_RARE = 0.05
"""A kind of fault that takes effect in a smaller share of a campaign's seeds tries out nothing."""

SEEDS_OF_A_CAMPAIGN = 50
"""With fewer seeds chance decides whether a kind is rare."""


class FaultEffect(msgspec.Struct, frozen=True, order=True):
    """A kind of fault: how often it took effect, and in how many seeds of a campaign."""

    kind: str
    times: int = 0
    seeds: int = 0


def effects_of_faults(play: Play, outcomes: Iterable[RunOutcome]) -> tuple[FaultEffect, ...]:
    """The effects of every kind that the scenario may draw or names, by kind."""
    scenario = play.scenario
    drawn = scenario.chaos_kinds if scenario.chaos else ()
    kinds = {*drawn, *(fault.kind for fault in scenario.faults), *scenario.constraints}
    times, seeds = Counter[str](), Counter[str]()
    for outcome in outcomes:
        times.update(outcome.effects)
        seeds.update(outcome.effects.keys())
    return tuple(FaultEffect(kind, times[kind], seeds[kind]) for kind in sorted(kinds | times.keys()))


def rare_faults(play: Play, effects: Iterable[FaultEffect], seeds: int) -> tuple[str, ...]:
    """Kinds of faults that the scenario draws or names, and constraints, that took effect in too few of its seeds.

    None if there are too few seeds.
    """
    if seeds < SEEDS_OF_A_CAMPAIGN:
        return ()
    scenario = play.scenario
    wanted: set[str] = {fault.kind for fault in scenario.faults}
    if scenario.chaos:
        wanted |= {*scenario.chaos_kinds, *scenario.constraints}
    return tuple(item.kind for item in effects if item.kind in wanted and item.seeds < MOST_RARE * seeds)


class MutantResult(msgspec.Struct, frozen=True):
    """The finding of a planted defect: after how many seeds (0: not at all), in which scenario, by which invariant."""

    mutant: str
    seeds: int = 0
    scenario: str = ""
    promise: str = ""


def first_failure(mutant: str, seeds: Iterable[int]) -> MutantResult:
    """Return how many seeds it takes, each played with all of the defect's scenarios, until an invariant is broken."""
    for number, seed in enumerate(seeds, start=1):
        for name in MUTANTS[mutant].scenarios:
            outcome = _one(name, mutant, None, seed)
            if outcome.violations:
                return MutantResult(mutant, number, name, outcome.violations[0].promise)
    return MutantResult(mutant)


def hunt_mutants(mutants: Iterable[str], seeds: Sequence[int], *, processes: int) -> Iterator[MutantResult]:
    """`first_failure` of each, in their order, side by side."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(first_failure, mutants, repeat(seeds))


def _one(name: str, mutant: str, hours: float | None, seed: int) -> RunOutcome:
    with planted(mutant):
        return replace(run_seed(_loaded(name), seed, hours=hours), lines=())


@cache
def _loaded(name: str) -> Play:
    """A play never changes; its manifests are checked once in a process."""
    return load(name)


class RunFigures(msgspec.Struct, frozen=True, rename="camel"):
    """One run until `hours` of virtual time; money in USD. `pod_hours_pending` is the sum of all pods' waiting times.

    `bound_dollars` is a lower bound of the cost of nodes for the bound pods, None when nothing can be bought.
    """

    trace: str
    kept: bool
    hours: float
    dollars: float
    bound_dollars: float | None
    mean_nodes: float
    most_nodes: int
    launched: int
    pod_hours_pending: float
    longest_pending_seconds: float


class ComparedRun(NamedTuple):
    """One of two compared runs: its figures and its timeline, both until the earlier end of the two."""

    figures: RunFigures
    outcome: RunOutcome
    timeline: Timeline


def compare_manifests(
    play: Play, other: Manifests, seed: int, hours: float | None = None
) -> tuple[ComparedRun, ComparedRun]:
    """The play with its own manifests and with others, same seed and faults, both until the earlier of their ends."""
    faults = draw_faults(play.scenario, seed)
    changed = replace(play, manifests=dict.fromkeys(play.manifests, other))
    runs = [run_with_timeline(item, seed, faults, hours) for item in (play, changed)]
    until = min(outcome.ended_at for outcome, _ in runs)
    mine, others = (ComparedRun(figures(*run, until), run[0], _until(run[1], until)) for run in runs)
    return mine, others


def _until(timeline: Timeline, end: float) -> Timeline:
    return replace(
        timeline,
        ends_s=end,
        samples=tuple(sample for sample in timeline.samples if sample.at_s <= end),
        happenings=tuple(event for event in timeline.happenings if event.at_s <= end),
        frames=tuple(item for item in timeline.frames if item.at_s <= end),
    )


def figures(outcome: RunOutcome, timeline: Timeline, until: float) -> RunFigures:
    """A run in figures until a moment, seconds since its start."""
    samples = [sample for sample in timeline.samples if sample.at_s <= until]
    priced = all(sample.bound_hourly is not None for sample in samples)
    return RunFigures(
        trace=outcome.trace,
        kept=not outcome.violations,
        hours=round(until / 3600, 3),
        dollars=round(_area(samples, until, lambda sample: sample.hourly), 4),
        bound_dollars=round(_area(samples, until, lambda sample: sample.bound_hourly or 0.0), 4) if priced else None,
        mean_nodes=round(_area(samples, until, lambda sample: sum(sample.nodes.values())) * 3600 / until, 2)
        if until
        else 0.0,
        most_nodes=max((sum(sample.nodes.values()) for sample in samples), default=0),
        launched=outcome.launched,
        pod_hours_pending=round(_area(samples, until, lambda sample: sample.pending), 4),
        longest_pending_seconds=outcome.longest_pending,
    )


def differences(mine: RunFigures, others: RunFigures) -> list[tuple[str, str, str, str]]:
    """A row for each figure: its name, both values, and by how much the other is more."""
    rows = []
    for name, left, right in zip(RunFigures.__struct_fields__, astuple(mine), astuple(others), strict=True):
        if name == "trace":
            continue
        counted = isinstance(left, int | float) and isinstance(right, int | float) and name not in ("kept", "hours")
        rows.append((name.replace("_", " "), str(left), str(right), f"{right - left:+.4g}" if counted else ""))
    return rows


def _area(samples: list[Sample], until: float, value: Callable[[Sample], float]) -> float:
    """Value hours under a step function that ends at `until` seconds."""
    moments = [*((sample.at_s, value(sample)) for sample in samples), (until, 0.0)]
    return sum(height * (later - at) / 3600 for (at, height), (later, _) in pairwise(moments))
