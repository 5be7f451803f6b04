"""Measures plans when a scheduler has the last word: realised against planned cost, and pods left over.

A model of kube-scheduler with its default score (LeastAllocated: the emptier a node is afterwards, the better) places
pods in the order they were created, each time some nodes have joined, in random order. With the placement `nominate` it
tries the planned node first and keeps the room of nominated pods; with `bind` Shiplap binds them itself; with `none` it
knows nothing of the plan. Pods that find no room are planned again, until none is left.
"""

from __future__ import annotations

import argparse
import random

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.disruption.consolidation import POOL
from benchmarks.planning.scheduling import decoded, real_types
from benchmarks.shared.karpenter_workload import DrawnPod, verified
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import parse_resources
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.resources import Axis, Ints
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import SchedulingSettings
from shiplap.scheduling.planner import plan
from tests.living_cluster import LivingCluster

AXIS = Axis(("cpu", "memory", "pods"))
SCORED = [AXIS.names.index("cpu"), AXIS.names.index("memory")]
_Key = tuple[str, str]


class Scheduler:
    """The model. `room` [nodes, resources] is what pods that run leave, `kept` what nominated pods will take of it."""

    def __init__(self, cluster: LivingCluster) -> None:
        self.cluster = cluster
        self.names: list[str] = []
        self.whole: Ints = np.zeros((0, len(AXIS)), np.int64)
        self.room: Ints = np.zeros((0, len(AXIS)), np.int64)
        self.kept: Ints = np.zeros((0, len(AXIS)), np.int64)

    def join(self, name: str) -> None:
        whole = AXIS.matrix([parse_resources(self.cluster.nodes[name].status.allocatable)])
        self.names.append(name)
        self.whole = np.concatenate([self.whole, whole])
        self.room = np.concatenate([self.room, whole])
        self.kept = np.concatenate([self.kept, np.zeros_like(whole)])

    def nominate(self, key: _Key, name: str) -> None:
        self.kept[self.names.index(name)] += self.size(key)

    def place(self, key: _Key, nominated: str = "") -> bool:
        """Bind one pod to its nominated node, or else to the one with the best score that has room."""
        size = self.size(key)
        at = -1
        if nominated in self.names:
            at = self.names.index(nominated)
            self.kept[at] -= size
        else:
            left = self.room - self.kept - size
            fits = (left >= 0).all(axis=1)
            if fits.any():
                score = (left[:, SCORED] / self.whole[:, SCORED]).mean(axis=1)
                at = int(np.where(fits, score, -1.0).argmax())
        if at < 0:
            return False
        self.room[at] -= size
        self.cluster.bind((PodReference(*key),), self.names[at])
        return True

    def size(self, key: _Key) -> Ints:
        return AXIS.vector(pod_requests(self.cluster.pods[key]))


def realised(drawn: list[DrawnPod], placement: str, improve_s: float) -> tuple[float, float, int, int]:
    """The planned cost, the realised one (USD per hour), the nodes and the plans it took."""
    settings = SchedulingSettings(explore=False, improve_s=improve_s)
    cluster = LivingCluster([msgspec.convert(POOL, NodePool)], real_types(), settings=settings)
    pods = decoded(drawn)[0]
    cluster.create(pods)
    order = [(pod.metadata.namespace, pod.metadata.name) for pod in pods]
    scheduler, source = Scheduler(cluster), random.Random(3)
    planned, plans = 0.0, 0
    while any(not cluster.pods[key].spec.node_name for key in order):
        decided: Plan = plan(cluster.snapshot())
        assert decided.node_claims, "pods are left over for ever"
        plans += 1
        planned = planned or decided.hourly
        home = {(pod.namespace, pod.name): claim.name for claim in decided.node_claims for pod in claim.pods}
        claims = sorted(decided.node_claims, key=lambda claim: claim.name)
        source.shuffle(claims)
        for start in range(0, len(claims), 10):
            wave = claims[start : start + 10]
            for claim in wave:
                cluster.start(claim)
                scheduler.join(claim.name)
                for pod in claim.pods if placement == "nominate" else ():
                    if not cluster.pods[pod.namespace, pod.name].spec.node_name:
                        scheduler.nominate((pod.namespace, pod.name), claim.name)
                for pod in claim.pods if placement == "bind" else ():
                    cluster.bind((pod,), claim.name)
            if placement == "bind":
                continue
            for key in order:
                if not cluster.pods[key].spec.node_name:
                    scheduler.place(key, home.get(key, "") if placement == "nominate" else "")
    return planned, cluster.hourly, len(cluster.nodes), plans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--improve-s", type=float, default=2.0)
    chosen = parser.parse_args()
    table = Table("placement", "planned USD/h", "realised USD/h", "difference", "nodes", "plans")
    for placement in ("none", "nominate", "bind"):
        planned, cost, nodes, plans = realised(verified(chosen.pods), placement, chosen.improve_s)
        table.add_row(
            placement, f"{planned:.2f}", f"{cost:.2f}", f"{100 * (cost / planned - 1):+.1f} %", str(nodes), str(plans)
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
