"""Ten clusters share Savings Plans and Reserved Instances over a day of rhythms: dollars beside a linear program.

Each hour the pods of every cluster follow a rhythm of their own. The clusters plan one after the other with what the
others have left of the commitments, and consolidate. The bill of an hour is what commitments cost, used or not, what
spot nodes cost, and what commitments leave of on-demand nodes in AWS's order. Some pods may not be on spot.

The linear program buys the hour's nodes anew, in fractions and for all clusters together, and assigns commitments to
them as is best. A node is bought with whole pods on it: no pod is on two nodes, nor are the resources of one node those
of another. Which pods go together is found by column generation, each step to optimality, so that nothing undercuts the
program. `fresh` plans all pods of an hour at once and from nothing, so that it shows the
planner alone; `living` is the ten clusters, whose nodes stay and move only where that pays. `none` is the same without
any commitment, beside a program without any: what whole nodes cost more than fractions. `ignored` has commitments that
plans do not know: AWS pays for what happens to run. `counted` is what Shiplap does.

A commitment is used where the program uses it: of each hour and commitment the smaller of both uses, as a part of the
program's. `fully` looks at the hours in which the program uses all of it.

Bars: dollars at most 1 % above the program, and 98 % of what it uses; no dollar counted twice by interleaved decisions.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import highspy
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.planning.scheduling import real_types
from shiplap.disruption.decide import decide
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse, SavingsPlan, family_of, merged
from shiplap.policies.commitments.commitment_input import CommitmentInput, CommitmentsInUse
from shiplap.policies.commitments.commitment_ledger import (
    CommitmentLedger,
    CommitmentRoom,
    RegionalRoom,
    quarters_of,
    room_left,
)
from shiplap.policies.commitments.commitment_use import UsedCommitments
from shiplap.scheduling.model.snapshot import SchedulingSettings
from tests.living_cluster import LivingCluster
from tests.unit.commitments.test_commitment_use import InterleavedClusters

replace = msgspec.structs.replace

FAMILIES = ("m7g", "c7g", "r7g", "m6i", "c6i", "r6i")
NOW = 1_800_000_000.0
SIZES = (("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("1", "8Gi"), ("2", "4Gi"), ("500m", "4Gi"))
ON_DEMAND, SPOT = "on-demand", "spot"


def pool(name: str, kinds: Sequence[str], taint: str = "") -> NodePool:
    """A NodePool; one with a taint is for pods that tolerate it alone."""
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": list(kinds)}]
    spec: dict[str, Any] = {"nodeClassRef": {"name": "default"}, "expireAfter": "Never", "requirements": requirements}
    if taint:
        spec["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    disruption = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"template": {"spec": spec}, "disruption": disruption}}, NodePool
    )


def pod(name: str, size: tuple[str, str], *, steady: bool) -> Pod:
    """A pending pod; a steady one may not be on spot."""
    waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    container = {"name": "main", "resources": {"requests": {"cpu": size[0], "memory": size[1]}}}
    spec: dict[str, Any] = {"containers": [container]}
    if steady:
        spec |= {"tolerations": [{"key": "steady", "operator": "Exists"}]}
        spec |= {"nodeSelector": {"karpenter.sh/nodepool": "steady"}}
    body = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
    return msgspec.convert({**body, "status": {"phase": "Pending", "conditions": waiting}}, Pod)


_RESERVED = 0.6
"""What a Reserved Instance costs as a part of the on-demand price."""


class Deployment(NamedTuple):
    """Pods of one size whose number follows the hour of the day."""

    name: str
    size: tuple[str, str]
    steady: bool
    most: int
    peak: int

    def pods(self, hour: int) -> list[Pod]:
        """The pods at an hour; those of a smaller number are among those of a larger one."""
        share = 0.65 + 0.35 * math.cos((hour - self.peak) / 24 * 2 * math.pi)
        number = max(round(self.most * share), 1)
        return [pod(f"{self.name}-{place}", self.size, steady=self.steady) for place in range(number)]


class World(NamedTuple):
    """Drawn clusters as lists of deployments, commitments that are counted on, and what these cost, USD per hour."""

    clusters: tuple[tuple[Deployment, ...], ...]
    counted: CommitmentRoom
    committed: float = 0.0


def drawn(seed: int, clusters: int, pods: int, listed: Mapping[str, int]) -> World:
    """About so many pods per cluster at its peak; commitments are worth about two thirds of what they need at least."""
    draw = random.Random(seed)
    made = []
    for number in range(clusters):
        peak = draw.randrange(24)
        shares = [draw.uniform(0.2, 1.0) for _ in range(5)]
        made.append(
            tuple(
                Deployment(
                    f"c{number}-d{place}",
                    draw.choice(SIZES),
                    draw.random() < 0.35,
                    max(round(pods * share / sum(shares)), 1),
                    (peak + draw.randrange(-3, 4)) % 24,
                )
                for place, share in enumerate(shares)
            )
        )
    asked = sum(pod_requests(each)["cpu"] for some in made for item in some for each in item.pods(0)) / 1000
    dollars = asked * 0.045  # about what a vCPU costs on demand
    compute, family = draw.uniform(0.55, 0.75), draw.uniform(0.5, 0.65)
    rates = {name: round(price * (compute + draw.uniform(-0.04, 0.04))) for name, price in sorted(listed.items())}
    own = {name: round(price * family) for name, price in listed.items() if family_of(name) == "m7g"}
    counted = CommitmentRoom(
        regional=(RegionalRoom("m6i", 32 * max(round(dollars * 0.15 / 0.2), 1)),),
        savings_plans=(
            SavingsPlan("m7g", round(dollars * 0.1 * MICROS), NOW * 2, "m7g", own),
            SavingsPlan("sp", round(dollars * 0.25 * MICROS), NOW * 2, rates=rates),
        ),
    )
    units = sum(item.quarters for item in counted.regional) / 32
    committed = sum(plan.commitment for plan in counted.savings_plans) + _RESERVED * units * listed["m6i.xlarge"]
    return World(tuple(made), counted, committed / MICROS)


class Hour(NamedTuple):
    """Holds the cost of an hour, and the used part of each commitment, in the commitment's own unit."""

    dollars: float
    used: dict[str, float]


