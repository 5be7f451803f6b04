"""Compares the cost of first plans, without the cost search, with plans whose nodes first-fit-decreasing fills.

The instances are drawn: few to a thousand pods of several kinds, on made-up or real types, in one or two NodePools,
with limits, DaemonSets and pods that select a zone. All of them are planned twice. A plan is better if it places more
pods, or as many for less. Arguments: how many instances, and the first seed.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.planning.scheduling import daemon_sets, incrementing_types, snapshot
from benchmarks.shared.karpenter_workload import CPUS_M, LABELS, MEMORY_MI, DrawnPod
from benchmarks.shared.packing_cases import drawn_pods, real_types
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing import bulk_stage
from shiplap.scheduling.planner import plan
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling, first_fit


def main() -> None:
    number, seed = (int(text) for text in (*sys.argv[1:], *("120", "1")[len(sys.argv) - 1 :]))
    ratios, worse, placed = [], [], {"more": 0, "as many": 0, "fewer": 0}
    for place in range(seed, seed + number):
        world, words = drawn(random.Random(place))
        cheap = plan(world)
        with first_fit_only():
            plain = plan(world)
        more = len(plain.unschedulable) - len(cheap.unschedulable)
        placed["more" if more > 0 else "fewer" if more < 0 else "as many"] += 1
        if not more and plain.hourly:
            ratios.append(cheap.hourly / plain.hourly)
        if more < 0 or (not more and cheap.hourly > plain.hourly + 1e-6):
            worse.append(
                f"seed {place}, {words}: USD {plain.hourly:.3f} to {cheap.hourly:.3f},"
                f" left out {len(plain.unschedulable)} to {len(cheap.unschedulable)}"
            )
    tenths = statistics.quantiles(ratios, n=10)
    Console().print(
        f"{number} instances; pods placed: {placed}; price against first-fit-decreasing: "
        f"median {statistics.median(ratios):.3f}, from {tenths[0]:.3f} to {tenths[-1]:.3f} (tenths), "
        f"highest {max(ratios):.3f}"
    )
    for line in worse:
        Console().print(f"worse: {line}")


@contextmanager
def first_fit_only() -> Iterator[None]:
    """Within, the bulk stage fills by first-fit-decreasing."""

    def fill(problems: Sequence[BinPackingProblem]) -> list[Filling]:
        return [first_fit(problem) for problem in problems]

    known = vars(bulk_stage)["fill_cached"]
    vars(bulk_stage)["fill_cached"] = fill
    try:
        yield
    finally:
        vars(bulk_stage)["fill_cached"] = known


def drawn(source: random.Random) -> tuple[Snapshot, str]:
    """An instance, and what it is like."""
    real = source.random() < 0.5
    number = source.choice((3, 10, 30, 100, 300, 1000))
    kinds = source.choice(("g", "gx", "ghzax", "gz", "gh", "ghzax"))
    coarse = source.choice((1, 1, 4, 10))
    pods = []
    for place in range(number):
        size = (source.choice(CPUS_M) * coarse, source.choice(MEMORY_MI) * coarse)
        if coarse == 4:
            size = (size[0] + place % 97, size[1] + place % 89)
        kind = source.choice(kinds)
        pods.append(DrawnPod(kind, "" if kind == "x" else source.choice(LABELS), source.choice(LABELS), *size))
    limit = source.choice((None, None, number * coarse // 2 + 8, number * coarse // 4 + 4))
    selecting = source.random() < 0.3
    world = snapshot(
        [_selecting(pod, source, real=real) if selecting else pod for pod in drawn_pods(pods)],
        real_types() if real else incrementing_types(source.choice((20, 100, 400))),
        [_pool("first", 10, limit), _pool("second", 0, None)] if source.random() < 0.5 else [_pool("only", 0, limit)],
        daemons=daemon_sets(source.choice((0, 4))),
    )
    types = "real" if real else "made-up"
    words = f"{number} pods of kinds {kinds}, sizes times {coarse}, {types} types, cpu limit {limit}"
    return world, words


def _selecting(pod: Any, source: random.Random, *, real: bool) -> Any:
    """Some pods select one of two zones."""
    zone = source.choice(("us-east-1a", "us-east-1b") if real else ("test-zone-1", "test-zone-2"))
    if source.random() < 0.7:
        return pod
    spec = msgspec.structs.replace(pod.spec, node_selector={"topology.kubernetes.io/zone": zone})
    return msgspec.structs.replace(pod, spec=spec)


def _pool(name: str, weight: int, cpu_limit: int | None) -> NodePool:
    spec: dict[str, Any] = {"template": {"spec": {"nodeClassRef": {"name": "default"}}}, "weight": weight}
    if cpu_limit is not None:
        spec["limits"] = {"cpu": str(cpu_limit)}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, NodePool)


if __name__ == "__main__":
    main()
