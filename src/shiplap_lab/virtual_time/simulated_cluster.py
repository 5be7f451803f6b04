"""The simulated cluster: kubelets, kube-scheduler, ReplicaSets and the cloud's controller, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.ports import Instance
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.informer import Informer, Kept
from shiplap_lab.cluster_simulator.kube_scheduler import Scheduler
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.scenario import ReplicaGroup
from shiplap_lab.virtual_time.supply import REGION, SimulatedHardware
from shiplap_lab.virtual_time.trace import Trace

STEP_S = 2.0
"""How often the controllers look whether anything has changed, in seconds."""

SCHEDULED_PER_S = 300
"""Pods that the kube-scheduler tries in a second; one in its default configuration does a few hundred."""

HOSTILE = {"key": "neighbour.example.com/claimed", "effect": "NoSchedule"}
"""What a hostile neighbour puts on every new node."""

_BOOT_S = (25.0, 55.0)
_READY_S = (2.0, 8.0)
_POD_START_S = 2.0
_CLOUD_S = 30.0


class Kube:
    """One cluster. `alive` tells whether an instance still runs, `joined` is called with every new Node.

    `in_service` says until when each initialised Node was there.
    """

    def __init__(
        self,
        name: str,
        loop: EventLoop,
        faults: FaultInjector,
        trace: Trace,
        truth: SimulatedHardware,
        *,
        seed: int,
        node_class_of: Callable[[str], str],
        alive: Callable[[str], bool],
        joined: Callable[[Instance, dict[str, int]], None],
    ) -> None:
        self.name = name
        self.server = ApiServer(loop.clock)
        self.informer = Informer(self.server, self._changed)
        self.changed_objects: dict[tuple[str, str], Pod | Node] = {}
        self.wanted: dict[str, int] = {}
        self._groups: dict[str, ReplicaGroup] = {}
        self._made: dict[str, int] = {}
        self._loop, self._faults, self._trace, self._truth = loop, faults, trace, truth
        self._seed = seed
        self._node_class_of, self._alive, self._joined = node_class_of, alive, joined
        self._scheduler = Scheduler(self.server, most=int(SCHEDULED_PER_S * STEP_S), events=False)
        self._waiting: dict[str, Pod] = {}
        self._of_group: dict[str, dict[str, Pod]] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self.in_service: dict[str, float] = {}
        self._to_run: set[str] = set()
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._at_rest: tuple[str, dict[str, int]] = ("", {})
        loop.every(STEP_S, self.step, first_s=0.5)

    # What users do

    def apply(self, group: ReplicaGroup) -> None:
        """Make a group and its PodDisruptionBudget; it has no replicas yet."""
        self._groups[group.name] = group
        self.wanted.setdefault(group.name, 0)
        self._made.setdefault(group.name, 0)
        if group.max_unavailable is not None:
            budget = {"selector": {"matchLabels": {"app": group.name}}, "maxUnavailable": group.max_unavailable}
            self.server.create("poddisruptionbudgets", {"metadata": {"name": group.name}, "spec": budget})

    # What the machines do

    def boot(self, instance: Instance) -> None:
        """An instance starts; after a while its kubelet registers a Node, unless something is wrong with it."""
        chance = Random(f"{self._seed}:boot:{instance.id}")  # noqa: S311 - repeatable chance
        delay = chance.uniform(*_BOOT_S) + sum(fault.amount for _, fault in self._faults.active_of("late-join"))
        if self._faults.hits("never-join"):
            self._trace.record("will not join", instance=instance.id)
            return
        hostile = bool(self._faults.active_of("taint"))
        self._loop.after(delay, lambda: self._register(instance, chance.uniform(*_READY_S), hostile=hostile))

    def _down(self) -> bool:
        return bool(self._faults.active_of("api-down"))

    def _register(self, instance: Instance, ready_s: float, *, hostile: bool) -> None:
        if not self._alive(instance.id):
            return
        if self._down():
            self._loop.after(5.0, lambda: self._register(instance, ready_s, hostile=hostile))
            return
        node_class = self._node_class_of(instance.node_pool)
        capacity, allocatable = self._truth.resources(node_class, instance.instance_type, instance.ami)
        taints = [{"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}]
        taints += [HOSTILE] if hostile else []
        now = rfc3339(self._loop.now())
        node = {
            "metadata": {
                "name": instance.private_dns,
                "labels": {
                    labels.NODE_POOL: label_value_of(instance.node_pool),
                    labels.HOSTNAME: instance.private_dns,
                    labels.INSTANCE_TYPE: instance.instance_type,
                    labels.ZONE: instance.zone,
                    labels.REGION: REGION,
                    labels.ARCH: "amd64",
                    labels.OS: "linux",
                },
            },
            "spec": {"providerID": instance.provider_id, "taints": taints},
            "status": {
                "capacity": format_resources(capacity),
                "allocatable": format_resources(allocatable),
                "conditions": [condition("Ready", "False", now, "KubeletNotReady", "container network is not ready")],
            },
        }
        try:
            self.server.create("nodes", node)
        except ObjectConflict:
            self._loop.after(5.0, lambda: self._register(instance, ready_s, hostile=hostile))
            return
        self._trace.record("node joined", node=instance.private_dns, instance=instance.id)
        self._joined(instance, allocatable)
        self._loop.after(ready_s, lambda: self._ready(instance))

    def _ready(self, instance: Instance) -> None:
        if not self._alive(instance.id):
            return
        if self._down():
            self._loop.after(5.0, lambda: self._ready(instance))
            return
        status = condition(
            "Ready", "True", rfc3339(self._loop.now()), "KubeletReady", "kubelet is posting ready status"
        )
        try:
            self.server.patch(
                "nodes",
                instance.private_dns,
                {"status": {"conditions": [status]}},
                strategic=True,
                subresource="status",
            )
        except ObjectNotFound:
            return  # somebody removed the Node already

    def end(self, instance: Instance) -> None:
        """An instance has ended; the cloud's controller notices after a while."""
        self._loop.after(_CLOUD_S, lambda: self._clear(instance))

    def _clear(self, instance: Instance) -> None:
        if self._down():
            self._loop.after(5.0, lambda: self._clear(instance))
            return
        self.informer.refresh()
        node = self.informer.nodes.get(instance.private_dns)
        if node is None or node.spec.provider_id != instance.provider_id:
            return
        self._trace.record("node gone", node=instance.private_dns)
        self._delete("nodes", instance.private_dns)
        for pod in self.pods_of(instance.private_dns):
            self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def pods_of(self, node: str) -> list[Pod]:
        """Pods bound to a node, by name, as of the last look."""
        return [pod for _, pod in sorted(self._on_node.get(node, {}).items())]

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:
        if isinstance(before, Pod):
            self._waiting.pop(key, None)
            self._of_group.get(before.metadata.labels.get("app", ""), {}).pop(key, None)
            if before.spec.node_name:
                self._on_node[before.spec.node_name].pop(key, None)
        if isinstance(after, Pod):
            if after.spec.node_name:
                self._on_node.setdefault(after.spec.node_name, {})[key] = after
                self._to_run.add(key)
            else:
                self._waiting[key] = after
            if not after.metadata.deletion_timestamp:
                self._of_group.setdefault(after.metadata.labels.get("app", ""), {})[key] = after
        if isinstance(after, Node) and after.metadata.labels.get(labels.INITIALIZED) == "true":
            self.in_service[key] = inf
        elif isinstance(before, Node) and key in self.in_service:
            self.in_service[key] = self._loop.now()
        if isinstance(after, Pod | Node):
            self.changed_objects[plural, key] = after
        else:
            self.changed_objects.pop((plural, key), None)

    # What controllers do

    def step(self) -> None:
        """ReplicaSets, kube-scheduler and kubelets do what is to do."""
        if self._down():
            return
        version = self.server.resource_version
        if self._at_rest == (version, self.wanted):
            return
        self.informer.refresh()
        self._replicate()
        self._scheduler.step(self._loop.now())
        self.informer.refresh()
        self._run_pods()
        if self.server.resource_version == version:
            # A step that wrote nothing: the same step on the same objects writes nothing again.
            self._at_rest = (version, dict(self.wanted))

    def pending(self) -> list[Pod]:
        """Pods without a node, as of the last look."""
        return [pod for _, pod in sorted(self._waiting.items())]

    def pending_uids(self) -> list[str]:
        """Of the same pods, in any order."""
        return [pod.metadata.uid for pod in self._waiting.values()]

    def _replicate(self) -> None:
        for name, wanted in sorted(self.wanted.items()):
            pods = self._of_group.get(name, {})
            for _ in range(wanted - len(pods)):
                self._create(self._groups[name])
            if len(pods) > wanted:
                newest = sorted(pods.values(), key=lambda pod: pod.metadata.name, reverse=True)
                for pod in newest[: len(pods) - wanted]:
                    self.server.delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _create(self, group: ReplicaGroup) -> None:
        self._made[group.name] += 1
        name = f"{group.name}-{self._made[group.name]:05d}"
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": group.name,
            "uid": f"rs-{self.name}-{group.name}",
            "controller": True,
        }
        container = {"name": "main", "resources": {"requests": {"cpu": group.cpu, "memory": group.memory}}}
        body: dict[str, Any] = {
            "metadata": {
                "name": name,
                "uid": f"{self.name}-{name}",
                "labels": {"app": group.name},
                "annotations": dict(group.annotations),
                "ownerReferences": [owner],
            },
            "spec": {"containers": [container], **group.spec},
        }
        self.server.create("pods", body)

    def _run_pods(self) -> None:
        for key in sorted(self._to_run & self.informer.pods.keys()):
            pod = self.informer.pods[key]
            uid = pod.metadata.uid
            if pod.metadata.deletion_timestamp:
                if uid not in self._ending:
                    self._ending.add(uid)
                    end = min(epoch(pod.metadata.deletion_timestamp), self._loop.now() + self._takes_to_end(uid))
                    self._loop.at(end, lambda key=key, uid=uid: self._finish(key, uid))  # type: ignore[misc]
            elif pod.status.phase == "Pending" and uid not in self._starting:
                self._starting.add(uid)
                self._loop.after(_POD_START_S, lambda key=key, uid=uid: self._start(key, uid))  # type: ignore[misc]
        self._to_run.clear()

    def _takes_to_end(self, uid: str) -> float:
        return Random(f"{self._seed}:end:{uid}").uniform(1, 20)  # noqa: S311 - repeatable chance

    def _node_lives(self, pod: Pod) -> bool:
        node = self.informer.nodes.get(pod.spec.node_name)
        return node is not None and self._alive(node.spec.provider_id.rpartition("/")[2])

    def _finish(self, key: str, uid: str) -> None:
        if self._down():
            self._loop.after(5.0, lambda: self._finish(key, uid))
            return
        self._ending.discard(uid)
        pod = self.informer.pods.get(key)
        if pod is not None and pod.metadata.uid == uid and self._node_lives(pod):
            self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _start(self, key: str, uid: str) -> None:
        if self._down():
            self._loop.after(5.0, lambda: self._start(key, uid))
            return
        self._starting.discard(uid)
        pod = self.informer.pods.get(key)
        if pod is None or pod.metadata.uid != uid or not self._node_lives(pod):
            return
        now = rfc3339(self._loop.now())
        conditions = [condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
        status = {"phase": "Running", "startTime": now, "conditions": conditions}
        try:
            self.server.patch(
                "pods",
                pod.metadata.name,
                {"status": status},
                pod.metadata.namespace,
                strategic=True,
                subresource="status",
            )
        except ObjectNotFound:
            return  # deleted while it was starting

    def _delete(self, plural: str, name: str, namespace: str = "") -> None:
        try:
            self.server.delete(plural, name, namespace, grace_s=0)
        except ObjectNotFound:
            return  # somebody else was faster


def is_tainted_by_neighbour(node: Node) -> bool:
    """Whether the hostile neighbour has been here."""
    return any(taint.key == HOSTILE["key"] for taint in node.spec.taints)