def amounts(room: CommitmentRoom) -> dict[str, float]:
    """Each commitment and how much of it there is."""
    return {item.scope: item.quarters for item in room.regional} | {
        item.id: item.commitment for item in room.savings_plans
    }


class Account:
    """The clusters of a world, or with `fresh` one of all their pods; with `plans` they plan on commitments."""

    def __init__(self, world: World, types: Sequence[InstanceType], listed: dict[str, int], *, plans: bool) -> None:
        self.world, self.types, self.listed, self.plans = world, types, listed, plans
        self.clusters = [self.empty() for _ in world.clusters]

    def empty(self) -> LivingCluster:
        """A cluster without nodes."""
        pools = [pool("any", (SPOT, ON_DEMAND)), pool("steady", (ON_DEMAND,), "steady")]
        return LivingCluster(pools, self.types, settings=SchedulingSettings(explore=False, improve_s=1.0))

    def uses(self) -> tuple[InstanceUse, ...]:
        """Return the instances that all clusters run on demand."""
        marks = [node.metadata.labels for cluster in self.clusters for node in cluster.nodes.values()]
        return merged(
            InstanceUse(own["node.kubernetes.io/instance-type"], own["topology.kubernetes.io/zone"], 1)
            for own in marks
            if own["karpenter.sh/capacity-type"] == ON_DEMAND
        )

    def hour(self, hour: int, *, fresh: bool) -> Hour:
        """Let every cluster follow its pods."""
        groups: Sequence[tuple[Deployment, ...]] = self.world.clusters
        if fresh:
            self.clusters, groups = [self.empty()], [tuple(item for some in groups for item in some)]
        for cluster, deployments in zip(self.clusters, groups, strict=True):
            cluster.now = NOW + hour * 3600
            wanted = {each.metadata.name: each for item in deployments for each in item.pods(hour)}
            cluster.delete([key for key in cluster.pods if key[1] not in wanted])
            there = {name for _, name in cluster.pods}
            cluster.create(each for name, each in wanted.items() if name not in there)
        for cluster in self.clusters:
            self.schedule(cluster)
        for cluster in () if fresh else self.clusters:
            self.consolidate(cluster)
        ledger = CommitmentLedger(self.world.counted)
        unpaid = ledger.settle(self.uses(), self.listed) / MICROS
        left = amounts(ledger.room)
        spot = sum(self.spot_price(cluster) for cluster in self.clusters)
        return Hour(
            self.world.committed + spot + unpaid,
            {name: whole - left.get(name, 0) for name, whole in amounts(self.world.counted).items()},
        )

    @staticmethod
    def spot_price(cluster: LivingCluster) -> float:
        """USD per hour of a cluster's spot nodes."""
        kinds = {name: node.metadata.labels["karpenter.sh/capacity-type"] for name, node in cluster.nodes.items()}
        return sum(claim.hourly for name, claim in cluster.claims.items() if kinds[name] == SPOT)

    def schedule(self, cluster: LivingCluster) -> None:
        """Plan the cluster's pending pods."""
        if not self.plans:
            cluster.schedule()
            return
        room = room_left(self.world.counted, (), self.uses(), self.listed)
        plain = cluster.snapshot
        cluster.snapshot = lambda: plain().with_policy(CommitmentInput(room))  # type: ignore[method-assign]
        cluster.schedule()
        cluster.snapshot = plain  # type: ignore[method-assign]

    def consolidate(self, cluster: LivingCluster) -> None:
        """Decide every ten minutes, at most three times, and plan pods that have lost their node."""
        for _ in range(3):
            snapshot = cluster.disruption_snapshot()
            if self.plans:
                used = UsedCommitments(self.world.counted, self.uses(), self.listed)
                snapshot = replace(snapshot, policies=(CommitmentsInUse(used),))
            commands = decide(snapshot).commands
            for command in commands:
                cluster.carry_out(command)
            if not commands:
                return
            cluster.now += 600
            self.schedule(cluster)


