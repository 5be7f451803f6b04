"""Our plans beside those of Karpenter's own scheduler, on the same pods, instance types and prices.

Karpenter's side is its Go module, pinned by `tests/karpenter/go.mod`, called as its provisioner does: topology,
scheduler, Solve, launch lists of at most 60 types. Both sides see no nodes, the same DaemonSets and the same
allocatable amounts. One judge (`launched_nodes.py`) launches the claims of both by one price rule and looks for
violations in both. A batch counts in the sums if both sides place the same number of pods. Processor time: Karpenter's
with its garbage collection, ours from typed objects, nothing remembered. Karpenter's ties depend on the order of Go's
maps, so it schedules every batch three times, and the run in the middle by price counts. Times are medians, of five
runs of either side for the fixed batches; `--large` adds the 10,000 pods of Karpenter's own benchmark, which take it
minutes.

Exit codes: 0 the bars hold, 1 they do not, 3 there is no Go here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.karpenter.launched_nodes import Verdict, judge
from benchmarks.karpenter.random_batches import Batch, catalogues, drawn, fixed
from benchmarks.planning.decoding import unseen
from benchmarks.shared.bars import exit_code
from benchmarks.shared.figures import keep
from benchmarks.shared.packing_cases import known_prices
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.planner import plan
from tests.e2e.programs import ProgramsMissing
from tests.karpenter.karpenter_scheduler import (
    KarpenterScheduler,
    LaunchedOffering,
    OpenedClaim,
    ScheduledBatch,
    build,
    version,
)

SEARCH_S = 1.0
"""Effort of our cost search; small batches get less, a millisecond per pod."""

LEAST_SAVING = 0.10
MOST_DEARER_SHARE = 0.02
MOST_DEARER_BY = 0.02
"""The bars, without search: the sum is a tenth below Karpenter's, few batches are dearer, and these by little."""


class Runs(NamedTuple):
    """Sets how often each side schedules a batch."""

    karpenter: int
    ours: int


DRAWN_RUNS, FIXED_RUNS = Runs(3, 1), Runs(5, 5)

NO_GO = 3
_WORST = 3
_SAME = 1e-6


@dataclass(frozen=True)
class Side:
    """One scheduler's result for a batch."""

    verdict: Verdict
    cpu_s: float

    def text(self) -> str:
        broken = f" {len(self.verdict.violations)} broken" if self.verdict.violations else ""
        return f"{self.verdict.hourly:.2f} {self.cpu_s:.3f} s{broken}"


@dataclass(frozen=True)
class Compared:
    """One batch: Karpenter, ours without the cost search and ours with it."""

    name: str
    pods: int
    karpenter: Side
    plain: Side
    searched: Side

    @property
    def is_comparable(self) -> bool:
        """True if all sides place the same number of pods: prices of different pods show nothing."""
        placed = {side.verdict.placed for side in (self.karpenter, self.plain, self.searched)}
        return len(placed) == 1 and self.karpenter.verdict.hourly > 0

    def dearer_by(self, side: Side) -> float:
        """Return how much more one of our plans costs, as a share of Karpenter's price; negative if it is cheaper."""
        return side.verdict.hourly / self.karpenter.verdict.hourly - 1

    def faster_by(self, side: Side) -> float:
        """Return Karpenter's processor time as a multiple of that of one of our plans."""
        return self.karpenter.cpu_s / side.cpu_s


def of_plan(planned: Plan, cpu_s: float) -> ScheduledBatch:
    """Our plan as any scheduler's claims."""
    claims = tuple(
        OpenedClaim(
            claim.node_pool,
            claim.requirements,
            claim.instance_types,
            LaunchedOffering(
                claim.launch.instance_type, claim.launch.zone, claim.launch.capacity_type, claim.launch.price
            ),
            tuple(pod.name for pod in claim.pods),
        )
        for claim in planned.node_claims
    )
    return ScheduledBatch(claims, {entry.pod.name: entry.message for entry in planned.unschedulable}, cpu_s)


def ours(batch: Batch, improve_s: float, runs: int = DRAWN_RUNS.ours) -> Side:
    """Our planner's result for a batch, the same in every run."""
    took_s = []
    for _ in range(runs):
        snapshot = unseen(batch.snapshot(improve_s))
        started = time.process_time()
        planned = plan(snapshot)
        took_s.append(time.process_time() - started)
    middle_s = statistics.median(took_s)
    return Side(judge(batch, of_plan(planned, middle_s)), middle_s)


