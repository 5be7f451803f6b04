"""ClusterApi in memory: the port over an API server's store, without HTTP, with faults before and after each effect.

A watch yields what has happened and ends: in a test or a simulation nothing can happen while somebody reads, and time
moves only when it is told to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes.disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.objects import DaemonSet, Event, Node, ObjectMeta, Pod, Taint
from shiplap.kubernetes.volumes import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    attached,
    storage_matters,
)
from shiplap.kubernetes.wire import (
    BOUND_PODS,
    PENDING_PODS,
    SCALE_UP_EVENTS,
    event_body,
    nomination_patch,
    pods_on,
    registration_patch,
)
from shiplap.kubernetes.workloads import (
    SCALABLE_PLURALS,
    Namespace,
    ReplicaSet,
    ReplicationController,
    Scalable,
    ScalableName,
    Service,
    StatefulSet,
    namespaces_matter,
)
from shiplap.ports import WatchEvent
from shiplap.scheduling.snapshot import ClusterView
from shiplap.twins.faults import Faults
from shiplap.twins.kube.server import EVERYTHING, ApiServer, Selection

__all__ = ["ApiServer", "Selection", "TwinCluster"]

Typed = TypeVar(
    "Typed",
    bound=Pod
    | Node
    | DaemonSet
    | Event
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | VolumeAttachment
    | PodDisruptionBudget
    | Namespace
    | Service
    | ReplicaSet
    | StatefulSet
    | ReplicationController
    | Scalable,
)

_DECODED_LIMIT = 100_000
_PENDING = Selection(field_selector=PENDING_PODS)
_WATCHED: dict[str, tuple[type[Pod | Node], Selection]] = {"pods": (Pod, _PENDING), "nodes": (Node, EVERYTHING)}


class TwinCluster:
    """The port ClusterApi over `server`. Effects are named `cluster.<method>` for `faults`."""

    def __init__(self, server: ApiServer, *, faults: Faults | None = None) -> None:
        self.server = server
        self._faults = faults or Faults()
        self._decoded: dict[str, tuple[str, Any]] = {}

    def view(self, leaving: Collection[str] = (), *, workloads: bool = False) -> ClusterView:
        """Everything a scheduling decision reads, at one moment."""
        with self._faults.effect("cluster.view"):
            view = ClusterView(
                pods=(
                    *self._list("pods", Pod, _PENDING),
                    *self._list("pods", Pod, Selection(field_selector=BOUND_PODS)),
                ),
                nodes=self._list("nodes", Node),
                daemon_sets=self._list("daemonsets", DaemonSet),
                events=self._list("events", Event, Selection(field_selector=SCALE_UP_EVENTS)),
                version=self.server.resource_version,
            )
            if storage_matters(view.pods, view.nodes, leaving):
                view = self._with_storage(view)
            if namespaces_matter(view.pods):
                view = msgspec.structs.replace(view, namespaces=self._list("namespaces", Namespace))
            return self._with_workloads(view) if workloads else view

    def pending_pods(self) -> tuple[Pod, ...]:
        """Unfinished pods without a node, sorted by namespace and name."""
        with self._faults.effect("cluster.pending_pods"):
            return self._list("pods", Pod, _PENDING)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        with self._faults.effect("cluster.nodes"):
            return self._list("nodes", Node)

    def node(self, name: str) -> Node:
        """One node. Raises ObjectNotFound."""
        with self._faults.effect("cluster.node"):
            return self._typed(self.server.get("nodes", name), Node)

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods of one node, sorted by namespace and name."""
        with self._faults.effect("cluster.pods_on"):
            return self._list("pods", Pod, Selection(field_selector=pods_on(node)))

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:  # noqa: ARG002 - time does not pass
        """Changes since a version and a bookmark that tells how far they went. Raises ResourceVersionGone."""
        self._faults.before("cluster.watch")
        typed, selection = _WATCHED[kind]
        changes, newest = self.server.changes(kind, resource_version, selection)
        for change in changes:
            yield WatchEvent(change.type, msgspec.convert(change.object, typed), str(change.resource_version))
        yield WatchEvent("BOOKMARK", typed(metadata=ObjectMeta(resource_version=newest)), newest)
        self._faults.after("cluster.watch")

    def list_for_watch(self, kind: str) -> tuple[tuple[Pod, ...] | tuple[Node, ...], str]:
        """Pending pods or all nodes, and the version they stand for."""
        with self._faults.effect("cluster.list_for_watch"):
            version = self.server.resource_version
            if kind == "pods":
                return self._list(kind, Pod, _PENDING), version
            return self._list(kind, Node), version

    def register_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        taints: Sequence[Taint],
        resource_version: str,
    ) -> None:
        """Merge labels and annotations, replace taints. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.register_node"):
            self.server.patch("nodes", name, registration_patch(labels, annotations, taints, resource_version))

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`. Raises ObjectNotFound, ObjectConflict when the pod was recreated."""
        with self._faults.effect("cluster.nominate"):
            metadata = pod.metadata
            patch = nomination_patch(pod, node)
            self.server.patch("pods", metadata.name, patch, metadata.namespace, subresource="status")

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Have a pod deleted. Raises TooManyRequests while a PDB forbids it, ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.evict"):
            metadata = pod.metadata
            self.server.evict(metadata.name, metadata.namespace, grace_s=grace_s, uid=metadata.uid)

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.bind"):
            metadata = pod.metadata
            self.server.bind(metadata.name, node, metadata.namespace, uid=metadata.uid)

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its budgets say. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.delete_pod"):
            metadata = pod.metadata
            self.server.delete("pods", metadata.name, metadata.namespace, grace_s=grace_s, uid=metadata.uid)

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.delete_node"):
            self.server.delete("nodes", node.metadata.name, uid=node.metadata.uid)

    def attached_volumes(self, node: str, staying: Sequence[Pod]) -> tuple[str, ...]:
        """Volumes attached to a node but for those of `staying` pods."""
        with self._faults.effect("cluster.attached_volumes"):
            attachments = self._list("volumeattachments", VolumeAttachment)
            return attached(attachments, node, staying, self._list("persistentvolumeclaims", PersistentVolumeClaim))

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets, sorted by namespace and name."""
        with self._faults.effect("cluster.disruption_budgets"):
            return self._list("poddisruptionbudgets", PodDisruptionBudget)

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """These workloads, as far as they exist."""
        found = []
        with self._faults.effect("cluster.scalables"):
            for name in names:
                try:
                    item = self.server.get(SCALABLE_PLURALS[name.kind], name.name, name.namespace)
                except ObjectNotFound:
                    continue  # the buffer says so
                found.append(msgspec.convert(item, Scalable))
        return tuple(found)

    def publish(self, event: Event) -> None:
        """Write an event; one that said the same before stays as it is."""
        with self._faults.effect("cluster.publish"):
            body = event_body(event)
            try:
                self.server.create("events", body, body["metadata"]["namespace"])
            except ObjectConflict:
                pass  # the name is a digest of the event: it is there already

    def _with_storage(self, view: ClusterView) -> ClusterView:
        return msgspec.structs.replace(
            view,
            persistent_volume_claims=self._list("persistentvolumeclaims", PersistentVolumeClaim),
            persistent_volumes=self._list("persistentvolumes", PersistentVolume),
            storage_classes=self._list("storageclasses", StorageClass),
            csi_nodes=self._list("csinodes", CSINode),
        )

    def _with_workloads(self, view: ClusterView) -> ClusterView:
        return msgspec.structs.replace(
            view,
            services=self._list("services", Service),
            replica_sets=self._list("replicasets", ReplicaSet),
            stateful_sets=self._list("statefulsets", StatefulSet),
            replication_controllers=self._list("replicationcontrollers", ReplicationController),
        )

    def _list(self, plural: str, typed: type[Typed], selection: Selection = EVERYTHING) -> tuple[Typed, ...]:
        return tuple(self._typed(item, typed) for item in self.server.list(plural, selection).items)

    def _typed(self, item: dict[str, Any], typed: type[Typed]) -> Typed:
        """The typed view of a stored object, kept while its version is current: most objects rarely change."""
        metadata = item["metadata"]
        known = self._decoded.get(metadata["uid"])
        if known is None or known[0] != metadata["resourceVersion"]:
            known = (metadata["resourceVersion"], msgspec.convert(item, typed))
            if len(self._decoded) >= _DECODED_LIMIT:  # deleted objects are never asked for again
                self._decoded.clear()
            self._decoded[metadata["uid"]] = known
        found: Typed = known[1]
        return found
