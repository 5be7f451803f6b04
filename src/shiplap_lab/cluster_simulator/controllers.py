"""Controllers that create pods: one per node for DaemonSets, and as many as a ReplicaSet or StatefulSet is to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.labels import NOT_READY_TAINT, UNREACHABLE_TAINT
from shiplap.kubernetes.objects import DaemonSet, Node, OwnerReference, Pod, Toleration
from shiplap.kubernetes.selectors import node_affinity_allows
from shiplap.kubernetes.taints import untolerated
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.informer import Informer, Kept

_TOLERATED: tuple[tuple[str, str], ...] = (
    (NOT_READY_TAINT, "NoExecute"),
    (UNREACHABLE_TAINT, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Added to every daemon pod; those on the host's network also tolerate that the network is not there yet."""

_REPLICATED = ("ReplicaSet", "StatefulSet")
_TEMPLATE = ("namespace", "labels", "annotations", "ownerReferences")


class DaemonSetController:
    """Keeps one pod of each DaemonSet on every node it belongs on; kube-scheduler binds it there.

    `marks` are labels that its pods get beside their template's.
    """

    def __init__(
        self,
        server: ApiServer,
        informer: Informer,
        marks: Callable[[dict[str, Any]], dict[str, str]] = lambda _daemon_set: {},
    ) -> None:
        self._server = server
        self._marks = marks
        self._informer = informer
        self._present: dict[str, tuple[str, str]] = {}
        self._stale = False
        informer.listeners.append(self._changed)

    def step(self) -> None:
        """Create the pods that are missing."""
        if not self._stale:
            return
        self._stale = False
        present = set(self._present.values())
        for _, daemon_set in sorted(self._informer.daemon_sets.items()):
            if daemon_set.metadata.deletion_timestamp:
                continue
            for name, node in sorted(self._informer.nodes.items()):
                if (daemon_set.metadata.uid, name) not in present and belongs(daemon_set, node):
                    self._create(daemon_set, name)

    def _changed(self, plural: str, key: str, _before: Kept | None, after: Kept | None) -> None:
        if plural != "pods":
            self._stale = True
        elif isinstance(after, Pod) and (owner := _owner(after, "DaemonSet")) is not None:
            self._present[key] = (owner.uid, wanted_node(after.spec.affinity) or after.spec.node_name)
        elif self._present.pop(key, None) is not None:
            self._stale = True

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
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **self._marks(stored)}
        pod = {
            "metadata": {
                "name": f"{metadata.name}-{node}",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        self._server.create("pods", pod, metadata.namespace)


NewPod = Callable[[str], dict[str, Any]]
"""Makes the body of a pod; given the name of the pod that it replaces, empty when there is none."""


_SetKey = tuple[str, str]
"""Kind and uid of an owner."""


class _PodSet(msgspec.Struct):
    """The pods of one ReplicaSet or StatefulSet. `scaled`: its number was stated, not counted."""

    new_pod: NewPod
    wanted: int = 0
    scaled: bool = False
    pods: dict[str, Pod] = {}
    lost: list[str] = []


class ReplicaController:
    """Keeps the number of pods of ReplicaSets and StatefulSets: as `scale` says, else as many as users have created.

    A pod of a ReplicaSet is replaced when it is to end; one of a StatefulSet when it has ended, under the same name.
    Only sets whose uid `adopts` are kept if they were not scaled: a stored set has a controller of its own.
    """

    def __init__(
        self, server: ApiServer, informer: Informer, *, adopts: Callable[[str], bool] = lambda _uid: True
    ) -> None:
        self._server = server
        self._adopts = adopts
        self._sets: dict[_SetKey, _PodSet] = {}
        self._stale: set[_SetKey] = set()
        informer.listeners.append(self._changed)

    @property
    def is_settled(self) -> bool:
        """True if no set has changed or was scaled since the last step."""
        return not self._stale

    def scale(self, uid: str, replicas: int, new_pod: NewPod) -> None:
        """From now on the ReplicaSet with this uid has so many pods."""
        key = ("ReplicaSet", uid)
        known = self._sets.setdefault(key, _PodSet(new_pod))
        known.new_pod, known.wanted, known.scaled = new_pod, replicas, True
        self._stale.add(key)

    def step(self) -> None:
        """Create the pods that are missing; delete the newest of those that are too many."""
        for which in sorted(self._stale):
            known = self._sets[which]
            for _ in range(known.wanted - len(known.pods)):
                body = known.new_pod(known.lost.pop(0) if known.lost else "")
                self._server.create("pods", body, body["metadata"].get("namespace", ""))
            if len(known.pods) > known.wanted:
                newest = sorted(known.pods.values(), key=lambda pod: pod.metadata.name, reverse=True)
                for pod in newest[: len(newest) - known.wanted]:
                    self._server.delete("pods", pod.metadata.name, pod.metadata.namespace)
            known.lost.clear()
        self._stale.clear()

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:
        if plural != "pods":
            return
        owner = _owner(after, *_REPLICATED) if isinstance(after, Pod) else None
        left = _owner(before, *_REPLICATED) if isinstance(before, Pod) else None
        if isinstance(before, Pod) and left is not None:
            self._take_out(key, before, (left.kind, left.uid), there=after is not None, owned=owner is not None)
        if isinstance(after, Pod) and owner is not None:
            self._keep(key, after, owner)

    def _take_out(self, key: str, pod: Pod, which: _SetKey, *, there: bool, owned: bool) -> None:
        known = self._sets.get(which)
        if known is None or known.pods.pop(key, None) is None:
            return
        self._stale.add(which)
        if not there:
            known.lost.append(pod.metadata.name)
        elif not owned and not known.scaled:
            known.wanted -= 1  # a user has taken the pod out of its set

    def _keep(self, key: str, pod: Pod, owner: OwnerReference) -> None:
        if pod.metadata.deletion_timestamp and owner.kind == "ReplicaSet":
            return
        known = self._sets.get((owner.kind, owner.uid))
        if known is None:
            new_pod = self._copies(pod, owner) if self._adopts(owner.uid) else None
            if new_pod is None:
                return
            known = self._sets[owner.kind, owner.uid] = _PodSet(new_pod)
        known.pods[key] = pod
        if not known.scaled:
            known.wanted = max(known.wanted, len(known.pods))

    def _copies(self, pod: Pod, owner: OwnerReference) -> NewPod | None:
        """More pods like one that a user has created; None when that one is gone already."""
        try:
            stored = self._server.get("pods", pod.metadata.name, pod.metadata.namespace)
        except ObjectNotFound:
            return None
        kept = {key: stored["metadata"][key] for key in _TEMPLATE if key in stored["metadata"]}
        spec = {key: value for key, value in stored["spec"].items() if key != "nodeName"}

        def copy(lost: str) -> dict[str, Any]:
            same = lost and owner.kind == "StatefulSet"
            return {
                "metadata": {**kept, **({"name": lost} if same else {"generateName": f"{owner.name}-"})},
                "spec": spec,
            }

        return copy


def belongs(daemon_set: DaemonSet, node: Node) -> bool:
    """True if a DaemonSet wants a pod on the node: its selector allows it and its tolerations cover the taints."""
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


def wanted_node(affinity: Any) -> str:
    """The node to which a daemon pod's affinity pins it; empty without one."""
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                return str(field.values[0])
    return ""


def _owner(pod: Pod, *kinds: str) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.kind in kinds), None)
