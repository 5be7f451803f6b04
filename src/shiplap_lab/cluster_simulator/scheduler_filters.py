"""kube-scheduler's filters: which nodes a pod may run on, and in its own words why not.

Resources, node selector and affinity, taints, cordons and host ports. Topology spread, pod affinity and volumes are not
judged: pods that use them are placed as if they did not.
"""

from __future__ import annotations

import msgspec

from shiplap.kubernetes.objects import ContainerPort, Node, Pod, PodSpec
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS, parse_resources
from shiplap.kubernetes.selectors import node_affinity_allows
from shiplap.kubernetes.taints import untolerated

_DEFAULT_CPU_MILLICORES = 100
_DEFAULT_MEMORY = 200 * 2**20
"""What scoring assumes of a pod that requests none (kube-scheduler's GetNonzeroRequests)."""

Port = tuple[str, int, str]
"""Protocol, host port, host address."""


class PodInfo(msgspec.Struct, frozen=True):
    """What one pod asks of a node. Equal `shape` means that the filters treat two pods alike."""

    pod: Pod
    requests: dict[str, int]
    scored: dict[str, int]
    ports: tuple[Port, ...]
    shape: bytes

    @classmethod
    def of(cls, pod: Pod, before: PodInfo | None = None) -> PodInfo:
        """From the pod, and what was known of it before. Raises ValueError when a quantity is malformed."""
        if before is not None and before.pod.spec is pod.spec and _held(before.pod) == _held(pod):
            return cls(pod, before.requests, before.scored, before.ports, before.shape)
        requests = pod_requests(pod)
        spec = pod.spec
        scored = {
            CPU: requests.get(CPU, _DEFAULT_CPU_MILLICORES),
            MEMORY: requests.get(MEMORY, _DEFAULT_MEMORY),
        }
        ports = tuple(
            (port.protocol, number, port.host_ip)
            for container in spec.containers
            for port in container.ports
            if (number := _host_port(spec, port))
        )
        shape = msgspec.msgpack.encode(
            (sorted(requests.items()), spec.node_selector, spec.affinity, spec.tolerations, ports, spec.priority)
        )
        return cls(pod, requests, scored, ports, shape)


class NodeInfo(msgspec.Struct):
    """A node and what its pods hold; `add` counts a pod in as soon as it is bound."""

    node: Node
    allocatable: dict[str, int]
    used: dict[str, int] = {}
    scored: dict[str, int] = {}
    ports: list[Port] = []
    nominated: list[PodInfo] = []

    @classmethod
    def of(cls, node: Node) -> NodeInfo:
        """An empty node. Raises ValueError when a quantity is malformed."""
        return cls(node, parse_resources(node.status.allocatable))

    def add(self, needs: PodInfo) -> None:
        """Count a bound pod in."""
        for resource, amount in needs.requests.items():
            self.used[resource] = self.used.get(resource, 0) + amount
        for resource, amount in needs.scored.items():
            self.scored[resource] = self.scored.get(resource, 0) + amount
        self.ports.extend(needs.ports)


def refusals(needs: PodInfo, state: NodeInfo) -> list[str]:
    """Why the node does not take the pod; empty when it does."""
    spec, node = needs.pod.spec, state.node
    if node.spec.unschedulable:
        return ["node(s) were unschedulable"]
    taint = untolerated(node.spec.taints, spec.tolerations, ignore_preferences=True)
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not node_affinity_allows(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if any(_collide(wanted, taken) for wanted in needs.ports for taken in state.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    return _shortages(needs, state)


def _shortages(needs: PodInfo, state: NodeInfo) -> list[str]:
    """Resources that are short, pods nominated to the node with at least this pod's priority counted as there."""
    ahead = [
        other
        for other in state.nominated
        if other.pod.metadata.uid != needs.pod.metadata.uid and other.pod.spec.priority >= needs.pod.spec.priority
    ]
    short = []
    for resource, amount in needs.requests.items():
        taken = state.used.get(resource, 0) + sum(other.requests.get(resource, 0) for other in ahead)
        if taken + amount > state.allocatable.get(resource, 0):
            short.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
    return short


def _held(pod: Pod) -> tuple[object, ...]:
    """What of a status changes what the pod asks for."""
    status = pod.status
    return (status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources)


def _host_port(spec: PodSpec, port: ContainerPort) -> int:
    """The port taken on the node, 0 for none; on the host's network every port is the node's."""
    return port.host_port or (port.container_port if spec.host_network else 0)


def _collide(wanted: Port, taken: Port) -> bool:
    anywhere = ("", "0.0.0.0")  # noqa: S104 - compared, not bound
    same_address = wanted[2] == taken[2] or wanted[2] in anywhere or taken[2] in anywhere
    return wanted[:2] == taken[:2] and same_address
