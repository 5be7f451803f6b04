"""The port ClusterApi over HTTP: only the requests docs/rbac.yaml permits, decoded straight into typed objects."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec

from shiplap.cluster.transport import MERGE_PATCH, Transport, error_of
from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound, ResourceVersionGone
from shiplap.kubernetes.disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.lean import together
from shiplap.kubernetes.objects import DaemonSet, Event, Node, ObjectMeta, Pod, Taint
from shiplap.kubernetes.volumes import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    storage_matters,
)
from shiplap.kubernetes.wire import (
    BOUND_PODS,
    PENDING_PODS,
    SCALE_UP_EVENTS,
    binding_body,
    deletion_body,
    event_body,
    eviction_body,
    nomination_patch,
    pending_pod,
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
from shiplap.ports import KnownPods, WatchEvent
from shiplap.scheduling.snapshot import ClusterView

_PAGE = 500
_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_WATCHED: dict[str, tuple[str, str]] = {
    "pods": (_PODS, PENDING_PODS),
    "bound": (_PODS, BOUND_PODS),
    "nodes": (_NODES, ""),
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
    CSINode,
    VolumeAttachment,
    PodDisruptionBudget,
    Namespace,
    Service,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
)
Decoded = TypeVar("Decoded")


class _ListMeta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str = ""
    token: str = ""


class _Page(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a list; Go encodes an empty list as null."""

    metadata: _ListMeta = _ListMeta()
    items: tuple[Item, ...] | None = None


class _Frame(msgspec.Struct, frozen=True):
    """One line of a watch, its object still encoded: bookmarks and errors do not have the shape of the kind."""

    type: str
    object: msgspec.Raw


class _Marker(msgspec.Struct, frozen=True):
    """What a bookmark or an error carries."""

    metadata: _ListMeta = _ListMeta()
    message: str = ""
    code: int = 0


_PODS_PAGE = msgspec.json.Decoder(_Page[Pod])
_NODES_PAGE = msgspec.json.Decoder(_Page[Node])
_DAEMON_SETS_PAGE = msgspec.json.Decoder(_Page[DaemonSet])
_EVENTS_PAGE = msgspec.json.Decoder(_Page[Event])
_CLAIMS_PAGE = msgspec.json.Decoder(_Page[PersistentVolumeClaim])
_VOLUMES_PAGE = msgspec.json.Decoder(_Page[PersistentVolume])
_CLASSES_PAGE = msgspec.json.Decoder(_Page[StorageClass])
_ATTACHMENTS_PAGE = msgspec.json.Decoder(_Page[VolumeAttachment])
_BUDGETS_PAGE = msgspec.json.Decoder(_Page[PodDisruptionBudget])
_CSI_NODES_PAGE = msgspec.json.Decoder(_Page[CSINode])
_NAMESPACES_PAGE = msgspec.json.Decoder(_Page[Namespace])
_SERVICES_PAGE = msgspec.json.Decoder(_Page[Service])
_REPLICA_SETS_PAGE = msgspec.json.Decoder(_Page[ReplicaSet])
_STATEFUL_SETS_PAGE = msgspec.json.Decoder(_Page[StatefulSet])
_REPLICATION_CONTROLLERS_PAGE = msgspec.json.Decoder(_Page[ReplicationController])
_FRAME = msgspec.json.Decoder(_Frame)
_MARKER = msgspec.json.Decoder(_Marker)
_POD = msgspec.json.Decoder(Pod)
_NODE = msgspec.json.Decoder(Node)
_SCALABLE = msgspec.json.Decoder(Scalable)


