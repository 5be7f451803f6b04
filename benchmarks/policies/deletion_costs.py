"""Measures what deletion costs are worth: nodes and dollars after Deployments shrink to half, and what is written.

    python -m benchmarks.policies.deletion_costs [--seeds 20] [--first 0]

Each seed draws Deployments, which grow in three waves, and shrinks each to half in four steps, as a
HorizontalPodAutoscaler does. After each step the decisions on disruption are carried out until there are none. The same
cluster is played without deletion costs; kube-controller-manager's order of deletion decides alone there. `WhenEmpty`
removes empty nodes only, `WhenEmptyOrUnderutilized` consolidates as well. "moved" counts pods that consolidation moves,
"written" the pods that are written: as they start, and for each pod that is deleted while Deployments shrink.

Bars, exit code 1 where one is missed, over all seeds: with `WhenEmpty` dollars an hour at most 0.9 of those without
costs; with consolidation fewer moves; at most 2 writes for each deleted pod; none while nothing changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from random import Random

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.planning.scheduling import real_types
from benchmarks.shared.bars import exit_code
from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.kubernetes.labels import MANAGED_COST
from shiplap.kubernetes.objects import Pod
from shiplap.policies.deletion_costs.node_costs import node_costs
from shiplap.policies.deletion_costs.pod_costs import cost_changes
from shiplap.scheduling.model.snapshot import SchedulingSettings
from shiplap_lab.cluster_simulator.workloads.replica_sets import dispensable
from tests.builders.pods import pod
from tests.builders.pools import family_pool
from tests.living_cluster import LivingCluster

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized")
DEAREST = 0.9
MOST_WRITES = 2.0

_STEPS = (0.875, 0.75, 0.625, 0.5)
_READY = [{"type": "Ready", "status": "True"}]
_MOST_ROUNDS = 60


class Outcome(msgspec.Struct):
    """A cluster before and after, summed over seeds."""

    nodes_before: int = 0
    nodes: int = 0
    hourly_before: float = 0.0
    hourly: float = 0.0
    moved: int = 0
    deleted: int = 0
    started: int = 0
    first_writes: int = 0
    later_writes: int = 0
    idle_writes: int = 0

    def add(self, other: Outcome) -> None:
        """Add another cluster."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Shrinking:
    """A cluster whose Deployments grow and shrink. Without `managed` no costs are written."""

    def __init__(self, seed: int, policy: str, *, managed: bool) -> None:
        self._random = Random(seed)
        wishes = {MANAGED_COST: "managed"} if managed else {}
        family = family_pool("default", ("m6i", "c6i", "r6i"))
        disruption = replace(family.spec.disruption, consolidation_policy=policy, consolidate_after="0s")
        pool = replace(family, spec=replace(family.spec, disruption=disruption))
        self._pool = replace(pool, metadata=replace(pool.metadata, annotations=wishes))
        self.cluster = LivingCluster(
            [self._pool],
            real_types(),
            settings=SchedulingSettings(improve_s=0.0),
            disruption=DisruptionSettings(settle_s=0.0, improve_s=0.0),
        )
        self._sets: dict[str, int] = {}
        self._written = 0
        self.outcome = Outcome()

    def play(self) -> Outcome:
        """Let Deployments grow in waves, then shrink to half."""
        outcome, cluster = self.outcome, self.cluster
        for _ in range(3):
            self._grow()
        outcome.started, outcome.nodes_before, outcome.hourly_before = (
            len(cluster.pods),
            len(cluster.nodes),
            cluster.hourly,
        )
        self._settle()
        outcome.first_writes, self._written = self._written, 0
        self._settle()
        outcome.idle_writes, self._written = self._written, 0
        moves = sum(cluster.moves.values())
        for share in _STEPS:
            self._shrink(share)
            self._settle()
        outcome.nodes, outcome.hourly = len(cluster.nodes), cluster.hourly
        outcome.moved, outcome.later_writes = sum(cluster.moves.values()) - moves, self._written
        outcome.deleted = outcome.started - len(cluster.pods)
        return outcome

    def _grow(self) -> None:
        """Create Deployments, plan them together, and a minute later those that exist grow."""
        random = self._random
        for _ in range(random.randint(4, 8)):
            self._add(f"app-{len(self._sets)}", random.randint(2, 12))
        self.cluster.schedule()
        for name in sorted(self._sets):
            if random.random() < 0.5:
                self._add(name, random.randint(1, 8))
            self.cluster.now += 60
            self.cluster.schedule()
        self._ready()

    def _add(self, name: str, number: int) -> None:
        random = Random(name)
        requests = {
            "cpu": f"{random.choice((100, 250, 500, 1000, 2000))}m",
            "memory": f"{2 ** random.randint(7, 12)}Mi",
        }
        first = self._sets.get(name, 0)
        self._sets[name] = first + number
        minute = len(self._sets)
        stamp = {"metadata": {"creationTimestamp": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"}}
        self.cluster.create(
            pod(f"{name}-{place:03}", requests=requests, owner=name, owner_kind="ReplicaSet", **stamp)
            for place in range(first, first + number)
        )

    def _ready(self) -> None:
        """Let kubelets report all pods that are bound."""
        for key, item in self.cluster.pods.items():
            if item.spec.node_name:
                status = msgspec.convert({"phase": "Running", "conditions": _READY}, type(item.status))
                self.cluster.pods[key] = replace(item, status=status)

    def _shrink(self, share: float) -> None:
        for name, most in sorted(self._sets.items()):
            own = [item for item in self.cluster.pods.values() if item.metadata.owner_references[0].name == name]
            too_many = len(own) - max(1, round(most * share))
            if too_many > 0:
                self.cluster.delete(_key(item) for item in dispensable(own)[:too_many])

    def _settle(self) -> None:
        """Decide, write and carry out, minute by minute, until nothing is left to do."""
        for _ in range(_MOST_ROUNDS):
            self.cluster.now += 60
            decision = decide(self.cluster.disruption_snapshot())
            written = self._write(decision)
            for command in decision.commands:
                self.cluster.carry_out(command)
            self._ready()
            if not decision.commands and not written:
                return
        raise AssertionError("the cluster never comes to rest")

    def _write(self, decision: Decision) -> int:
        snapshot = self.cluster.disruption_snapshot()
        written = 0
        for node, cost in node_costs(snapshot, decision).items():
            pods = snapshot.scheduling.view.by_node.get(node, ())
            for change in cost_changes(pods, cost, self._pool.metadata.annotations):
                merged = {**change.pod.metadata.annotations, **change.annotations}
                kept = {key: value for key, value in merged.items() if value is not None}
                changed = replace(change.pod, metadata=replace(change.pod.metadata, annotations=kept))
                self.cluster.pods[_key(change.pod)] = changed
                written += 1
        self._written += written
        return written


def _key(item: Pod) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


def missed_bars(policy: str, managed: Outcome, plain: Outcome) -> Iterator[str]:
    """Yield the bars that deletion costs miss under a consolidation policy."""
    if policy == "WhenEmpty" and managed.hourly > DEAREST * plain.hourly:
        yield f"{policy}: {managed.hourly / plain.hourly:.3f} of the dollars without, the bar is {DEAREST}"
    if policy != "WhenEmpty" and managed.moved >= plain.moved:
        yield f"{policy}: {managed.moved} moves, the bar is fewer than {plain.moved}"
    if managed.later_writes > MOST_WRITES * managed.deleted:
        yield f"{policy}: {managed.later_writes} writes for {managed.deleted} deletions, the bar is {MOST_WRITES} each"
    if managed.idle_writes:
        yield f"{policy}: {managed.idle_writes} writes while nothing changed, the bar is 0"


def main(arguments: Sequence[str]) -> int:
    """Print the table and the bars that are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args(arguments)
    table = Table("policy", "costs", "nodes", "USD/h", "moved", "writes at first", "writes for a deleted pod")
    missed: list[str] = []
    for policy in POLICIES:
        found = {True: Outcome(), False: Outcome()}
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            for managed, total in found.items():
                total.add(_Shrinking(seed, policy, managed=managed).play())
        for managed, total in found.items():
            table.add_row(
                policy,
                "written" if managed else "none",
                f"{total.nodes_before} to {total.nodes}",
                f"{total.hourly_before:.2f} to {total.hourly:.2f}",
                str(total.moved),
                f"{total.first_writes} of {total.started} pods",
                f"{total.later_writes / max(total.deleted, 1):.2f}",
            )
        missed += missed_bars(policy, found[True], found[False])
    Console().print(table)
    return exit_code(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
