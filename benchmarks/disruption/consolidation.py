"""The disruption decision's speed, and what it makes of a cluster that has shrunk.

The cluster is one that the planner filled itself: pods of Karpenter's public benchmark without constraints, real types
and on-demand prices. A minute passes between decisions until there is nothing to do; after an hour moved pods may be
moved again, and then the cluster has to be at rest for ten more hours. The lower bound is the linear program over
fractional nodes. All nodes are new, so that moves have to pay within an hour; `--move-cost` shows other prices of a
move.

The 20,000 pods start on nodes that first-fit-decreasing filled, as other schedulers do, and once more on nodes that
were planned by price. `least` is what no sequence of commands with so many moves undercuts: a node that goes saves at
most its own price, and all its pods move. Bars, each at some price of a move and one of them at the default: at most
574.5 USD an hour after at most 3,007 moves, and at most 567.4 after at most 4,000. Exit codes: 0 the bars of the cases
that were played hold, 1 they do not.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.planning.decoding import unseen
from benchmarks.planning.scheduling import decoded, real_types
from benchmarks.shared.bars import exit_code
from benchmarks.shared.karpenter_workload import verified
from benchmarks.shared.packing_bounds import resource_bound
from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.snapshot import SchedulingSettings
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.search.bin_packing import BinPackingProblem, first_fit
from shiplap.scheduling.search.pod_kinds import reduce_problems
from tests.living_cluster import LivingCluster

replace = msgspec.structs.replace

POOL = {
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"name": "default"},
                "expireAfter": "Never",
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                    {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["33"]},
                ],
            }
        },
        "disruption": {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"},
    },
}


class Case(NamedTuple):
    """A cluster planned for `pods` pods of which `kept` are left, on nodes of less than `most_cpu` vCPU.

    `by_price` says whether its nodes were filled by price or by first-fit-decreasing.
    """

    name: str
    pods: int
    kept: int
    most_cpu: int
    by_price: bool = True


BARS = ((574.5, 3007), (567.4, 4000))
"""USD an hour and moves."""

FEWER_MOVES = 0.06
"""USD for moving one pod at which as few pods move as with Karpenter."""

BARS_FOR = 20_000
"""Pods of the cases that have bars."""

CASES = (
    Case("scaled down from 10,000 to 3,000", 10_000, 3000, 33),
    Case("20,000 pods, filled by first fit", 28_000, 20_000, 17, by_price=False),
    Case("20,000 pods, planned by price", 28_000, 20_000, 17),
)
LARGE = Case("5,000 nodes, 100,000 pods", 140_000, 100_000, 17)


def cluster_of(case: Case) -> LivingCluster:
    """The cluster of a case before anything is decided."""
    if case.by_price:
        return shrunk(case.pods, case.kept, case.most_cpu)
    with patch("shiplap.scheduling.packing.bulk_stage.fill_cached", lambda problems: list(map(first_fit, problems))):
        return shrunk(case.pods, case.kept, case.most_cpu)


def pods_and_prices(cluster: LivingCluster) -> list[tuple[int, float]]:
    """Of every node its pods and its USD per hour, those that save most per move first."""
    held = Counter(pod.spec.node_name for pod in cluster.pods.values())
    nodes = [(held[claim.name], claim.hourly) for claim in cluster.claims.values()]
    return sorted(nodes, key=lambda node: node[0] / node[1])


def least_after(nodes: Sequence[tuple[int, float]], moves: int) -> float:
    """USD per hour that so many moves do not undercut: the first nodes go, the last of them in part."""
    hourly, left = sum(price for _, price in nodes), float(moves)
    for pods, price in nodes:
        part = min(left / pods, 1.0) if pods else 1.0
        left -= part * pods
        hourly -= part * price
    return hourly


def shrunk(pods: int, kept: int, most_cpu: int = 33) -> LivingCluster:
    """A cluster planned for `pods` pods of which a random `kept` are left."""
    pool = msgspec.convert(POOL, NodePool)
    spec = POOL["spec"]["template"]["spec"]["requirements"][3]  # type: ignore[index]
    spec["values"] = [str(most_cpu)]
    pool = msgspec.convert(POOL, NodePool)
    cluster = LivingCluster([pool], real_types(), settings=SchedulingSettings(explore=False))
    drawn = verified(20_000)
    drawn = (drawn * (pods // len(drawn) + 1))[:pods]
    cluster.create(decoded(drawn)[0])
    cluster.schedule()
    keys = sorted(cluster.pods)
    random.Random(1).shuffle(keys)
    cluster.delete(keys[kept:])
    return cluster


def settle(cluster: LivingCluster, every_s: float, most: int = 20) -> int:
    """Carry out decisions, `every_s` seconds apart, until there is nothing to do; returns how many it took."""
    for decisions in range(most):
        decided = decide(cluster.disruption_snapshot())
        if not decided.commands:
            return decisions
        for command in decided.commands:
            cluster.carry_out(command)
        cluster.now += every_s
    return most


def commands_later(cluster: LivingCluster, rounds: int = 10) -> int:
    """Return how many commands there are in further rounds, an hour apart, none of which is carried out."""
    found = 0
    for _ in range(rounds):
        cluster.now += 3600
        found += len(decide(cluster.disruption_snapshot()).commands)
    return found


def lower_bound(cluster: LivingCluster) -> float:
    """USD per hour that no nodes for these pods undercut."""
    snapshot = cluster.snapshot()
    pods = tuple(replace(pod, spec=replace(pod.spec, node_name="")) for pod in snapshot.view.pods)
    world = compile_snapshot(replace(snapshot, view=replace(snapshot.view, pods=pods, nodes=()), claims=()))
    template = world.templates[0]
    offered = template.table.offered(template.requirements, template.given)
    price = np.where(offered.suits, offered.price, np.inf)[template.table.row_type]
    kinds = len(world.classes)
    problem = BinPackingProblem(
        sizes=world.axis.matrix([item.requests for item in world.classes]),
        counts=np.array([len(item.members) for item in world.classes]),
        net=template.net,
        price=price,
        suits=np.ones((kinds, len(price)), np.bool_),
        caps=np.zeros(0, np.int64),
        capped=np.zeros((0, kinds), np.bool_),
        owners=np.zeros((0, kinds), np.bool_),
        clash=np.zeros((kinds, kinds), np.bool_),
    )
    [(_, _, (problem,))] = reduce_problems([problem], [1])
    return resource_bound(problem)


def timed(cluster: LivingCluster) -> tuple[Decision, float]:
    snapshot = cluster.disruption_snapshot()
    snapshot = replace(snapshot, scheduling=unseen(snapshot.scheduling))
    started = time.process_time()
    decided = decide(snapshot)
    return decided, time.process_time() - started


def missed_bars(results: Sequence[tuple[float, int]]) -> list[str]:
    """The bars that none of these results, USD an hour and moves, holds, in words."""
    return [
        f"at most {hourly} USD/h after at most {most:,} moves"
        for hourly, most in BARS
        if not any(cost <= hourly and moves <= most for cost, moves in results)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--move-cost",
        type=float,
        nargs="+",
        default=[DisruptionSettings().move_cost, FEWER_MOVES],
        help="USD for moving one pod",
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--large", action="store_true", help="also 5,000 nodes with 100,000 pods")
    chosen = parser.parse_args()
    table = Table(
        "case",
        "USD/move",
        "nodes",
        "decision s",
        "largest",
        "USD/h",
        "then",
        "least",
        "bound",
        "ratio",
        "decisions",
        "moves",
        "per pod",
        "again",
        "at rest",
    )
    wanted = [case for case in (*CASES, *([LARGE] if chosen.large else ())) if chosen.only in case.name]
    results: list[tuple[float, int]] = []
    for case, cost in itertools.product(wanted, chosen.move_cost):
        cluster = cluster_of(case)
        cluster.disruption = DisruptionSettings(move_cost=cost)
        nodes, before = pods_and_prices(cluster), cluster.hourly
        decided, took_s = timed(cluster)
        for command in decided.commands:
            cluster.carry_out(command)
        cluster.now += 60
        decisions = 1 + settle(cluster, 60)
        cluster.now += 3600
        again = settle(cluster, 3600)
        moves, per_pod = sum(cluster.moves.values()), max(cluster.moves.values(), default=0)
        largest = max((len(command.nodes) for command in decided.commands), default=0)
        bound = lower_bound(cluster)
        table.add_row(
            case.name,
            f"{cost:g}",
            f"{len(nodes):,}",
            f"{took_s:.2f}",
            str(largest),
            f"{before:.2f}",
            f"{cluster.hourly:.2f}",
            f"{max(least_after(nodes, moves), bound):.2f}",
            f"{bound:.2f}",
            f"{cluster.hourly / bound:.3f}",
            str(decisions),
            f"{moves:,}",
            str(per_pod),
            str(again),
            str(commands_later(cluster)),
        )
        if case.kept == BARS_FOR:
            results.append((cluster.hourly, moves))
    Console(width=160).print(table)
    sys.stdout.write(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB\n")
    return exit_code(missed_bars(results) if results else [], "all bars of these cases hold")


if __name__ == "__main__":
    sys.exit(main())
