"""ClusterApi in memory: the port over an API server's store, without HTTP, with faults before and after each effect.

A watch yields all changes so far and ends: in a test or a simulation nothing changes during a read, and time moves only
on request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes.compact_pods import merged_pods
from shiplap.kubernetes.objects import CustomObject, DaemonSet, Event, Node, ObjectMeta, Pod, RawObject, Taint
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.related_objects import (
    SCALABLE_PLURALS,
    CSIDriver,
    CSINode,
    Lease,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicaSet,
    ReplicationController,
    RolledWorkload,
    Scalable,
    ScalableName,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
    needs_namespaces,
    needs_storage_objects,
)
from shiplap.kubernetes.request_bodies import (
    BOUND_PODS,
    PENDING_PODS,
    SCALE_UP_EVENTS,
    event_body,
    nomination_patch,
    pending_pod,
    pod_annotations_patch,
    pods_on,
    registration_patch,
    template_patch,
)
from shiplap.ports import (
    MANIFEST_KINDS,
    CustomKind,
    KnownPods,
    Listed,
    ManifestObjects,
    NamedObjects,
    WatchEvent,
)
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.api_server.api_resources import PLURALS, resource_of
from shiplap_lab.api_server.changelog import Change
from shiplap_lab.api_server.mirror import Mirror
from shiplap_lab.api_server.server import EVERYTHING, ApiServer, ListOptions
from shiplap_lab.fakes.faults import Faults

__all__ = ["ApiServer", "FakeCluster", "ListOptions"]

Typed = TypeVar(
    "Typed",
    bound=Pod
    | Node
    | DaemonSet
    | Event
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSIDriver
    | CSINode
    | VolumeAttachment
    | PodDisruptionBudget
    | Namespace
    | Service
    | ReplicaSet
    | StatefulSet
    | ReplicationController
    | Scalable
    | CustomObject,
)

_PENDING = ListOptions(field_selector=PENDING_PODS)
_BOUND = ListOptions(field_selector=BOUND_PODS)
_SCALE_UPS = ListOptions(field_selector=SCALE_UP_EVENTS)
_MIRRORED = (EVERYTHING, _PENDING, _BOUND, _SCALE_UPS)
"""Lists that come again and again; a mirror is kept of each."""

_PAGE = 500
WATCHED: dict[str, tuple[str, type[Pod | Node | CustomObject], ListOptions]] = {
    "pods": ("pods", Pod, _PENDING),
    "bound": ("pods", Pod, _BOUND),
    "nodes": ("nodes", Node, EVERYTHING),
    **{kind: (kind, CustomObject, EVERYTHING) for kind in MANIFEST_KINDS},
}


class FakeCluster:
    """The port ClusterApi over `server`. Effects are named `cluster.<method>` for `faults`.

    `on_node` is called with the id of the instance of each Node that an answer contains.
    """

    def __init__(self, server: ApiServer, *, faults: Faults | None = None) -> None:
        self.server = server
        self._faults = faults or Faults()
        self._mirrors: dict[tuple[str, ListOptions], Mirror[Any]] = {}
        self._last: tuple[tuple[str, frozenset[str], bool], ClusterView] | None = None
        self.on_node: list[Callable[[str], object]] = []
        self._answered: object = None

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """Everything a scheduling decision reads, at one moment."""
        with self._faults.effect("cluster.view"):
            nodes, version = self._list("nodes", Node), self.server.resource_version
            told = known(len(nodes), version) if known is not None else None
            if told is not None:
                return self._seen(told, leaving, workloads=workloads)
            asked = (version, frozenset(leaving), workloads)
            if self._last is None or self._last[0] != asked:  # what has not changed is the same view again
                self._last = asked, self._seen(self._list("pods", Pod, _BOUND), leaving, workloads=workloads)
            return self._last[1]

    def _seen(self, bound: Sequence[Pod], leaving: Collection[str], *, workloads: bool) -> ClusterView:
        view = ClusterView(
            pods=merged_pods(self._list("pods", Pod, _PENDING), bound),
            nodes=self._list("nodes", Node),
            daemon_sets=self._list("daemonsets", DaemonSet),
            events=self._list("events", Event, _SCALE_UPS),
            version=self.server.resource_version,
        )
        if needs_storage_objects(view.pods, view.nodes, leaving):
            view = self._with_storage(view)
        if needs_namespaces(view.pods):
            view = msgspec.structs.replace(view, namespaces=self._list("namespaces", Namespace))
        return self._with_workloads(view) if workloads else view

    def pending_pods(self, most: int = 0) -> tuple[Pod, ...]:
        """Unfinished pods without a node, sorted by namespace and name; the first `most`, if set."""
        with self._faults.effect("cluster.pending_pods"):
            return self._list("pods", Pod, _PENDING)[: most or None]

    def pending_pod(self, namespace: str, name: str) -> Pod | None:
        """An unfinished pod without a node."""
        with self._faults.effect("cluster.pending_pod"):
            found = self._list("pods", Pod, ListOptions(namespace, field_selector=pending_pod(name)))
            return next(iter(found), None)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        with self._faults.effect("cluster.nodes"):
            return self._list("nodes", Node)

    def node(self, name: str) -> Node:
        """One node. Raises ObjectNotFound."""
        with self._faults.effect("cluster.node"):
            found = self.server.typed(self.server.get("nodes", name), Node)
            self._answer((found,))
            return found

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods of one node, sorted by namespace and name."""
        with self._faults.effect("cluster.pods_on"):
            return self._list("pods", Pod, ListOptions(field_selector=pods_on(node)))

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:  # noqa: ARG002 - time does not pass
        """Changes since a version, and a bookmark if time went on after them. Raises ResourceVersionGone."""
        self._faults.before("cluster.watch")
        plural, typed, selection = WATCHED[kind]
        changes, newest = self.server.changes(plural, resource_version, selection)
        seen = resource_version
        for change in changes:
            event = self._event(change, typed)
            seen = event.resource_version
            yield event
        if seen != newest:
            yield WatchEvent("BOOKMARK", typed(metadata=ObjectMeta(resource_version=newest)), newest)
        self._faults.after("cluster.watch")

    def _event(self, change: Change, typed: type[Any]) -> WatchEvent:
        """A change as the watcher is told it."""
        item = msgspec.convert(change.object, typed)
        if isinstance(item, Node):
            self._answer((item,))
        return WatchEvent(change.type, item, str(change.resource_version))

    def bound_pages(self) -> Iterator[tuple[tuple[Pod, ...], str]]:
        """Unfinished pods that have a node, page by page, with their version."""
        with self._faults.effect("cluster.bound_pages"):
            version, pods = self.server.resource_version, self._list("pods", Pod, _BOUND)
        for start in range(0, max(len(pods), 1), _PAGE):
            yield pods[start : start + _PAGE], version

    def list_for_watch(self, kind: str) -> tuple[Listed, str]:
        """Pending pods, all nodes or all manifests of a kind, and the version they stand for."""
        with self._faults.effect("cluster.list_for_watch"):
            version = self.server.resource_version
            if kind == "pods":
                return self._list(kind, Pod, _PENDING), version
            if kind in MANIFEST_KINDS:
                return self._list(kind, CustomObject), version
            return self._list(kind, Node), version

    def manifest_objects(self) -> ManifestObjects:
        """The objects that may be manifests, as JSON."""
        with self._faults.effect("cluster.manifest_objects"):
            buffers = self._objects("capacitybuffers")
            named = any(buffer["spec"].get("podTemplateRef") is not None for buffer in buffers)
            return ManifestObjects(
                node_pools=self._objects("nodepools"),
                node_classes=self._objects("ec2nodeclasses"),
                node_overlays=self._objects("nodeoverlays"),
                capacity_buffers=buffers,
                pod_templates=self._objects("podtemplates") if named else (),
            )

    def ending_definitions(self) -> tuple[str, ...]:
        """CRDs that are being deleted."""
        with self._faults.effect("cluster.ending_definitions"):
            stored = self.server.list("customresourcedefinitions", EVERYTHING).items
            return tuple(item["metadata"]["name"] for item in stored if item["metadata"].get("deletionTimestamp"))

    def write_status(self, kind: str, namespace: str, name: str, status: RawObject, resource_version: str) -> None:
        """Merge fields into a status. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.write_status"):
            patch = {"metadata": {"resourceVersion": resource_version}, "status": dict(status)}
            self.server.patch(PLURALS[kind], name, patch, namespace, subresource="status")

    def node_claim_objects(self) -> tuple[RawObject, ...]:
        """All NodeClaims, as JSON."""
        with self._faults.effect("cluster.node_claim_objects"):
            return self._objects("nodeclaims")

    def node_claim_object(self, name: str) -> RawObject | None:
        """A NodeClaim, as JSON; None if there is none."""
        with self._faults.effect("cluster.node_claim_object"):
            return next((item for item in self._objects("nodeclaims") if item["metadata"]["name"] == name), None)

    def create_node_claim(self, body: RawObject) -> None:
        """Create a NodeClaim with its status. Raises ObjectConflict."""
        with self._faults.effect("cluster.create_node_claim"):
            self.server.create("nodeclaims", dict(body))

    def delete_node_claim(self, item: RawObject) -> None:
        """Delete a NodeClaim. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.delete_node_claim"):
            metadata = item["metadata"]
            self.server.delete("nodeclaims", metadata["name"], uid=metadata["uid"])

    def set_finalizers(
        self,
        kind: str,
        name: str,
        finalizers: Sequence[str],
        *,
        resource_version: str,
        labels: Mapping[str, str] = MappingProxyType({}),
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Replace finalizers of a Node or NodeClaim, merge the rest. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.set_finalizers"):
            metadata = {
                "resourceVersion": resource_version,
                "finalizers": list(finalizers),
                "labels": dict(labels),
                "annotations": dict(annotations),
            }
            self.server.patch(PLURALS[kind], name, {"metadata": metadata})

    def lease(self, namespace: str, name: str) -> Lease | None:
        """A Lease, None if there is none."""
        with self._faults.effect("cluster.lease"):
            try:
                return msgspec.convert(self.server.get("leases", name, namespace), Lease)
            except ObjectNotFound:
                return None

    def _objects(self, plural: str) -> tuple[RawObject, ...]:
        return tuple(self.server.list(plural, EVERYTHING).items)

    def patch_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str],
        taints: Sequence[Taint],
        resource_version: str,
        owner: RawObject | None = None,
    ) -> Node:
        """Merge labels and annotations, replace taints. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.patch_node"):
            patch = registration_patch(labels, annotations, taints, resource_version, owner)
            return self.server.typed(self.server.patch("nodes", name, patch), Node)

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`. Raises ObjectNotFound, ObjectConflict when the pod was recreated."""
        with self._faults.effect("cluster.nominate"):
            metadata = pod.metadata
            patch = nomination_patch(pod, node)
            self.server.patch("pods", metadata.name, patch, metadata.namespace, subresource="status")

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Have a pod deleted. Raises TooManyRequests while a PDB forbids it, ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.evict"):
            self._end(pod, grace_s, forced=False)

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.bind"):
            metadata = pod.metadata
            self.server.bind(metadata.name, node, metadata.namespace, uid=metadata.uid)

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its budgets say. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.delete_pod"):
            self._end(pod, grace_s, forced=True)

    def _end(self, pod: Pod, grace_s: int | None, *, forced: bool) -> None:
        metadata = pod.metadata
        if forced:
            self.server.delete("pods", metadata.name, metadata.namespace, grace_s=grace_s, uid=metadata.uid)
        else:
            self.server.evict(metadata.name, metadata.namespace, grace_s=grace_s, uid=metadata.uid)

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.delete_node"):
            self.server.delete("nodes", node.metadata.name, uid=node.metadata.uid)

    def volume_attachments(self) -> tuple[VolumeAttachment, ...]:
        """Return the attachments of volumes to nodes."""
        with self._faults.effect("cluster.volume_attachments"):
            return self._list("volumeattachments", VolumeAttachment)

    def volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """All PersistentVolumeClaims, sorted by namespace and name."""
        with self._faults.effect("cluster.volume_claims"):
            return self._list("persistentvolumeclaims", PersistentVolumeClaim)

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

    def workload(self, name: ScalableName) -> RolledWorkload | None:
        """A workload; None if there is none."""
        with self._faults.effect("cluster.workload"):
            try:
                item = self.server.get(SCALABLE_PLURALS[name.kind], name.name, name.namespace)
            except ObjectNotFound:
                return None
            return msgspec.convert(item, RolledWorkload)

    def annotate_template(
        self, name: ScalableName, annotations: Mapping[str, str], *, uid: str, resource_version: str
    ) -> RolledWorkload:
        """Merge annotations into a pod template. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.annotate_template"):
            patch = template_patch(annotations, uid, resource_version)
            item = self.server.patch(SCALABLE_PLURALS[name.kind], name.name, patch, name.namespace)
            return msgspec.convert(item, RolledWorkload)

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Merge annotations into those of a pod. Raises ObjectNotFound, ObjectConflict."""
        with self._faults.effect("cluster.annotate_pod"):
            patch = pod_annotations_patch(pod, annotations)
            self.server.patch("pods", pod.metadata.name, patch, pod.metadata.namespace)

    def named_objects(self, kind: CustomKind, names: Collection[tuple[str, str]] | None) -> NamedObjects:
        """Objects of these namespaces and names, or all, read as an answer is."""
        with self._faults.effect("cluster.named_objects"):
            resource = next((each for v in kind.versions if (each := resource_of(kind.group, v, kind.plural))), None)
            if resource is None or resource.key in self.server.undefined:
                return NamedObjects()
            found = [
                kind.reader.one(msgspec.json.encode(item))
                for item in self._objects(resource.key)
                if names is None or (item["metadata"]["namespace"], item["metadata"]["name"]) in names
            ]
        return NamedObjects(
            tuple(read.item for read in found if read.item is not None),
            tuple(read.unreadable for read in found if read.unreadable is not None),
        )

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
            csi_drivers=self._list("csidrivers", CSIDriver),
        )

    def _with_workloads(self, view: ClusterView) -> ClusterView:
        return msgspec.structs.replace(
            view,
            services=self._list("services", Service),
            replica_sets=self._list("replicasets", ReplicaSet),
            stateful_sets=self._list("statefulsets", StatefulSet),
            replication_controllers=self._list("replicationcontrollers", ReplicationController),
        )

    def _list(self, plural: str, typed: type[Typed], selection: ListOptions = EVERYTHING) -> tuple[Typed, ...]:
        if selection not in _MIRRORED:
            return tuple(self.server.typed(item, typed) for item in self.server.list(plural, selection).items)
        mirror: Mirror[Typed] | None = self._mirrors.get((plural, selection))
        if mirror is None:
            mirror = self._mirrors[plural, selection] = Mirror(self.server, plural, typed, selection)
        items = mirror.items()
        if plural == "nodes":
            self._answer(cast("Sequence[Node]", items))
        return items

    def _answer(self, nodes: Sequence[Node]) -> None:
        """Tell who listens of the Nodes in an answer; the same answer again tells nothing."""
        if self.on_node and nodes is not self._answered:
            self._answered = nodes
            for node in nodes:
                for listener in self.on_node:
                    listener(node.spec.provider_id.rpartition("/")[2])