Kind = tuple[bool, int, int]
"""Pods that are alike: whether they are steady, CPU in millicores and memory in bytes."""

Contents = tuple[tuple[Kind, int], ...]
"""How many pods of each kind are on a node."""

_MEMORY_UNIT = 2**29
_LEAST_GAIN = 1e-6


class Buyable(NamedTuple):
    """A way to buy a node: its type, how it is paid for, which pods it is for, and USD per hour."""

    item: InstanceType
    on_demand: bool
    steady: bool
    price: float

    def most(self, kind: Kind) -> int:
        """Return how many pods of a kind a node holds alone."""
        if kind[0] != self.steady:
            return 0
        has = self.item.allocatable
        return int(min(has["cpu"] // kind[1], has["memory"] // kind[2], has["pods"]))


def buyables(types: Sequence[InstanceType]) -> list[Buyable]:
    """All ways to buy nodes. Pods are on nodes of their own pool, as the taint and their selectors want it."""
    found = []
    for item in types:
        for kind in (ON_DEMAND, SPOT):
            prices = [o.price for o in item.offerings if o.capacity_type == kind and o.available]
            if prices:
                found += [
                    Buyable(item, kind == ON_DEMAND, steady, min(prices))
                    for steady in ((False, True) if kind == ON_DEMAND else (False,))
                ]
    return found


class ContentsProgram:
    """The linear program of an hour: rows of kinds of pods, of commitments, and of types that commitments pay for."""

    def __init__(self, world: World, types: Sequence[InstanceType], listed: Mapping[str, int], hour: int) -> None:
        pods = [each for cluster in world.clusters for item in cluster for each in item.pods(hour)]
        asked = [(bool(each.spec.tolerations), pod_requests(each)) for each in pods]
        self._demand = Counter((steady, requests["cpu"], requests["memory"]) for steady, requests in asked)
        self._whole = amounts(world.counted)
        self._buyables = buyables(types)
        self._solver = highspy.Highs()
        self._solver.silent()
        self._rows = 0
        self._kinds = {kind: self._row(number, math.inf) for kind, number in sorted(self._demand.items())}
        self._commitments = {name: self._row(-math.inf, 1.0) for name in self._whole}
        on_demand = {buyable.item.name: buyable.price for buyable in self._buyables if buyable.on_demand}
        self._paid_for = {name: self._row(-math.inf, 0.0) for name in sorted(on_demand)}
        for name, price in sorted(on_demand.items()):
            for commitment, taken in self._takes(world.counted, name, listed[name]):
                share = taken / self._whole[commitment]
                self._column(1e-6 - price, {self._paid_for[name]: 1.0, self._commitments[commitment]: share})
        self._known: set[tuple[str, bool, bool, Contents]] = set()
        self._fillings: dict[tuple[str, bool], tuple[highspy.Highs, dict[Kind, Any]]] = {}
        for buyable in self._buyables:
            for kind, number in self._demand.items():
                if most := min(buyable.most(kind), number):
                    self._add(buyable, ((kind, most),))

    def solve(self) -> tuple[float, dict[str, float]]:
        """USD per hour, and what is used of each commitment, in its own unit."""
        while True:
            self._solver.run()
            worth = self._solver.getSolution().row_dual
            if not sum(self._improves(buyable, worth) for buyable in self._buyables):
                break
        used = self._solver.getSolution().row_value
        return self._solver.getObjectiveValue(), {
            name: used[row] * self._whole[name] for name, row in self._commitments.items()
        }

    def _improves(self, buyable: Buyable, worth: Sequence[float]) -> bool:
        """Add the contents that are worth most of a node, if that is more than it costs."""
        price = buyable.price + (worth[self._paid_for[buyable.item.name]] if buyable.on_demand else 0.0)
        value, contents = self._best(buyable, {kind: max(worth[row], 0.0) for kind, row in self._kinds.items()})
        return value > price + _LEAST_GAIN * buyable.price and self._add(buyable, contents)

    def _best(self, buyable: Buyable, worth: Mapping[Kind, float]) -> tuple[float, Contents]:
        """The whole pods that are worth most on one node: an integer program."""
        key = (buyable.item.name, buyable.steady)
        if key not in self._fillings:
            self._fillings[key] = self._filling(buyable)
        solver, numbers = self._fillings[key]
        for kind, number in numbers.items():
            solver.changeColCost(number.index, -worth[kind])
        solver.run()
        contents = tuple((kind, round(solver.val(number))) for kind, number in numbers.items())
        return -solver.getObjectiveValue(), tuple((kind, count) for kind, count in contents if count)

    def _filling(self, buyable: Buyable) -> tuple[highspy.Highs, dict[Kind, Any]]:
        solver, has = highspy.Highs(), buyable.item.allocatable
        solver.silent()
        solver.setOptionValue("mip_rel_gap", 1e-7)
        numbers = {
            kind: solver.addIntegral(lb=0, ub=min(buyable.most(kind), wanted))
            for kind, wanted in sorted(self._demand.items())
            if buyable.most(kind)
        }
        solver.addConstr(sum(kind[1] * number for kind, number in numbers.items()) <= has["cpu"])
        memory = sum(kind[2] / _MEMORY_UNIT * number for kind, number in numbers.items())
        solver.addConstr(memory <= has["memory"] / _MEMORY_UNIT)
        solver.addConstr(sum(numbers.values()) <= has["pods"])
        return solver, numbers

    def _add(self, buyable: Buyable, contents: Contents) -> bool:
        key = (buyable.item.name, buyable.on_demand, buyable.steady, contents)
        if key in self._known:
            return False
        self._known.add(key)
        entries = {self._kinds[kind]: float(number) for kind, number in contents}
        if buyable.on_demand:
            entries[self._paid_for[buyable.item.name]] = -1.0
        self._column(buyable.price, entries)
        return True

    def _takes(self, room: CommitmentRoom, name: str, listed: int) -> Iterator[tuple[str, float]]:
        """Yield each commitment that may pay for a node of a type, and how much of the commitment the node takes."""
        for item in room.regional:
            if item.scope == family_of(name):
                yield item.scope, quarters_of(name)
        for plan in room.savings_plans:
            if rate := plan.rate(name, listed):
                yield plan.id, rate

    def _row(self, least: float, most: float) -> int:
        self._solver.addRow(least, most, 0, [], [])
        self._rows += 1
        return self._rows - 1

    def _column(self, cost: float, entries: Mapping[int, float]) -> None:
        self._solver.addCol(cost, 0.0, math.inf, len(entries), list(entries), list(entries.values()))


def program(world: World, types: Sequence[InstanceType], listed: Mapping[str, int], hour: int) -> Hour:
    """Return what the linear program of an hour costs and uses."""
    dollars, used = ContentsProgram(world, types, listed, hour).solve()
    return Hour(world.committed + dollars, used)


def used_part(ours: Sequence[Hour], best: Sequence[Hour], whole: Mapping[str, float], *, fully: bool) -> float:
    """Of what the program uses the part that is used, commitments weighed alike."""
    have = want = 0.0
    for mine, theirs in zip(ours, best, strict=True):
        for name, amount in theirs.used.items():
            if not fully or amount >= 0.999 * whole[name]:
                have += min(mine.used[name], amount) / whole[name]
                want += amount / whole[name]
    return have / want if want else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--pods", type=int, default=150, help="per cluster at its peak")
    parser.add_argument("--every-hours", type=int, default=2)
    parser.add_argument("--interleavings", type=int, default=2000, help="seeds of interleaved decisions")
    chosen = parser.parse_args()
    # All types have been seen: what the planner holds back of an estimate's memory is not what is measured here.
    types = tuple(
        replace(item, verified=True)
        for item in real_types()
        if family_of(item.name) in FAMILIES and ".metal" not in item.name
    )
    listed = {
        item.name: round(min(o.price for o in item.offerings if o.capacity_type == ON_DEMAND) * MICROS)
        for item in types
    }
    table = Table("seed", "mode", "commitments", "USD a day", "above the program", "used", "fully", "CPU s")
    worst, least = 0.0, 1.0
    for seed in chosen.seeds:
        world = drawn(seed, chosen.clusters, chosen.pods, listed)
        hours = range(0, 24, chosen.every_hours)
        without = World(world.clusters, CommitmentRoom())
        programs = {
            is_without: [program(without if is_without else world, types, listed, hour) for hour in hours]
            for is_without in (True, False)
        }
        for mode in ("fresh", "living"):
            for knows in ("none", "ignored", "counted"):
                here = without if knows == "none" else world
                best = programs[knows == "none"]
                bound = sum(hour.dollars for hour in best) * chosen.every_hours
                started = time.process_time()
                account = Account(here, types, listed, plans=knows == "counted")
                ours = [account.hour(hour, fresh=mode == "fresh") for hour in hours]
                dollars = sum(hour.dollars for hour in ours) * chosen.every_hours
                whole = amounts(here.counted)
                parts = [used_part(ours, best, whole, fully=fully) for fully in (False, True)]
                if (mode, knows) == ("living", "counted"):
                    worst, least = max(worst, dollars / bound - 1), min(least, parts[1])
                table.add_row(
                    str(seed),
                    mode,
                    knows,
                    f"{dollars:.2f}",
                    f"{100 * (dollars / bound - 1):+.1f} % of {bound:.2f}",
                    *(f"{100 * part:.1f} %" if whole else "" for part in parts),
                    f"{time.process_time() - started:.0f}",
                )
    Console(width=110).print(table)
    for seed in range(chosen.interleavings):
        InterleavedClusters(seed).play(60)
    Console().print(f"{chosen.interleavings} seeds of interleaved decisions: no dollar counted twice")
    Console().print(f"bars: dollars +{100 * worst:.1f} % (at most +1), used {100 * least:.1f} % (at least 98)")
    return 0 if worst <= 0.01 and least >= 0.98 else 3


if __name__ == "__main__":
    sys.exit(main())