def theirs(batch: Batch, karpenter: KarpenterScheduler, runs: int) -> Side:
    """Karpenter's result for a batch: the run in the middle by price, with the time in the middle."""
    answers = [karpenter.schedule(batch.for_karpenter()) for _ in range(runs)]
    sides = [Side(judge(batch, answer), answer.cpu_seconds) for answer in answers]
    middle = sorted(sides, key=lambda side: (side.verdict.placed, side.verdict.hourly))[runs // 2]
    return Side(middle.verdict, statistics.median(side.cpu_s for side in sides))


def compare(batch: Batch, karpenter: KarpenterScheduler, runs: Runs = DRAWN_RUNS) -> Compared:
    """All three results for a batch."""
    plain, searched = (ours(batch, improve_s, runs.ours) for improve_s in (0.0, SEARCH_S))
    return Compared(batch.name, len(batch.pods), theirs(batch, karpenter, runs.karpenter), plain, searched)


def compare_all(
    batches: Iterable[Batch], karpenter: KarpenterScheduler, results: Path | None, runs: Runs = DRAWN_RUNS
) -> Iterator[Compared]:
    """All results, of which those in a file are taken from there, and the others added to it."""
    lines = results.read_bytes().splitlines() if results is not None and results.exists() else []
    known = {one.name: one for one in (msgspec.json.decode(line, type=Compared) for line in lines)}
    for batch in batches:
        one = known.get(batch.name)
        if one is None:
            one = compare(batch, karpenter, runs)
            if results is not None:
                with results.open("ab") as file:
                    file.write(msgspec.json.encode(one) + b"\n")
        yield one


def missed_bars(cases: Sequence[Compared], batches: Sequence[Compared]) -> list[str]:
    """Every bar that the results miss, in words: of the fixed cases and of the batches that were drawn."""
    missed = [
        f"{case.name}: ours without search is {100 * case.dearer_by(case.plain):.2f} % dearer"
        for case in cases
        if case.is_comparable and case.dearer_by(case.plain) > _SAME
    ]
    for one in (*cases, *batches):
        for side, of in ((one.plain, "without"), (one.searched, "with")):
            missed += [f"{one.name}: ours {of} search: {text}" for text in side.verdict.violations[:1]]
            if side.verdict.placed < one.karpenter.verdict.placed:
                short = one.karpenter.verdict.placed - side.verdict.placed
                missed.append(f"{one.name}: ours {of} search places {short} pods less")
    comparable = [one for one in batches if one.is_comparable]
    if not comparable:
        return [*missed, "no batch can be compared"] if batches else missed
    ratio = _sum_ratio(comparable)
    if ratio > 1 - LEAST_SAVING:
        missed.append(f"the sum is {100 * (ratio - 1):+.2f} %, the bar is {-100 * LEAST_SAVING:.0f} %")
    dearer = _dearer(comparable)
    if len(dearer) > MOST_DEARER_SHARE * len(comparable):
        missed.append(f"{len(dearer)} of {len(comparable)} are dearer, the bar is {100 * MOST_DEARER_SHARE:.0f} %")
    missed += [
        f"{one.name}: ours without search is {100 * one.dearer_by(one.plain):.2f} % dearer"
        for one in dearer
        if one.dearer_by(one.plain) > MOST_DEARER_BY
    ]
    return missed


def _sum_ratio(batches: Sequence[Compared]) -> float:
    theirs = sum(one.karpenter.verdict.hourly for one in batches)
    return sum(one.plain.verdict.hourly for one in batches) / theirs


def _dearer(batches: Sequence[Compared]) -> list[Compared]:
    return [one for one in batches if one.dearer_by(one.plain) > _SAME]


def summary(batches: Sequence[Compared]) -> str:
    """Sums, shares and the worst batches in words."""
    comparable = [one for one in batches if one.is_comparable]
    if not comparable:
        return "no batch can be compared"
    lines = [f"{len(comparable)} of {len(batches)} batches place the same pods"]
    theirs = sum(one.karpenter.verdict.hourly for one in comparable)
    for of, sides in (
        ("without search", [one.plain for one in comparable]),
        ("with search", [one.searched for one in comparable]),
    ):
        mine = sum(side.verdict.hourly for side in sides)
        by = [one.dearer_by(side) for one, side in zip(comparable, sides, strict=True)]
        dearer = sum(share > _SAME for share in by)
        share = f"dearer in {dearer} ({100 * dearer / len(by):.1f} %), by {100 * max(by):+.2f} % at most"
        lines.append(f"ours {of}: {mine:.2f} of {theirs:.2f} USD/h ({100 * (mine / theirs - 1):+.2f} %), {share}")
    times = [
        sum(side.cpu_s for side in sides)
        for sides in zip(*((one.karpenter, one.plain, one.searched) for one in batches), strict=True)
    ]
    lines.append("processor seconds: Karpenter {:.1f}, ours {:.1f}, with search {:.1f}".format(*times))
    lines += [
        _speed_line(of, [(one.karpenter.cpu_s, side.cpu_s) for one, side in zip(batches, sides, strict=True)])
        for of, sides in (
            ("without search", [one.plain for one in batches]),
            ("with search", [one.searched for one in batches]),
        )
    ]
    broken = sum(bool(one.karpenter.verdict.violations) for one in batches)
    lines.append(f"batches in which kube-scheduler would refuse part of Karpenter's plan: {broken}")
    worst = sorted(comparable, key=lambda one: (-one.dearer_by(one.plain), one.name))[:_WORST]
    lines += [f"worst: {one.name}: {100 * one.dearer_by(one.plain):+.2f} % without search" for one in worst]
    return "\n".join(lines)


def _speed_line(of: str, times: Sequence[tuple[float, float]]) -> str:
    """How fast ours is batch by batch: `times` are processor seconds of Karpenter and of ours."""
    ratio = statistics.median(theirs / mine for theirs, mine in times)
    later = [mine - theirs for theirs, mine in times if mine > theirs]
    return (
        f"ours {of}: {ratio:.1f} times as fast in the median, slower in {len(later)} of {len(times)}, "
        f"by {1000 * max(later, default=0.0):.0f} ms at most"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=50, help="batches to draw (50)")
    parser.add_argument("--seed", type=int, default=0, help="of which the batches are drawn (0)")
    parser.add_argument("--least-pods", type=int, default=0, help="leave out batches of fewer pods (0)")
    parser.add_argument("--results", type=Path, help="a file that keeps the results, so that a run can be resumed")
    parser.add_argument("--large", action="store_true", help="also the 10,000 pods of Karpenter's own benchmark")
    parser.add_argument("--dump", type=Path, help="a folder for pods, types and Karpenter's claims, as JSON lines")
    parser.add_argument("--verbose", action="store_true", help="print every violation")
    options = parser.parse_args()
    try:
        program = build()
    except ProgramsMissing as missing:
        print(f"skipped: {missing}")
        return NO_GO
    cases, batches = fixed(large=options.large), drawn(options.instances, options.seed, options.least_pods)
    prices = "on-demand prices of us-east-1" if known_prices() else "estimated prices"
    table = Table(
        *("batch", f"Karpenter {version()}", "without search", "", "times as fast", "with search", "", "times as fast"),
        title=f"USD per hour and processor seconds; {prices}; search {SEARCH_S} s; seed {options.seed}",
    )
    compared = []
    with KarpenterScheduler(program, catalogues(), options.dump) as karpenter:
        of_cases = compare_all(cases, karpenter, options.results, FIXED_RUNS)
        for one in chain(of_cases, compare_all(batches, karpenter, options.results)):
            compared.append(one)
            table.add_row(*_row(one))
            if options.verbose:
                _print_violations(one)
    Console(width=200).print(table)
    print(summary(compared[len(cases) :]))
    _keep_sums(compared[len(cases) :], options.seed)
    return exit_code(missed_bars(compared[: len(cases)], compared[len(cases) :]))


def _keep_sums(batches: Sequence[Compared], seed: int) -> None:
    """Keep the sums of drawn batches beside Karpenter's."""
    of = f"{len(batches)} drawn batches of seed {seed}"
    theirs_s = sum(one.karpenter.cpu_s for one in batches)
    keep(f"plans of {of}", sum(one.plain.cpu_s for one in batches), "s", karpenter=theirs_s)
    keep(f"plans of {of}, with search", sum(one.searched.cpu_s for one in batches), "s", karpenter=theirs_s)
    comparable = [one for one in batches if one.is_comparable]
    theirs = sum(one.karpenter.verdict.hourly for one in comparable)
    for name, hourly in (
        ("price", sum(one.plain.verdict.hourly for one in comparable)),
        ("price with search", sum(one.searched.verdict.hourly for one in comparable)),
    ):
        keep(f"{name} of {of}", hourly, "USD/h", karpenter=theirs)


def _row(one: Compared) -> list[str]:
    def share(side: Side) -> str:
        return f"{100 * one.dearer_by(side):+.2f} %" if one.is_comparable else f"{side.verdict.placed} placed"

    sides = (one.plain, one.searched)
    left = one.pods - one.karpenter.verdict.placed
    karpenter = one.karpenter.text() + (f" {left} left out" if left else "")
    ours_texts = (text for side in sides for text in (side.text(), share(side), f"{one.faster_by(side):.0f}"))
    return [one.name, karpenter, *ours_texts]


def _print_violations(one: Compared) -> None:
    for of, side in (("Karpenter", one.karpenter), ("without search", one.plain), ("with search", one.searched)):
        for text in side.verdict.violations:
            print(f"{one.name}: {of}: {text}")


if __name__ == "__main__":
    sys.exit(main())
