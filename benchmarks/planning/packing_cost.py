"""Compares plans' cost with bounds that nothing undercuts, plain first fit and a model of Karpenter's algorithm.

The diverse rows are the pods of Karpenter's public benchmark with all their constraints; the others are unconstrained.
Real types are what the NodePool of Karpenter's getting-started guide allows (c, m, r; amd64, on-demand, no bare metal)
in us-east-1, with the usual DaemonSets. The content bound (whole pods on nodes bought in fractions, at most one
anti-affine pod on each) takes a minute per case; `--quick` leaves it out. Flexibility is how many instance types of the
catalogue could run a node's content at up to 1.6 times its price. Processor times are medians of five runs.

Exit codes: 0 the prices of the 10,000 diverse pods are within their bars, 1 they are not. Times depend on the machine:
they are printed beside their bars.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.planning.decoding import unseen
from benchmarks.shared.bars import exit_code
from benchmarks.shared.karpenter_model import Model
from benchmarks.shared.packing_bounds import content_bound, resource_bound
from benchmarks.shared.packing_cases import Case, cases, known_prices
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap.scheduling.search.bin_packing import BinPackingProblem
from shiplap.scheduling.search.column_generation import ReducedProblem
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import totals_bound
from shiplap.scheduling.search.pod_kinds import reduce_problems

BARS = "diverse 10,000: no search ≤ +8 % in ≤ 0.1 s, improved ≤ +3 % in ≤ 0.35 s"
BARS_FOR = "10,000 diverse"
MOST_PLAIN, MOST_IMPROVED = 8.0, 3.0
"""Per cent over the bound."""

BUDGET_S = 1.0
FIRST_S = 0.1
"""Budget of the first plan: what is launched when time is short."""

_MANY = 200
_WIDER = 1.6


@dataclass(frozen=True)
class Solved:
    """A plan and the processor time it took, the median of a few."""

    plan: Plan
    seconds: float

    @classmethod
    def of(cls, snapshot: Snapshot, repeats: int) -> Solved:
        took = []
        for _ in range(repeats):
            fresh = unseen(snapshot)
            start = time.process_time()
            result = plan(fresh)
            took.append(time.process_time() - start)
        assert not result.unschedulable, f"{len(result.unschedulable)} pods left out"
        return cls(result, statistics.median(took))

    def text(self, bound: float) -> str:
        return f"{self.plan.hourly:.2f} {over(self.plan.hourly, bound)} {self.seconds:.2f} s"


@dataclass(frozen=True)
class Solutions:
    """Two plans of one case, and what nothing undercuts, in USD per hour."""

    name: str
    bound: float
    plain: Solved
    improved: Solved


def missed_bars(cases: Sequence[Solutions]) -> list[str]:
    """Every bar for prices that the plans of these cases miss, in words."""
    return [
        f"{case.name}: {of} {over(solved.plan.hourly, case.bound)} over the bound, the bar is {most:+g} %"
        for case in cases
        if case.name.startswith(BARS_FOR)
        for of, solved, most in (("no search", case.plain, MOST_PLAIN), ("improved", case.improved, MOST_IMPROVED))
        if solved.plan.hourly > (1 + most / 100) * case.bound
    ]


def over(cost: float, bound: float) -> str:
    return f"{100 * (cost / bound - 1):+.2f} %"


def flexibility(problem: BinPackingProblem, case: Case, result: Plan) -> str:
    """Types that could run a claim's pods at up to 1.6 × its price: least, 10th percentile, median; below 15."""
    size = {f"pod-{place:05d}": (pod.cpu_m, pod.memory_mi * 2**20, 1) for place, pod in enumerate(case.drawn)}
    used = np.array([np.sum([size[pod.name] for pod in claim.pods], axis=0) for claim in result.node_claims])
    price = np.array([claim.launch.price for claim in result.node_claims])
    holds = (problem.net[None, :, :] >= used[:, None, :]).all(axis=2) & np.isfinite(problem.price)
    number = (holds & (problem.price[None, :] <= _WIDER * price[:, None])).sum(axis=1)
    return (
        f"{number.min()} / {int(np.percentile(number, 10))} / {int(np.median(number))}, {(number < 15).sum()} below 15"
    )


def bounds(problem: ReducedProblem, seconds: float) -> tuple[float, float]:
    """The resource bound and the content bound; of very many kinds only what all pods together need."""
    if len(problem.sizes) > _MANY:
        total = totals_bound(problem, Effort.of(5))[0]
        return total, total
    least = resource_bound(problem)
    return least, content_bound(problem, seconds, least) if seconds else least


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="leave out the content bound")
    arguments.add_argument("--only", default="", help="cases whose name contains this")
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    prices = "on-demand prices of us-east-1" if known_prices() else "estimated prices"
    table = Table(
        *("pods, types", "bound", "content", "first fit", "Karpenter model", "no search", "first plan", "improved"),
        *("over content", "under Karpenter", "types up to 1.6 times"),
        title=f"USD per hour and % over the resource bound; {prices}; first plan {FIRST_S} s, improved {BUDGET_S} s",
        caption=BARS,
    )
    solved = []
    for case in cases():
        if options.only in case.name:
            solutions, cells = solve(case, 0.0 if options.quick else 60.0, options.repeats)
            solved.append(solutions)
            table.add_row(*cells)
    Console(width=220).print(table)
    return exit_code(missed_bars(solved), "all bars for prices hold")


def solve(case: Case, seconds: float, repeats: int) -> tuple[Solutions, list[str]]:
    """The plans of a case, and its row of the table."""
    problem = case.problem()
    [(_, reduced, _)] = reduce_problems([problem], [len(case.drawn) // 5])
    least, content = bounds(reduced, seconds)
    models = [Model(problem, len(case.drawn), 3, fewest_first=fewest) for fewest in (False, True)]
    for model in models:
        model.run(case.drawn)
    plain, first, improved = (Solved.of(case.snapshot(budget), repeats) for budget in (0.0, FIRST_S, BUDGET_S))
    cost = improved.plan.hourly
    assert cost <= min(plain.plan.hourly, models[0].hourly()) + 1e-6, "dearer than first fit"
    return Solutions(case.name, least, plain, improved), [
        case.name,
        f"{least:.2f}",
        f"{content:.2f} {over(content, least)}",
        *(f"{model.hourly():.2f} {over(model.hourly(), least)}" for model in models),
        *(solved.text(least) for solved in (plain, first, improved)),
        over(cost, content),
        f"{100 * (1 - cost / models[1].hourly()):.1f} %",
        flexibility(problem, case, improved.plan),
    ]


if __name__ == "__main__":
    sys.exit(main())
