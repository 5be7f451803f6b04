"""Controllers that make pods: one per node for DaemonSets, and a new one for each that a ReplicaSet loses."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.errors import ResourceVersionGone
from shiplap.kubernetes.labels import NOT_READY_TAINT, UNREACHABLE_TAINT
from shiplap.kubernetes.objects import DaemonSet, Node, Toleration
from shiplap.kubernetes.selectors import node_affinity_allows
from shiplap.kubernetes.taints import untolerated
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.informer import Informer

_TOLERATED: tuple[tuple[str, str], ...] = (
    (NOT_READY_TAINT, "NoExecute"),
    (UNREACHABLE_TAINT, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Added to every daemon pod; those on the host's network also tolerate that the network is not there yet."""


class DaemonSetController:
    """Keeps one pod of each DaemonSet on every node it belongs on; kube-scheduler binds it there."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._informer = Informer(server)

    def step(self) -> None:
        """Create the pods that are missing."""
        if not self._informer.refresh():
            return
        present = {
            (owner.uid, _wanted_node(pod.spec.affinity) or pod.spec.node_name)
            for pod in self._informer.pods.values()
            for owner in pod.metadata.owner_references
            if owner.kind == "DaemonSet"
        }
        for _, daemon_set in sorted(self._informer.daemon_sets.items()):
            for name, node in sorted(self._informer.nodes.items()):
                if (daemon_set.metadata.uid, name) not in present and belongs(daemon_set, node):
                    self._create(daemon_set, name)

    def _create(self, daemon_set: DaemonSet, node: str) -> None:
        metadata = daemon_set.metadata
        stored = self._server.get("daemonsets", metadata.name, metadata.namespace)
        template = stored["spec"]["template"]
        spec: dict[str, Any] = dict(template.get("spec") or {})
        spec["affinity"] = _pinned(spec.get("affinity") or {}, node)
        spec["tolerations"] = [*(spec.get("tolerations") or []), *msgspec.to_builtins(_tolerations(daemon_set))]
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": metadata.name,
            "uid": metadata.uid,
            "controller": True,
        }
        labels = (template.get("metadata") or {}).get("labels") or {}
        pod = {
            "metadata": {"name": f"{metadata.name}-{node}", "labels": labels, "ownerReferences": [owner]},
            "spec": spec,
        }
        self._server.create("pods", pod, metadata.namespace)


class ReplicaController:
    """Recreates a deleted pod whose owner is a ReplicaSet or StatefulSet."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._version = server.resource_version

    def step(self) -> None:
        """Replace what was deleted since the last step."""
        try:
            changes, self._version = self._server.changes("pods", self._version)
        except ResourceVersionGone:
            self._version = self._server.resource_version  # deletions in between cannot be recovered
            return
        for change in changes:
            owners = change.object["metadata"].get("ownerReferences", [])
            owner = next((item for item in owners if item["kind"] in ("ReplicaSet", "StatefulSet")), None)
            if change.type == "DELETED" and owner is not None:
                self._replace(change.object, owner)

    def _replace(self, pod: dict[str, Any], owner: dict[str, Any]) -> None:
        old = pod["metadata"]
        metadata = {key: old[key] for key in ("labels", "annotations", "ownerReferences") if key in old}
        if owner["kind"] == "StatefulSet":
            metadata["name"] = old["name"]
        else:
            metadata["generateName"] = f"{owner['name']}-"
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        self._server.create("pods", {"metadata": metadata, "spec": spec}, old["namespace"])


def belongs(daemon_set: DaemonSet, node: Node) -> bool:
    """Whether a DaemonSet wants a pod on the node: its selector allows it and its tolerations cover the taints."""
    spec = daemon_set.spec.template.spec
    tolerations = (*spec.tolerations, *_tolerations(daemon_set))
    return (
        node_affinity_allows(spec, node) and untolerated(node.spec.taints, tolerations, ignore_preferences=True) is None
    )


def _tolerations(daemon_set: DaemonSet) -> tuple[Toleration, ...]:
    tolerated = _TOLERATED
    if daemon_set.spec.template.spec.host_network:
        tolerated = (*tolerated, ("node.kubernetes.io/network-unavailable", "NoSchedule"))
    return tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in tolerated)


def _pinned(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """The affinity with every required term pinned to one node by its name."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]
    }
    return {**affinity, "nodeAffinity": node_affinity}


def _wanted_node(affinity: Any) -> str:
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                return str(field.values[0])
    return ""
