"""Models machines in the simulation: how long they take by chance, the Nodes they register, and their faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from random import Random
from typing import Any

from shiplap.cluster.watcher import Tracker
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import Instance, WatchEvent
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.controllers import NewPod
from shiplap_lab.cluster_simulator.informer import Informer, Kept
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.faults.nodes.broken_node import BrokenNodeFault
from shiplap_lab.scenarios.scenario import PodGroup
from shiplap_lab.scenarios.workload import disruption_budget, pod_object, replica_set_uid
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.supply import REGION, SimulatedHardware

STEP_S = 2.0
"""How often the controllers look whether anything has changed, in seconds."""

SCHEDULED_PER_S = 300
"""Pods that the kube-scheduler tries in a second; one in its default configuration does a few hundred."""

BROKEN = "lab.example.com/broken"
"""The annotation by which a judge knows that a Node does not show what its type has."""

_BOOT_S = (25.0, 55.0)
_READY_S = (2.0, 8.0)
_POD_END_S = (1.0, 20.0)


class SimulatedMachines:
    """The NodeSource of the simulation, for the clusters of one run; `hardware` by cluster."""

    pod_start_s = 2.0
    node_gone_s = 30.0

    def __init__(self, faults: FaultInjector, hardware: Mapping[str, SimulatedHardware], seed: int) -> None:
        self._faults, self._hardware, self._seed = faults, hardware, seed

    def join_s(self, machine: Instance) -> float | None:
        """Seconds until the Node registers; faults that are active at the boot count."""
        late_s = 0.0
        for kind in self._faults.at_work:
            joins_s = kind.joins(machine)
            if joins_s is None:
                return None
            late_s += joins_s
        return self._chance("boot", machine.id).uniform(*_BOOT_S) + late_s

    def ready_s(self, machine: Instance) -> float | None:
        """Seconds from then until the Node is Ready; faults that are active at the boot count."""
        if any(kind.keeps_unready(machine) for kind in self._faults.at_work):
            return None
        return self._chance("ready", machine.id).uniform(*_READY_S)

    def pod_end_s(self, uid: str) -> float:
        return self._chance("end", uid).uniform(*_POD_END_S)

    def _chance(self, what: str, name: str) -> Random:
        return Random(f"{self._seed}:{what}:{name}")  # noqa: S311 - repeatable chance

    def resources(self, machine: Instance) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable of a machine, canonical units."""
        found = self._hardware[machine.cluster].resources(machine.node_pool, machine.instance_type, machine.ami)
        spoilt = (kind.yields(machine, found) for kind in self._faults.kinds)
        return next((other for other in spoilt if other is not None), found)

    def node_object(self, machine: Instance, now: float) -> dict[str, Any]:
        """The Node with the labels that Shiplap's user data would give it."""
        capacity, allocatable = self.resources(machine)
        taints = [{"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}]
        taints += [taint for kind in self._faults.kinds for taint in kind.taints(machine)]
        not_ready = condition("Ready", "False", rfc3339(now), "KubeletNotReady", "container network is not ready")
        return {
            "metadata": {
                "name": machine.private_dns,
                "annotations": {BROKEN: "true"} if self._faults.of(BrokenNodeFault).is_broken(machine) else {},
                "labels": {
                    labels.NODE_POOL: label_value_of(machine.node_pool),
                    labels.HOSTNAME: machine.private_dns,
                    labels.INSTANCE_TYPE: machine.instance_type,
                    labels.ZONE: machine.zone,
                    labels.REGION: REGION,
                    labels.ARCH: self._hardware[machine.cluster].architecture(machine.instance_type),
                    labels.OS: "linux",
                },
            },
            "spec": {"providerID": machine.provider_id, "taints": taints},
            "status": {
                "capacity": format_resources(capacity),
                "allocatable": format_resources(allocatable),
                "conditions": [not_ready],
            },
        }


class ClusterChanges:
    """Records changes in a cluster: for the watch function, and until when each initialised Node was in service."""

    def __init__(self, informer: Informer, now: Callable[[], float]) -> None:
        self.in_service: dict[str, float] = {}
        self.tracker = Tracker()
        self._now = now
        informer.listeners.append(self._changed)

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:  # noqa: ARG002
        changed = after if after is not None else before
        if isinstance(changed, Pod | Node):
            self.tracker.see(WatchEvent("DELETED" if after is None else "MODIFIED", changed, ""))
        if isinstance(after, Node) and after.metadata.labels.get(labels.INITIALIZED) == "true":
            self.in_service[key] = inf
        elif isinstance(before, Node) and key in self.in_service:
            self.in_service[key] = self._now()


class ReplicaGroups:
    """The ReplicaSets of a cluster, one per group of the scenario; a group has no replicas until it is scaled."""

    def __init__(self, cluster: SimulatedCluster[Instance], groups: tuple[PodGroup, ...]) -> None:
        self._replicas, self._cluster = cluster.replicas, cluster.name
        self._sets = {group.name: (replica_set_uid(group), self._pods_of(group)) for group in groups}
        for group in groups:
            if group.max_unavailable is not None:
                cluster.server.create("poddisruptionbudgets", disruption_budget(group), group.namespace)

    def scale(self, group: str, replicas: int) -> None:
        """From now on a group has so many pods."""
        uid, new_pod = self._sets[group]
        self._replicas.scale(uid, replicas, new_pod)

    def _pods_of(self, group: PodGroup) -> NewPod:
        numbers = count(1)

        def new_pod(_lost: str) -> dict[str, Any]:
            name = f"{group.name}-{next(numbers):05d}"
            return pod_object(group, name, uid=f"{self._cluster}-{name}", replicated=True)

        return new_pod


def cluster_in_virtual_time(
    name: str, loop: EventLoop, faults: FaultInjector, machines: SimulatedMachines
) -> SimulatedCluster[Instance]:
    """A cluster whose controllers look every `STEP_S`."""
    cluster = SimulatedCluster(
        name,
        ApiServer(loop.clock),
        loop,
        machines,
        is_down=lambda: faults.is_api_down,
        most=int(SCHEDULED_PER_S * STEP_S),
        scheduling_events=False,
    )
    loop.every(STEP_S, cluster.step, first_s=0.5, rests=True)
    return cluster
