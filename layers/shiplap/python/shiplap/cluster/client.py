"""The port ClusterApi over HTTP: only the requests docs/rbac.yaml permits, decoded straight into typed objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from shiplap.cluster.list_pages import list_pages, read_page
from shiplap.cluster.pending_pods import PendingPodReader
from shiplap.cluster.transport import MERGE_PATCH, Transport, error_of
from shiplap.errors import ClusterDenied, ClusterError, ObjectConflict, ObjectNotFound, ResourceVersionGone
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.kubernetes.compact_pods import merged_pods
from shiplap.kubernetes.objects import CustomObject, DaemonSet, Event, Node, ObjectMeta, Pod, RawObject, Taint
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.reading import Page, Reader, Unreadable
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
    binding_body,
    deletion_body,
    event_body,
    eviction_body,
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

if TYPE_CHECKING:
    from shiplap.cluster.named_objects import NamedObjectFinder

_LOG = logging.getLogger(__name__)

_PAGE = 500
_MOST_NAMED = 20
"""Unreadable objects named in one line of the log."""

_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
_NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_NODE_CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
_OVERLAYS = "/apis/karpenter.sh/v1alpha1/nodeoverlays"
_BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
_POD_TEMPLATES = "/api/v1/podtemplates"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STATUS_PATHS = {
    "NodePool": _NODE_POOLS,
    "NodeClaim": _NODE_CLAIMS,
    "EC2NodeClass": _NODE_CLASSES,
    "NodeOverlay": _OVERLAYS,
    "CapacityBuffer": _BUFFERS,
    "ProvisioningRequest": "/apis/autoscaling.x-k8s.io/v1/provisioningrequests",
}
_ESSENTIAL_DEFINITIONS = ("ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh")
_HELD_PATHS = {"Node": _NODES, "NodeClaim": _NODE_CLAIMS}
_WATCHED: dict[str, tuple[str, str]] = {
    "pods": (_PODS, PENDING_PODS),
    "bound": (_PODS, BOUND_PODS),
    "nodes": (_NODES, ""),
    **{path.rpartition("/")[2]: (path, "") for path in (_NODE_POOLS, _NODE_CLAIMS, _NODE_CLASSES, _OVERLAYS, _BUFFERS)},
}

Item = TypeVar(
    "Item",
    Pod,
    Node,
    DaemonSet,
    Event,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSIDriver,
    CSINode,
    VolumeAttachment,
    PodDisruptionBudget,
    Namespace,
    Service,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
    Scalable,
    RolledWorkload,
    Lease,
    CustomObject,
    dict[str, Any],
    "_Definition",
)
Decoded = TypeVar("Decoded")


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _WatchLine(msgspec.Struct, frozen=True):
    """One line of a watch, its object still encoded: bookmarks and errors do not have the shape of the kind."""

    type: str
    object: msgspec.Raw


class _VersionOrError(msgspec.Struct, frozen=True):
    """The content of a bookmark or an error."""

    metadata: _Version = _Version()
    message: str = ""
    code: int = 0


_READ_PODS = Reader(Pod)
_READ_PENDING_PODS = PendingPodReader()
_READ_NODES = Reader(Node)
_READ_DAEMON_SETS = Reader(DaemonSet)
_READ_EVENTS = Reader(Event)
_READ_CLAIMS = Reader(PersistentVolumeClaim)
_READ_VOLUMES = Reader(PersistentVolume)
_READ_CLASSES = Reader(StorageClass)
_READ_ATTACHMENTS = Reader(VolumeAttachment)
_READ_BUDGETS = Reader(PodDisruptionBudget)
_READ_CSI_NODES = Reader(CSINode)
_READ_CSI_DRIVERS = Reader(CSIDriver)
_READ_NAMESPACES = Reader(Namespace)
_READ_SERVICES = Reader(Service)
_READ_REPLICA_SETS = Reader(ReplicaSet)
_READ_STATEFUL_SETS = Reader(StatefulSet)
_READ_REPLICATION_CONTROLLERS = Reader(ReplicationController)
_FRAME = msgspec.json.Decoder(_WatchLine)
_MARKER = msgspec.json.Decoder(_VersionOrError)
_READ_SCALABLES = Reader(Scalable)
_READ_WORKLOADS = Reader(RolledWorkload, "workload", any_size=True)
_READ_LEASES = Reader(Lease)
_READ_CUSTOM_OBJECTS = Reader(CustomObject, any_size=True)
_READ_RAW: Reader[dict[str, Any]] = Reader(dict[str, Any], "object", any_size=True)


class _Definition(msgspec.Struct, frozen=True):
    """A CRD, as far as it tells that it is being deleted."""

    metadata: ObjectMeta = ObjectMeta()


_READ_DEFINITIONS = Reader(_Definition, "CustomResourceDefinition", any_size=True)


class KubernetesClient:
    """ClusterApi of one cluster. Every method raises ClusterError or one of its kinds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._finder: NamedObjectFinder | None = None

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """Nodes, pending and bound pods, DaemonSets and Cluster Autoscaler's scale-ups, listed one after the other.

        Pending pods are listed before bound ones, so that a pod bound in between is seen twice and counts as bound,
        rather than not at all; nodes come first, so that no node appears without the pods bound to it. Storage objects
        are listed only when they matter, claims before the volumes they may just have been bound to; so are namespaces,
        and, when `workloads` are asked for, Services and controllers.
        """
        lists = _ViewLists(self._list)
        nodes = lists.items(_READ_NODES, _NODES)
        pending = lists.page(_READ_PODS, _PODS, PENDING_PODS)
        kept = known(len(nodes), pending.version) if known is not None else None
        bound = lists.items(_READ_PODS, _PODS, BOUND_PODS) if kept is None else kept
        view = ClusterView(
            pods=merged_pods(pending.items, bound),
            nodes=nodes,
            daemon_sets=lists.items(_READ_DAEMON_SETS, "/apis/apps/v1/daemonsets"),
            events=lists.items(_READ_EVENTS, "/api/v1/events", SCALE_UP_EVENTS),
            version=pending.version,
        )
        if needs_storage_objects(view.pods, nodes, leaving):
            view = _with_storage(view, lists)
        if needs_namespaces(view.pods):
            view = msgspec.structs.replace(view, namespaces=lists.items(_READ_NAMESPACES, "/api/v1/namespaces"))
        if workloads:
            view = _with_workloads(view, lists)
        return msgspec.structs.replace(view, unreadable=lists.unreadable())

    def pending_pods(self, most: int = 0) -> tuple[Pod, ...]:
        """Unfinished pods without a node, sorted by namespace and name; the first `most` in one request, if set."""
        if not most:
            return self._list(_READ_PODS, _PODS, PENDING_PODS).items
        body = self._transport.get(_PODS, {"limit": most, "fieldSelector": PENDING_PODS})
        return _page(_READ_PODS, body, _PODS).items

    def pending_pod(self, namespace: str, name: str) -> Pod | None:
        """An unfinished pod without a node, by a list: getting pods would need another permission."""
        path = f"/api/v1/namespaces/{_segment(namespace)}/pods"
        body = self._transport.get(path, {"fieldSelector": pending_pod(name)})
        return next(iter(_page(_READ_PODS, body, path).items), None)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        return self._list(_READ_NODES, _NODES).items

    def node(self, name: str) -> Node:
        """One node. Raises ObjectNotFound."""
        path = f"{_NODES}/{_segment(name)}"
        return _one(_READ_NODES, self._transport.get(path), path)

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods of one node, sorted by namespace and name."""
        return self._list(_READ_PODS, _PODS, pods_on(node)).items

    def list_for_watch(self, kind: str) -> tuple[Listed, str]:
        """Pending pods, all nodes or all manifests of a kind, and the version they stand for.

        Pods have the fields of a `PendingPod` alone.
        """
        if kind == "pods":
            pods = self._list(_READ_PENDING_PODS, _PODS, PENDING_PODS)
            return pods.items, pods.version
        if kind in MANIFEST_KINDS:
            objects = self._list(_READ_CUSTOM_OBJECTS, _WATCHED[kind][0])
            return objects.items, objects.version
        nodes = self._list(_READ_NODES, _NODES)
        return nodes.items, nodes.version

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes as they happen, bookmarks included, for `timeout_s` seconds.

        Raises:
            ResourceVersionGone: the version is too old; list again.
            ClusterUnreachable: the connection broke; watch again from the last version.
        """
        path, selector = _WATCHED[kind]
        query: dict[str, str | int] = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": max(1, int(timeout_s)),
        }
        if selector:
            query["fieldSelector"] = selector
        version = resource_version
        for line in self._transport.lines(path, query, timeout_s):
            event = read_watch_event(kind, line, version)
            version = event.resource_version
            yield event

    def manifest_objects(self) -> ManifestObjects:
        """The objects that may be manifests, as JSON. Raises ObjectNotFound where a CRD is missing."""
        buffers = self._objects_if_defined(_BUFFERS)
        return ManifestObjects(
            node_pools=self._objects(_NODE_POOLS),
            node_classes=self._objects(_NODE_CLASSES),
            node_overlays=self._objects_if_defined(_OVERLAYS),
            capacity_buffers=buffers,
            pod_templates=self._objects(_POD_TEMPLATES) if any(map(_names_pod_template, buffers)) else (),
        )

    def ending_definitions(self) -> tuple[str, ...]:
        """CRDs of NodePools, NodeClaims and EC2NodeClasses that are being deleted."""
        ending = []
        for name in _ESSENTIAL_DEFINITIONS:
            path = f"{_DEFINITIONS}/{_segment(name)}"
            if _one(_READ_DEFINITIONS, self._transport.get(path), path).metadata.deletion_timestamp:
                ending.append(name)
        return tuple(ending)

    def write_status(self, kind: str, namespace: str, name: str, status: RawObject, resource_version: str) -> None:
        """Merge fields into a status. Raises ObjectNotFound, ObjectConflict."""
        within = f"/namespaces/{_segment(namespace)}/" if namespace else "/"
        path = f"{within}".join(_STATUS_PATHS[kind].rsplit("/", 1))
        body = {"metadata": {"resourceVersion": resource_version}, "status": status}
        self._transport.send("PATCH", f"{path}/{_segment(name)}/status", body, MERGE_PATCH)

    def node_claim_objects(self) -> tuple[RawObject, ...]:
        """All NodeClaims, as JSON. Raises ObjectNotFound where the CRD is missing."""
        return self._objects(_NODE_CLAIMS)

    def node_claim_object(self, name: str) -> RawObject | None:
        """A NodeClaim, as JSON; None if there is none."""
        path = f"{_NODE_CLAIMS}/{_segment(name)}"
        try:
            return _one(_READ_RAW, self._transport.get(path), path)
        except ObjectNotFound:
            return None

    def create_node_claim(self, body: RawObject) -> None:
        """Create a NodeClaim with its status, which takes two requests. Raises ObjectConflict."""
        self._transport.send("POST", _NODE_CLAIMS, {key: value for key, value in body.items() if key != "status"})
        path = f"{_NODE_CLAIMS}/{_segment(body['metadata']['name'])}/status"
        self._transport.send("PATCH", path, {"status": body["status"]}, MERGE_PATCH)

    def delete_node_claim(self, item: RawObject) -> None:
        """Delete a NodeClaim. Raises ObjectNotFound, ObjectConflict."""
        metadata = item["metadata"]
        self._transport.send("DELETE", f"{_NODE_CLAIMS}/{_segment(metadata['name'])}", deletion_body(metadata["uid"]))

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
        metadata = {
            "resourceVersion": resource_version,
            "finalizers": list(finalizers),
            "labels": dict(labels),
            "annotations": dict(annotations),
        }
        self._transport.send("PATCH", f"{_HELD_PATHS[kind]}/{_segment(name)}", {"metadata": metadata}, MERGE_PATCH)

    def lease(self, namespace: str, name: str) -> Lease | None:
        """A Lease, None if there is none."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases/{_segment(name)}"
        try:
            return _one(_READ_LEASES, self._transport.get(path), path)
        except ObjectNotFound:
            return None

    def _objects(self, path: str) -> tuple[RawObject, ...]:
        """Objects of a kind, each with its kind and version: items of a list come without."""
        body = self._list(_READ_RAW, path)
        group_version, plural = path.removeprefix("/apis/").removeprefix("/api/").rsplit("/", 1)
        implied = {"apiVersion": group_version, "kind": _KIND_OF_PLURAL[plural]}
        return tuple({**implied, **item} for item in body.items)

    def _objects_if_defined(self, path: str) -> tuple[RawObject, ...]:
        """The same; none where the CRD is not installed."""
        try:
            return self._objects(path)
        except ObjectNotFound:
            return ()

    def bound_pages(self) -> Iterator[tuple[tuple[Pod, ...], str]]:
        """Unfinished pods that have a node, page by page, with their version. Raises ResourceVersionGone half way."""
        for page in self._each_page(_READ_PODS, _PODS, BOUND_PODS):
            yield page.items, page.version

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
        body = registration_patch(labels, annotations, taints, resource_version, owner)
        path = f"{_NODES}/{_segment(name)}"
        return _one(_READ_NODES, self._transport.send("PATCH", path, body, MERGE_PATCH), path)

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`. Raises ObjectNotFound, ObjectConflict when the pod was recreated."""
        self._transport.send("PATCH", f"{_path(pod)}/status", nomination_patch(pod, node), MERGE_PATCH)

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Have a pod deleted. Raises TooManyRequests while a PDB forbids it, ObjectNotFound, ObjectConflict."""
        self._transport.send("POST", f"{_path(pod)}/eviction", eviction_body(pod, grace_s))

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("POST", f"{_path(pod)}/binding", binding_body(pod, node))

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its budgets say. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("DELETE", _path(pod), deletion_body(pod.metadata.uid, grace_s))

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("DELETE", f"{_NODES}/{_segment(node.metadata.name)}", deletion_body(node.metadata.uid))

    def volume_attachments(self) -> tuple[VolumeAttachment, ...]:
        """List the attachments of volumes to nodes, in one request however many nodes are being emptied."""
        return self._list(_READ_ATTACHMENTS, "/apis/storage.k8s.io/v1/volumeattachments").items

    def volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """All PersistentVolumeClaims, sorted by namespace and name."""
        return self._list(_READ_CLAIMS, "/api/v1/persistentvolumeclaims").items

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets, sorted by namespace and name."""
        return self._list(_READ_BUDGETS, "/apis/policy/v1/poddisruptionbudgets").items

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """These workloads, each read for itself; those that do not exist are left out."""
        found = []
        for name in names:
            path = _workload_path(name)
            try:
                found.append(_one(_READ_SCALABLES, self._transport.get(path), path))
            except ObjectNotFound:
                continue  # the buffer says so
        return tuple(found)

    def workload(self, name: ScalableName) -> RolledWorkload | None:
        """A workload; None if there is none."""
        path = _workload_path(name)
        try:
            return _one(_READ_WORKLOADS, self._transport.get(path), path)
        except ObjectNotFound:
            return None

    def annotate_template(
        self, name: ScalableName, annotations: Mapping[str, str], *, uid: str, resource_version: str
    ) -> RolledWorkload:
        """Merge annotations into a pod template. Raises ObjectNotFound, ObjectConflict."""
        path, body = _workload_path(name), template_patch(annotations, uid, resource_version)
        return _one(_READ_WORKLOADS, self._transport.send("PATCH", path, body, MERGE_PATCH), path)

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Merge annotations into those of a pod. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("PATCH", _path(pod), pod_annotations_patch(pod, annotations), MERGE_PATCH)

    def named_objects(self, kind: CustomKind, names: Collection[tuple[str, str]] | None) -> NamedObjects:
        """Objects of these namespaces and names, or all; none where the kind is not defined."""
        if self._finder is None:
            from shiplap.cluster.named_objects import NamedObjectFinder  # noqa: PLC0415 - most clusters need none

            self._finder = NamedObjectFinder(self._transport)
        return self._finder.find(kind, names)

    def publish(self, event: Event) -> None:
        """Write an event; one that said the same before stays as it is."""
        body = event_body(event)
        try:
            self._transport.send("POST", f"/api/v1/namespaces/{_segment(body['metadata']['namespace'])}/events", body)
        except ObjectConflict:
            pass  # the name is a digest of the event: it is there already

    def _list(self, reader: Reader[Item], path: str, selector: str = "") -> Page[Item]:
        """All pages of a list as one, begun again once when the server forgets it half way."""
        try:
            return self._pages(reader, path, selector)
        except ResourceVersionGone:
            return self._pages(reader, path, selector)

    def _pages(self, reader: Reader[Item], path: str, selector: str) -> Page[Item]:
        pages = list(self._each_page(reader, path, selector))
        return Page(
            tuple(item for page in pages for item in page.items),
            pages[-1].version,
            "",
            tuple(each for page in pages for each in page.unreadable),
        )

    def _each_page(self, reader: Reader[Item], path: str, selector: str) -> Iterator[Page[Item]]:
        def read(body: bytes) -> Page[Item]:
            with garbage_collection_paused():
                return _page(reader, body, path)

        query = {"fieldSelector": selector} if selector else {}
        return list_pages(self._transport, read, path, query, most_objects=_PAGE)


