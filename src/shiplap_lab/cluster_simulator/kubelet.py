"""Kubelets: instances become Nodes, Nodes become Ready, their pods run, and ended instances take both with them.

The parts of the cloud controller, the node lifecycle controller and pod garbage collection that go with that are
played here, too: zone labels and provider ids, the not-ready taint, and the end of pods whose node is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from shiplap.errors import InvalidInput, ObjectConflict, ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.booted_user_data import registration
from shiplap_lab.cluster_simulator.informer import Informer
from shiplap_lab.cluster_simulator.machines import Hardware, Machine

_NEVER = float("inf")


class Delays(msgspec.Struct, frozen=True):
    """Seconds: launch until the Node appears, from then until it is Ready; binding until the pod runs."""

    join_s: float = 1.0
    ready_s: float = 0.5
    pod_start_s: float = 0.0


class Kubelets:
    """All kubelets of one cluster.

    `joins` may replace the join delay of single machines: seconds, or None for a machine that never joins.

    Attributes:
        broken: why machines could not boot, by instance id; they never join, as real ones would not.
    """

    def __init__(
        self,
        server: ApiServer,
        hardware: Hardware,
        *,
        delays: Delays = Delays(),  # noqa: B008 - frozen
        joins: Callable[[Machine], float | None] | None = None,
        version: str = "v1.34.0",
    ) -> None:
        self.broken: dict[str, str] = {}
        self._server = server
        self._hardware = hardware
        self._delays = delays
        self._joins = joins
        self._version = version
        self._informer = Informer(server)
        self._registered_at: dict[str, float] = {}
        self._starting: dict[str, float] = {}

    def step(self, now: float, machines: Sequence[Machine]) -> None:
        """Let every kubelet do what is due at `now` (epoch seconds), given all instances of the cluster."""
        changed = self._informer.refresh()
        by_provider = {node.spec.provider_id: node for node in self._informer.nodes.values()}
        running = {machine.id for machine in machines if machine.running}
        for machine in sorted(machines, key=lambda item: item.id):
            if machine.running:
                self._live(machine, by_provider.get(machine.provider_id), now)
        for machine_id in sorted(self._registered_at.keys() - running):
            del self._registered_at[machine_id]
            for provider_id, node in by_provider.items():
                if provider_id.endswith(f"/{machine_id}"):
                    self._end(node)
        changed |= self._informer.refresh()
        if changed or self._starting:
            self._run_pods(now)

    def _live(self, machine: Machine, node: Node | None, now: float) -> None:
        registered_at = self._registered_at.get(machine.id)
        if registered_at is None:
            delay = self._joins(machine) if self._joins else self._delays.join_s
            if node is None and now >= machine.launched_at + (_NEVER if delay is None else delay):
                self._register(machine, now)
            elif node is not None:
                self._registered_at[machine.id] = now
        elif node is not None and not is_ready(node) and now >= registered_at + self._delays.ready_s:
            self._become_ready(node, now)

    def _register(self, machine: Machine, now: float) -> None:
        if machine.id in self.broken:
            return
        try:
            self._server.create("nodes", node_object(machine, self._hardware, self._version, now))
        except ObjectConflict:
            return  # a node of this name is still there; kubelet tries again
        except InvalidInput as error:
            self.broken[machine.id] = str(error)
            return
        self._registered_at[machine.id] = now

    def _become_ready(self, node: Node, now: float) -> None:
        name = node.metadata.name
        ready = condition("Ready", "True", rfc3339(now), "KubeletReady", "kubelet is posting ready status")
        self._server.patch("nodes", name, {"status": {"conditions": [ready]}}, strategic=True, subresource="status")
        taints = [
            taint
            for taint in self._server.get("nodes", name)["spec"].get("taints", [])
            if taint["key"] != labels.NOT_READY_TAINT
        ]
        self._server.patch("nodes", name, {"spec": {"taints": taints}})

    def _end(self, node: Node) -> None:
        """The instance is gone: so is the Node, and so are its pods."""
        self._delete("nodes", node.metadata.name)
        for pod in self._pods_of(node.metadata.name):
            self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _pods_of(self, node: str) -> Iterable[Pod]:
        return [pod for _, pod in sorted(self._informer.pods.items()) if pod.spec.node_name == node]

    def _run_pods(self, now: float) -> None:
        """Pods on nodes start after a moment, and pods that are to end do so within their grace period."""
        bound = [pod for _, pod in sorted(self._informer.pods.items()) if pod.spec.node_name in self._informer.nodes]
        starting: dict[str, float] = {}
        for pod in bound:
            metadata = pod.metadata
            if metadata.deletion_timestamp:
                self._delete("pods", metadata.name, metadata.namespace)
            elif pod.status.phase == "Pending":
                bound_at = self._starting.get(metadata.uid, now)
                if now >= bound_at + self._delays.pod_start_s:
                    self._start(pod, rfc3339(now))
                else:
                    starting[metadata.uid] = bound_at
        self._starting = starting

    def _start(self, pod: Pod, now: str) -> None:
        conditions = [condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
        status = {"phase": "Running", "startTime": now, "conditions": conditions}
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            self._server.patch(
                "pods", pod.metadata.name, patch, pod.metadata.namespace, strategic=True, subresource="status"
            )
        except (ObjectConflict, ObjectNotFound):
            pass  # deleted or recreated since this step began

    def _delete(self, plural: str, name: str, namespace: str = "") -> None:
        try:
            self._server.delete(plural, name, namespace, grace_s=0)
        except ObjectNotFound:
            pass  # already deleted


def node_object(machine: Machine, hardware: Hardware, version: str, now: float) -> dict[str, Any]:
    """The Node that a machine's kubelet registers: labels and taints of its user data, and what the hardware yields.

    Not ready yet; with what a cloud controller adds, zone labels and provider id. `now` in epoch seconds.

    Raises:
        InvalidInput: the machine's boot script would fail on its user data.
    """
    moment = rfc3339(now)
    registered = registration(machine.user_data)
    found = hardware(machine, registered)
    not_ready = {"key": labels.NOT_READY_TAINT, "effect": "NoSchedule", "timeAdded": moment}
    return {
        "metadata": {
            "name": machine.node_name,
            "labels": {
                **registered.labels,
                labels.HOSTNAME: machine.node_name,
                labels.INSTANCE_TYPE: machine.instance_type,
                labels.ZONE: machine.zone,
                labels.REGION: machine.region,
                labels.ARCH: found.architecture,
                labels.OS: found.os,
            },
        },
        "spec": {
            "providerID": machine.provider_id,
            "taints": [*msgspec.to_builtins(registered.taints), not_ready],
        },
        "status": {
            "capacity": format_resources(found.capacity),
            "allocatable": format_resources(found.allocatable),
            "conditions": [condition("Ready", "False", moment, "KubeletNotReady", "container network is not ready")],
            "addresses": [{"type": "Hostname", "address": machine.node_name}],
            "nodeInfo": {
                "kubeletVersion": version,
                "architecture": found.architecture,
                "operatingSystem": found.os,
                "osImage": registered.family,
            },
        },
    }


def is_ready(node: Node) -> bool:
    """Whether the node's Ready condition is True."""
    return any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
