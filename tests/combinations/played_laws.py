"""Playing laws on drawn clusters: in portions, so that a run can be interrupted and continued."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import msgspec

from shiplap.errors import ShiplapError
from tests.combinations import kube_scheduler
from tests.combinations.beside_karpenter import drawn_for_karpenter, karpenter_laws
from tests.combinations.drawn_clusters import Coverage, DrawnCluster, drawn
from tests.combinations.every_law import EVERY_LAW
from tests.combinations.kube_scheduler import KubeScheduler, scheduler_laws
from tests.combinations.laws import Decided, Law
from tests.karpenter import karpenter_scheduler
from tests.karpenter.karpenter_scheduler import KarpenterScheduler

PORTION = 25
"""Clusters between two lines of a results file: some seconds of work, which an interrupted run repeats."""

_CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a mistake in the planner raises. It breaks the law and ends nothing."""


class BrokenLaw(msgspec.Struct, frozen=True):
    """A law that a cluster breaks, and what is wrong."""

    law: str
    seed: int
    number: int
    problem: str


class Portion(msgspec.Struct, frozen=True):
    """The outcome of some clusters in a row.

    `played` counts the clusters that a law says something about. `set_aside` names clusters that cannot be read.
    """

    first: int
    options: list[tuple[str, ...]] = []
    played: dict[str, int] = {}
    broken: list[BrokenLaw] = []
    set_aside: list[str] = []


@dataclass
class Tally:
    """The outcome of a run so far."""

    coverage: Coverage = field(default_factory=Coverage)
    played: Counter[str] = field(default_factory=Counter)
    broken: list[BrokenLaw] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)

    def add(self, portion: Portion) -> None:
        for options in portion.options:
            self.coverage.add(options)
        self.played.update(portion.played)
        self.broken += portion.broken
        self.set_aside += portion.set_aside

    def lines(self, laws: Iterable[Law]) -> Iterator[str]:
        """A table of these laws, and what was covered."""
        broken = Counter(item.law for item in self.broken)
        for law in laws:
            mark = f" (known: {law.known.kind})" if law.known else ""
            yield f"{self.played[law.name]:7} played, {broken[law.name]:4} broken: {law.name}{mark}"
        yield self.coverage.line()
        yield f"{len(self.set_aside)} set aside{''.join(f'; {text}' for text in self.set_aside[:10])}"


def verdict(law: Law, cluster: DrawnCluster, before: Decided) -> str | None:
    """Return the fault; empty if there is none, None if the law does not apply to the cluster.

    Raises:
        ShiplapError: the cluster cannot be read.
    """
    try:
        return law.broken_by(before, cluster.rng(law.name))
    except ShiplapError:
        raise
    except _CRASHES as crash:
        return f"raises {type(crash).__name__}: {crash}"


class Suite(StrEnum):
    """Names the laws that are played."""

    PLANS = "plans"
    SCHEDULER = "scheduler"
    KARPENTER = "karpenter"

    def drawn(self, seed: int, number: int) -> DrawnCluster:
        """The cluster of this number as the suite's judge can read it."""
        return drawn_for_karpenter(seed, number) if self is Suite.KARPENTER else drawn(seed, number)


@cache
def laws_in(suite: Suite) -> tuple[Law, ...]:
    """The laws of a suite. A process starts a suite's program once; the program ends with the process.

    Raises:
        ProgramsMissing: there is no Go, or its modules cannot be downloaded.
        BuildFailed: the program cannot be built.
    """
    match suite:
        case Suite.PLANS:
            return EVERY_LAW
        case Suite.SCHEDULER:
            return scheduler_laws(KubeScheduler(kube_scheduler.build()))
        case Suite.KARPENTER:
            judge = KubeScheduler(kube_scheduler.build())
            return karpenter_laws(KarpenterScheduler(karpenter_scheduler.build(), {}), judge)


def named(laws: Sequence[Law], only: str) -> tuple[Law, ...]:
    """The laws whose names contain a text."""
    return tuple(law for law in laws if only in law.name)


def laws_of(laws: Sequence[Law], number: int, at_once: int) -> list[Law]:
    """The laws that are played on a cluster: as many as asked, in turn, so that each meets its share of clusters."""
    first = number * at_once
    return [laws[(first + step) % len(laws)] for step in range(min(at_once, len(laws)))]


def play(suite: Suite, seed: int, at_once: int, numbers: Sequence[int], *, only: str = "") -> Portion:
    """Play laws on the clusters of these numbers: those whose names contain `only`."""
    laws = named(laws_in(suite), only)
    portion = Portion(numbers[0])
    for number in numbers:
        cluster = suite.drawn(seed, number)
        portion.options.append(cluster.options)
        before = Decided(cluster.snapshot)
        for law in laws_of(laws, number, at_once):
            try:
                problem = verdict(law, cluster, before)
            except ShiplapError as unreadable:
                portion.set_aside.append(f"{cluster.name}: {unreadable}")
                break
            if problem is not None:
                portion.played[law.name] = portion.played.get(law.name, 0) + 1
            if problem:
                portion.broken.append(BrokenLaw(law.name, seed, number, problem[:2000]))
    return portion


def portions(count: int, first: int = 0) -> list[range]:
    """The numbers of `count` clusters from `first` on, in portions."""
    return [range(start, min(start + PORTION, first + count)) for start in range(first, first + count, PORTION)]


def run(
    suite: Suite, seed: int, numbers: Iterable[Sequence[int]], at_once: int, workers: int, *, only: str = ""
) -> Iterator[Portion]:
    """Play portions in several processes, in whatever order they end."""
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(partial(play, suite, seed, at_once, only=only), numbers)


def resumed(
    results: Path,
    suite: Suite,
    seed: int,
    count: int,
    at_once: int,
    workers: int,
    seen: Callable[[Tally], None],
    *,
    only: str = "",
) -> Tally:
    """Play what a results file lacks, append it there, and return the outcome of all of it.

    A file belongs to one suite, one seed, the laws whose names contain `only`, and one number of them at once. A last
    line that was cut off is played again.
    """
    tally = Tally()
    done = set()
    for portion in _known(results):
        done.add(portion.first)
        tally.add(portion)
    left = [numbers for numbers in portions(count) if numbers[0] not in done]
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("ab") as file:
        for portion in run(suite, seed, left, at_once, workers, only=only):
            file.write(b"\n" + msgspec.json.encode(portion))
            file.flush()
            tally.add(portion)
            seen(tally)
    return tally


def _known(results: Path) -> Iterator[Portion]:
    lines = results.read_bytes().splitlines() if results.exists() else []
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Portion)
        except msgspec.DecodeError:
            continue  # the line at which a run was interrupted


def as_json(cluster: DrawnCluster, law: str, problem: str, recorded: object) -> bytes:
    """A failure as a file: how the cluster was drawn, what is wrong, and the whole cluster."""
    content = {
        "law": law,
        "seed": cluster.seed,
        "number": cluster.number,
        "options": cluster.options,
        "problem": problem,
        "snapshot": msgspec.to_builtins(recorded),
    }
    return json.dumps(content, indent=1, sort_keys=True).encode()