class _ViewLists:
    """The lists of one view, and their unreadable objects."""

    def __init__(self, read: Callable[[Reader[Any], str, str], Page[Any]]) -> None:
        self._read = read
        self._unreadable: set[Unreadable] = set()

    def page(self, reader: Reader[Item], path: str, selector: str = "") -> Page[Item]:
        page = self._read(reader, path, selector)
        self._unreadable.update(page.unreadable)
        return page

    def items(self, reader: Reader[Item], path: str, selector: str = "") -> tuple[Item, ...]:
        return self.page(reader, path, selector).items

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Sorted by kind, namespace and name."""
        return tuple(sorted(self._unreadable))


def _with_storage(view: ClusterView, lists: _ViewLists) -> ClusterView:
    return msgspec.structs.replace(
        view,
        persistent_volume_claims=lists.items(_READ_CLAIMS, "/api/v1/persistentvolumeclaims"),
        persistent_volumes=lists.items(_READ_VOLUMES, "/api/v1/persistentvolumes"),
        storage_classes=lists.items(_READ_CLASSES, "/apis/storage.k8s.io/v1/storageclasses"),
        csi_nodes=lists.items(_READ_CSI_NODES, "/apis/storage.k8s.io/v1/csinodes"),
        csi_drivers=_csi_drivers(lists),
    )


def _csi_drivers(lists: _ViewLists) -> tuple[CSIDriver, ...]:
    """All CSIDrivers; none where the role of an earlier release may not list them."""
    try:
        return lists.items(_READ_CSI_DRIVERS, "/apis/storage.k8s.io/v1/csidrivers")
    except ClusterDenied:
        return ()


def _with_workloads(view: ClusterView, lists: _ViewLists) -> ClusterView:
    return msgspec.structs.replace(
        view,
        replication_controllers=lists.items(_READ_REPLICATION_CONTROLLERS, "/api/v1/replicationcontrollers"),
        services=lists.items(_READ_SERVICES, "/api/v1/services"),
        replica_sets=lists.items(_READ_REPLICA_SETS, "/apis/apps/v1/replicasets"),
        stateful_sets=lists.items(_READ_STATEFUL_SETS, "/apis/apps/v1/statefulsets"),
    )


def read_watch_event(kind: str, line: bytes, before: str) -> WatchEvent:
    """A line of a watch; where it does not say its version, the one `before` it stands."""
    what = f"watch of {kind}"
    frame = decode_answer(_FRAME, line, what)
    if frame.type == "ERROR":
        marker = decode_answer(_MARKER, frame.object, what)
        raise error_of(marker.code, f"{what}: {marker.message}")
    if frame.type == "BOOKMARK":
        version = decode_answer(_MARKER, frame.object, what).metadata.resource_version
        metadata = ObjectMeta(resource_version=version)
        return WatchEvent(frame.type, _WATCHED_TYPES.get(kind, CustomObject)(metadata), version)
    return _change_of(kind, frame, before)


_WATCHED_TYPES: dict[str, type[Pod | Node]] = {"pods": Pod, "bound": Pod, "nodes": Node}
_WATCH_READERS: dict[str, Reader[Any]] = {"pods": _READ_PENDING_PODS, "bound": _READ_PODS, "nodes": _READ_NODES}


def _change_of(kind: str, frame: _WatchLine, before: str) -> WatchEvent:
    """A change; an unreadable object without a stand-in counts as deleted."""
    read = _WATCH_READERS.get(kind, _READ_CUSTOM_OBJECTS).one(frame.object)
    about = read.unreadable
    if about is not None:
        _LOG.warning("set aside: %s", about.text)
    if read.item is not None:
        version = read.item.metadata.resource_version or before
        return WatchEvent(frame.type, read.item, version, about.text if about is not None else "")
    identity = ObjectMeta() if about is None else ObjectMeta(name=about.name, namespace=about.namespace, uid=about.uid)
    gone = _WATCHED_TYPES.get(kind, CustomObject)(identity)
    return WatchEvent("DELETED", gone, _version_of(frame.object) or before, about.text if about else "")


_KIND_OF_PLURAL = {
    "nodepools": "NodePool",
    "nodeclaims": "NodeClaim",
    "ec2nodeclasses": "EC2NodeClass",
    "nodeoverlays": "NodeOverlay",
    "capacitybuffers": "CapacityBuffer",
    "podtemplates": "PodTemplate",
}


def _names_pod_template(buffer: RawObject) -> bool:
    spec = buffer.get("spec")
    return isinstance(spec, Mapping) and spec.get("podTemplateRef") is not None


def _version_of(item: msgspec.Raw) -> str:
    try:
        return _MARKER.decode(item).metadata.resource_version
    except msgspec.DecodeError:
        return ""


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{_segment(pod.metadata.namespace)}/pods/{_segment(pod.metadata.name)}"


def _workload_path(name: ScalableName) -> str:
    kind = f"/apis/apps/v1/namespaces/{_segment(name.namespace)}/{SCALABLE_PLURALS[name.kind]}"
    return f"{kind}/{_segment(name.name)}"


def _segment(name: str) -> str:
    """A name as one segment of a path: it may come from a message or an object, and must not lead elsewhere."""
    return quote(name, safe="")


def _page(reader: Reader[Item], body: bytes, what: str) -> Page[Item]:
    page = read_page(reader, body, what)
    if page.unreadable:
        _LOG.warning("%d objects set aside: %s", len(page.unreadable), _texts(page.unreadable))
    return page


def _one(reader: Reader[Item], body: bytes, what: str) -> Item:
    """One object that was asked for by its name, or its stand-in."""
    read = reader.one(body)
    if read.item is None:
        reason = read.unreadable.text if read.unreadable is not None else ""
        raise ClusterError(f"{what}: the answer is not what an API server sends: {reason}")
    if read.unreadable is not None:
        _LOG.warning("set aside: %s", read.unreadable.text)
    return read.item


def _texts(unreadable: Sequence[Unreadable]) -> str:
    return "; ".join(each.text for each in unreadable[:_MOST_NAMED])


def decode_answer(decoder: msgspec.json.Decoder[Decoded], body: bytes | msgspec.Raw, what: str) -> Decoded:
    """Read the answer to `what`. Raises ClusterError: it is not what an API server sends."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ClusterError(f"{what}: the answer is not what an API server sends: {error}") from error