class KubernetesClient:
    """ClusterApi of one cluster. Every method raises ClusterError or one of its kinds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """Nodes, pending and bound pods, DaemonSets and Cluster Autoscaler's scale-ups, listed one after the other.

        Pending pods are listed before bound ones, so that a pod bound in between is seen twice and counts as bound,
        rather than not at all; nodes come first, so that no node appears without the pods bound to it. Storage objects
        are listed only when they matter, claims before the volumes they may just have been bound to; so are namespaces,
        and, when `workloads` are asked for, Services and controllers.
        """
        nodes = self.nodes()
        pending, version = self._pods(PENDING_PODS)
        told = known(len(nodes), version) if known is not None else None
        bound = self._pods(BOUND_PODS)[0] if told is None else told
        daemon_sets, _ = self._list(_DAEMON_SETS_PAGE, "/apis/apps/v1/daemonsets", "")
        events, _ = self._list(_EVENTS_PAGE, "/api/v1/events", SCALE_UP_EVENTS)
        view = ClusterView(
            pods=together(pending, bound),
            nodes=nodes,
            daemon_sets=daemon_sets,
            events=events,
            version=version,
        )
        if storage_matters(view.pods, nodes, leaving):
            view = self._with_storage(view)
        if namespaces_matter(view.pods):
            view = msgspec.structs.replace(view, namespaces=self._list(_NAMESPACES_PAGE, "/api/v1/namespaces", "")[0])
        return self._with_workloads(view) if workloads else view

    def pending_pods(self, most: int = 0) -> tuple[Pod, ...]:
        """Unfinished pods without a node, sorted by namespace and name; the first `most` in one request, if set."""
        if not most:
            return self._pods(PENDING_PODS)[0]
        body = self._transport.get(_PODS, {"limit": most, "fieldSelector": PENDING_PODS})
        return _decode(_PODS_PAGE, body, _PODS).items or ()

    def pending_pod(self, namespace: str, name: str) -> Pod | None:
        """An unfinished pod without a node, by a list: getting pods would need another permission."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        body = self._transport.get(path, {"fieldSelector": pending_pod(name)})
        return next(iter(_decode(_PODS_PAGE, body, path).items or ()), None)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        return self._list(_NODES_PAGE, _NODES, "")[0]

    def node(self, name: str) -> Node:
        """One node. Raises ObjectNotFound."""
        path = f"{_NODES}/{name}"
        return _decode(_NODE, self._transport.get(path), path)

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods of one node, sorted by namespace and name."""
        return self._pods(pods_on(node))[0]

    def list_for_watch(self, kind: str) -> tuple[tuple[Pod, ...] | tuple[Node, ...], str]:
        """Pending pods or all nodes, and the version they stand for."""
        return self._pods(PENDING_PODS) if kind == "pods" else self._list(_NODES_PAGE, _NODES, "")

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
        for line in self._transport.lines(path, query, timeout_s):
            yield _watch_event(kind, line)

    def bound_pages(self) -> Iterator[tuple[tuple[Pod, ...], str]]:
        """Unfinished pods that have a node, page by page, with their version. Raises ResourceVersionGone half way."""
        return self._each_page(_PODS_PAGE, _PODS, BOUND_PODS)

    def register_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str],
        taints: Sequence[Taint],
        resource_version: str,
    ) -> Node:
        """Merge labels and annotations, replace taints. Raises ObjectNotFound, ObjectConflict."""
        body = registration_patch(labels, annotations, taints, resource_version)
        path = f"{_NODES}/{name}"
        return _decode(_NODE, self._transport.send("PATCH", path, body, MERGE_PATCH), path)

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`. Raises ObjectNotFound, ObjectConflict when the pod was recreated."""
        metadata = pod.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/status"
        self._transport.send("PATCH", path, nomination_patch(pod, node), MERGE_PATCH)

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Have a pod deleted. Raises TooManyRequests while a PDB forbids it, ObjectNotFound, ObjectConflict."""
        metadata = pod.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        self._transport.send("POST", path, eviction_body(pod, grace_s))

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("POST", f"{_path(pod)}/binding", binding_body(pod, node))

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its budgets say. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("DELETE", _path(pod), deletion_body(pod.metadata.uid, grace_s))

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict."""
        self._transport.send("DELETE", f"{_NODES}/{node.metadata.name}", deletion_body(node.metadata.uid))

    def volume_attachments(self) -> tuple[VolumeAttachment, ...]:
        """Which volumes are attached to which nodes, in one list however many nodes are being emptied."""
        return self._list(_ATTACHMENTS_PAGE, "/apis/storage.k8s.io/v1/volumeattachments", "")[0]

    def volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """All PersistentVolumeClaims, sorted by namespace and name."""
        return self._list(_CLAIMS_PAGE, "/api/v1/persistentvolumeclaims", "")[0]

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets, sorted by namespace and name."""
        return self._list(_BUDGETS_PAGE, "/apis/policy/v1/poddisruptionbudgets", "")[0]

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """These workloads, each read for itself; those that do not exist are left out."""
        found = []
        for name in names:
            path = f"/apis/apps/v1/namespaces/{name.namespace}/{SCALABLE_PLURALS[name.kind]}/{name.name}"
            try:
                found.append(_decode(_SCALABLE, self._transport.get(path), path))
            except ObjectNotFound:
                continue  # the buffer says so
        return tuple(found)

    def publish(self, event: Event) -> None:
        """Write an event; one that said the same before stays as it is."""
        body = event_body(event)
        try:
            self._transport.send("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/events", body)
        except ObjectConflict:
            pass  # the name is a digest of the event: it is there already

    def _with_storage(self, view: ClusterView) -> ClusterView:
        return msgspec.structs.replace(
            view,
            persistent_volume_claims=self._list(_CLAIMS_PAGE, "/api/v1/persistentvolumeclaims", "")[0],
            persistent_volumes=self._list(_VOLUMES_PAGE, "/api/v1/persistentvolumes", "")[0],
            storage_classes=self._list(_CLASSES_PAGE, "/apis/storage.k8s.io/v1/storageclasses", "")[0],
            csi_nodes=self._list(_CSI_NODES_PAGE, "/apis/storage.k8s.io/v1/csinodes", "")[0],
        )

    def _with_workloads(self, view: ClusterView) -> ClusterView:
        replication_controllers, _ = self._list(_REPLICATION_CONTROLLERS_PAGE, "/api/v1/replicationcontrollers", "")
        return msgspec.structs.replace(
            view,
            services=self._list(_SERVICES_PAGE, "/api/v1/services", "")[0],
            replica_sets=self._list(_REPLICA_SETS_PAGE, "/apis/apps/v1/replicasets", "")[0],
            stateful_sets=self._list(_STATEFUL_SETS_PAGE, "/apis/apps/v1/statefulsets", "")[0],
            replication_controllers=replication_controllers,
        )

    def _pods(self, selector: str) -> tuple[tuple[Pod, ...], str]:
        return self._list(_PODS_PAGE, _PODS, selector)

    def _list(
        self, decoder: msgspec.json.Decoder[_Page[Item]], path: str, selector: str
    ) -> tuple[tuple[Item, ...], str]:
        """All pages of a list, begun anew once when the server forgets it half way."""
        try:
            return self._pages(decoder, path, selector)
        except ResourceVersionGone:
            return self._pages(decoder, path, selector)

    def _pages(
        self, decoder: msgspec.json.Decoder[_Page[Item]], path: str, selector: str
    ) -> tuple[tuple[Item, ...], str]:
        items: list[Item] = []
        version = ""
        for page, version in self._each_page(decoder, path, selector):  # noqa: B007 - the version of the last page
            items.extend(page)
        return tuple(items), version

    def _each_page(
        self, decoder: msgspec.json.Decoder[_Page[Item]], path: str, selector: str
    ) -> Iterator[tuple[tuple[Item, ...], str]]:
        query: dict[str, str | int] = {"limit": _PAGE}
        if selector:
            query["fieldSelector"] = selector
        token: str | None = None
        while token != "":
            body = self._transport.get(path, query)
            with _garbage_collection_paused():
                page = _decode(decoder, body, path)
            yield page.items or (), page.metadata.resource_version
            token = query["continue"] = page.metadata.token


def _watch_event(kind: str, line: bytes) -> WatchEvent:
    what = f"watch of {kind}"
    frame = _decode(_FRAME, line, what)
    if frame.type == "ERROR":
        marker = _decode(_MARKER, frame.object, what)
        raise error_of(marker.code, f"{what}: {marker.message}")
    if frame.type == "BOOKMARK":
        version = _decode(_MARKER, frame.object, what).metadata.resource_version
        metadata = ObjectMeta(resource_version=version)
        return WatchEvent(frame.type, Node(metadata) if kind == "nodes" else Pod(metadata), version)
    item = _decode(_NODE, frame.object, what) if kind == "nodes" else _decode(_POD, frame.object, what)
    return WatchEvent(frame.type, item, item.metadata.resource_version)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def _decode(decoder: msgspec.json.Decoder[Decoded], body: bytes | msgspec.Raw, what: str) -> Decoded:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"{what}: the answer is not what an API server sends: {error}") from error


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Decoding allocates without making garbage; the collector would look through all of it again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
