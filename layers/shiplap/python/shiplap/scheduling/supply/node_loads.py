"""Computes what the pods of nodes take, once per view: most decisions about a cluster find its nodes as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import LARGEST
from shiplap.scheduling.model.planned_pods import is_recreated, running
from shiplap.scheduling.model.pod_classes import HostPort, encode_status, host_ports, signature
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.supply.daemons import daemon_owner


class NodeLoad(msgspec.Struct, frozen=True, eq=False):
    """Holds what the pods of one node take together.

    `daemons` holds the requests of each pod of a DaemonSet; `moving` names the resources that the pods which would have
    to go elsewhere ask for.
    """

    requests: Mapping[str, int]
    daemons: tuple[Mapping[str, int], ...]
    ports: frozenset[HostPort]
    moving: frozenset[str]


NO_LOAD = NodeLoad({}, (), frozenset(), frozenset())


class PodLoads:
    """Computes what pods take, once per distinct pod."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[str, int], frozenset[HostPort]]] = {}

    def load(self, pods: Iterable[Pod]) -> NodeLoad:
        """Of pods on one node. Raises ValueError when a quantity is malformed."""
        requests: dict[str, int] = {}
        daemons: list[Mapping[str, int]] = []
        ports: set[HostPort] = set()
        moving: set[str] = set()
        for pod in pods:
            wanted, taken = self._of(pod)
            for resource, amount in wanted.items():
                total = requests.get(resource, 0) + amount
                if not -LARGEST <= total <= LARGEST:
                    total = max(min(total, LARGEST), -LARGEST)
                requests[resource] = total
            if taken:
                ports |= taken
            if pod.metadata.owner_references and daemon_owner(pod) is not None:
                daemons.append(wanted)
            elif is_recreated(pod):
                moving.update(wanted)
        return NodeLoad(requests, tuple(daemons), frozenset(ports), frozenset(moving))

    def _of(self, pod: Pod) -> tuple[dict[str, int], frozenset[HostPort]]:
        status = pod.status
        key = signature(pod.spec)
        key += encode_status(status)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (pod_requests(pod), host_ports(pod.spec))
        return known


def loads_by_node(view: ClusterView) -> Mapping[str, NodeLoad]:
    """Of each node by what is bound to it, by name, as a question to ask of pods.

    Nodes with a pod that cannot be read are left out.
    """
    kinds, found = PodLoads(), {}
    for node, on_node in view.of_pods(running).items():
        try:
            found[node] = kinds.load(on_node)
        except ValueError:
            continue
    return found
