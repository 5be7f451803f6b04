"""Lists a cluster with the caller's permissions: each kind on its own, and kinds that were not permitted are named.

A function that may not read something stops. A person is better served by an answer that says which inputs are
missing. Lists are served from the API server's watch cache (`resourceVersion=0`), which costs the cluster next to
nothing. They may be seconds old, which is good enough because nothing is changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from shiplap.cluster.list_pages import list_pages, read_page
from shiplap.cluster.transport import Transport
from shiplap.errors import (
    ClusterDenied,
    ClusterError,
    ClusterUnreachable,
    InvalidInput,
    ObjectNotFound,
    ResourceVersionGone,
)
from shiplap.kubernetes.objects import DaemonSet, Event, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.reading import Reader, Unreadable
from shiplap.kubernetes.related_objects import (
    CSIDriver,
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicaSet,
    ReplicationController,
    Scalable,
    Service,
    StatefulSet,
    StorageClass,
    needs_namespaces,
    needs_storage_objects,
)
from shiplap.kubernetes.request_bodies import SCALE_UP_EVENTS
from shiplap.manifests.files.documents import Document
from shiplap.policies.policy_settings import ChosenPolicy
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_cli.inputs.cluster_files import ClusterState, state_of
from shiplap_cli.output import Printed, progress
from shiplap_cli.policy_views import FeatureObjects, OptionalKind, wanted_by_features

if TYPE_CHECKING:
    from shiplap.cluster.kubeconfig import Access

_PAGE = 5000
"""Objects a page holds at most, where the server does not answer from its cache in one piece."""

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class MissingPermission(Printed, frozen=True, order=True):
    """A kind that could not be listed. `namespace` is the only one that was listed, empty when none was.

    `consequence` says in which way the answer may be wrong.
    """

    resource: str
    group: str
    namespace: str
    consequence: str
    verb: str = "list"

    @property
    def text(self) -> str:
        """One line for people, with the right that is missing."""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        seen = f" beyond namespace {self.namespace}" if self.namespace else ""
        return f"not seen{seen}: {kind} (the right to {self.verb} {kind} is missing): {self.consequence}"


class ListedResource(msgspec.Struct, frozen=True):
    """A list, by its field of `ClusterView`: what its items are read as, and what follows where it is not permitted.

    `object_kind` is that of items which are read as they are.
    """

    field: str
    group: str
    version: str
    typed: Any
    consequence: str
    selector: str = ""
    namespaced: bool = True
    object_kind: str = ""

    @property
    def plural(self) -> str:
        """The name in paths."""
        return self.field.replace("_", "")

    def path(self, namespace: str = "") -> str:
        """The path of the whole cluster's list, or of one namespace's."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{root}{within}/{self.plural}"


_PODS = ListedResource(
    "pods", "", "v1", Pod, "pods that are not seen are not planned for, and take no room on nodes", UNFINISHED
)
_NODES = ListedResource(
    "nodes", "", "v1", Node, "no room on nodes that exist is known, so new ones are planned", namespaced=False
)
_DAEMON_SETS = ListedResource("daemon_sets", "apps", "v1", DaemonSet, "no room is kept for them on new nodes")
_EVENTS = ListedResource(
    "events",
    "",
    "v1",
    Event,
    "pods that Cluster Autoscaler has just scaled up for are planned for, too",
    SCALE_UP_EVENTS,
)
_BUDGETS = ListedResource(
    "pod_disruption_budgets",
    "policy",
    "v1",
    PodDisruptionBudget,
    "nodes whose pods they protect may look as if they could go",
)
_ALWAYS = (_PODS, _NODES, _DAEMON_SETS, _EVENTS, _BUDGETS)

_PODS_IGNORED = "pods with volumes of them are left alone"
_STORAGE = (
    ListedResource("persistent_volume_claims", "", "v1", PersistentVolumeClaim, _PODS_IGNORED),
    ListedResource("persistent_volumes", "", "v1", PersistentVolume, _PODS_IGNORED, namespaced=False),
    ListedResource("storage_classes", "storage.k8s.io", "v1", StorageClass, _PODS_IGNORED, namespaced=False),
    ListedResource(
        "csi_nodes", "storage.k8s.io", "v1", CSINode, "the volumes a node takes are not counted", namespaced=False
    ),
    ListedResource(
        "csi_drivers", "storage.k8s.io", "v1", CSIDriver, "nodes that lack a driver take its volumes", namespaced=False
    ),
)
_NAMESPACES = ListedResource(
    "namespaces", "", "v1", Namespace, "affinity that selects namespaces by labels finds none", namespaced=False
)
_NO_SPREAD = "default spread constraints do not reach their pods"
_WORKLOADS = (
    ListedResource("services", "", "v1", Service, _NO_SPREAD),
    ListedResource("replication_controllers", "", "v1", ReplicationController, _NO_SPREAD),
    ListedResource("replica_sets", "apps", "v1", ReplicaSet, _NO_SPREAD),
    ListedResource("stateful_sets", "apps", "v1", StatefulSet, _NO_SPREAD),
)
_NO_ROOM_KEPT = "CapacityBuffers keep no room for them"
_SCALABLES = (
    ListedResource("deployments", "apps", "v1", Scalable, _NO_ROOM_KEPT),
    ListedResource("replica_sets", "apps", "v1", Scalable, _NO_ROOM_KEPT),
    ListedResource("stateful_sets", "apps", "v1", Scalable, _NO_ROOM_KEPT),
)

_NODE_POOLS = ListedResource(
    "node_pools", "karpenter.sh", "v1", dict[str, Any], "give them by --manifests", namespaced=False
)
_MANIFESTS = (
    _NODE_POOLS,
    ListedResource(
        "ec2_node_classes",
        "karpenter.k8s.aws",
        "v1",
        dict[str, Any],
        "give them by --manifests, or instance types by --catalog",
        namespaced=False,
    ),
    ListedResource(
        "node_overlays",
        "karpenter.sh",
        "v1alpha1",
        dict[str, Any],
        "prices and capacity they set do not count",
        namespaced=False,
    ),
    ListedResource("capacity_buffers", "autoscaling.x-k8s.io", "v1beta1", dict[str, Any], "no room is kept for them"),
    ListedResource("pod_templates", "", "v1", dict[str, Any], "CapacityBuffers made of them keep no room"),
)
_NODE_CLAIMS = ListedResource(
    "node_claims",
    "karpenter.sh",
    "v1",
    dict[str, Any],
    "nodes that are on their way are not counted on",
    namespaced=False,
)
_OBJECT_KINDS = {
    "node_pools": "NodePool",
    "ec2_node_classes": "EC2NodeClass",
    "node_overlays": "NodeOverlay",
    "capacity_buffers": "CapacityBuffer",
    "pod_templates": "PodTemplate",
    "node_claims": "NodeClaim",
}


class ClusterListing(msgspec.Struct, frozen=True):
    """The objects listed. `manifests` and `node_claims` are objects as the API has them, with kind and version.

    `kubernetes_version` as `1.34`, empty when the server does not say.
    """

    view: ClusterView
    manifests: tuple[dict[str, Any], ...] = ()
    node_claims: tuple[dict[str, Any], ...] = ()
    kubernetes_version: str = ""
    unseen: tuple[MissingPermission, ...] = ()
    of_features: tuple[dict[str, Any], ...] | None = None
    """None where one of the kinds may not be listed."""


class _Version(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""


def list_cluster(
    transport: Transport,
    *,
    namespace: str,
    manifests: bool,
    workloads: bool,
    features: Sequence[ChosenPolicy] | None = (),
    report: Callable[[str], None] = lambda _: None,
) -> ClusterListing:
    """List what a decision reads, as far as it is permitted.

    Args:
        transport: a connection.
        namespace: where to look for what may not be listed in the whole cluster.
        manifests: whether NodePools and what belongs to them are to be read, too.
        workloads: whether there are default spread constraints, which need Services and controllers.
        features: the optional features of the install, whose objects are to be read, too, if they are on; None without
            an install.
        report: receives the text of each step.

    Raises:
        ClusterError: the server does not answer, refuses the credentials, or permits neither pods nor nodes.
    """
    return _Lister(transport, namespace, report).survey(manifests=manifests, workloads=workloads, features=features)


class _Lister:
    def __init__(self, transport: Transport, namespace: str, report: Callable[[str], None]) -> None:
        self._transport = transport
        self._namespace = namespace
        self._report = report
        self._unseen: list[MissingPermission] = []
        self._unreadable: set[Unreadable] = set()

    def survey(self, *, manifests: bool, workloads: bool, features: Sequence[ChosenPolicy] | None) -> ClusterListing:
        version = self._version()  # alone and first: an unreachable server or a refused credential is one error
        of_manifests = _MANIFESTS if manifests else ()
        listed = self._list_each((*_ALWAYS, *of_manifests, _NODE_CLAIMS))
        self._require_pods()
        pods, nodes = listed["pods"], listed["nodes"]
        wanted: list[ListedResource] = list(_WORKLOADS if workloads else ())
        wanted += _STORAGE if needs_storage_objects(pods, nodes) else ()
        wanted += (_NAMESPACES,) if needs_namespaces(pods) else ()
        listed |= self._list_each(wanted)
        scalables: tuple[Scalable, ...] = ()
        if listed.get("capacity_buffers"):
            scalables = tuple(item for kind in _SCALABLES for item in self._list_permitted(kind))
        view = ClusterView(scalables=scalables, unreadable=tuple(sorted(self._unreadable)))
        of_features = self._list_optional(wanted_by_features(ClusterView(pods=pods), features))
        return ClusterListing(
            view=replace(view, **{field: items for field, items in listed.items() if field in view.__struct_fields__}),
            manifests=tuple(_with_kind(kind, item) for kind in of_manifests for item in listed[kind.field]),
            node_claims=tuple(_with_kind(_NODE_CLAIMS, item) for item in listed["node_claims"]),
            kubernetes_version=version,
            unseen=tuple(sorted(set(self._unseen))),
            of_features=of_features,
        )

    def _version(self) -> str:
        """Anybody may ask for the version; a server that does not say it is no reason to stop."""
        try:
            version = msgspec.json.decode(self._transport.get("/version"), type=_Version)
        except (ObjectNotFound, msgspec.DecodeError):
            return ""
        except ClusterDenied as error:
            if error.status == 401:
                raise
            return ""
        minor = "".join(letter for letter in version.minor if letter.isdigit())  # EKS says `34+`
        return f"{version.major}.{minor}" if minor else ""

    def _list_each(self, kinds: Sequence[ListedResource]) -> dict[str, Any]:
        """Each kind's items by field; lists wait for the network side by side."""
        if not kinds:
            return {}
        for kind in kinds:
            _reader(kind)  # before there are threads: two that meet a type for the first time at once crash msgspec
        with ThreadPoolExecutor(4, "survey") as pool:
            return dict(zip((kind.field for kind in kinds), pool.map(self._list_permitted, kinds), strict=True))

    def _list_optional(self, wanted: Iterable[OptionalKind]) -> tuple[dict[str, Any], ...] | None:
        """The objects of kinds whose definition may be missing; None where one of them may not be listed."""
        found: list[dict[str, Any]] = []
        before = len(self._unseen)
        for each in wanted:
            for version in each.versions:
                kind = ListedResource(
                    each.field, each.group, version, dict[str, Any], each.consequence, object_kind=each.kind
                )
                items = self._list_permitted(kind)
                found += (_with_kind(kind, item) for item in items)
                if items or len(self._unseen) > before:
                    break
        return tuple(found) if len(self._unseen) == before else None

    def _list_permitted(self, kind: ListedResource) -> tuple[Any, ...]:
        """The objects that may be listed: of the cluster, else of the namespace, else none; none of unknown kinds."""
        try:
            return self._list(kind, kind.path())
        except ObjectNotFound:
            return ()  # its definition is not installed
        except ClusterDenied as denied:
            if denied.status == 401:
                raise
            seen = ""
            items: tuple[Any, ...] = ()
            if kind.namespaced:
                try:
                    items, seen = self._list(kind, kind.path(self._namespace)), self._namespace
                except (ClusterDenied, ObjectNotFound):
                    pass  # said below
            self._unseen.append(MissingPermission(kind.plural, kind.group, seen, kind.consequence))
            return items

    def _list(self, kind: ListedResource, path: str) -> tuple[Any, ...]:
        """All pages; started again once when the server expires the list half way."""
        self._report(f"reading {kind.plural}")
        try:
            return self._pages(kind, path)
        except ResourceVersionGone:
            return self._pages(kind, path)

    def _pages(self, kind: ListedResource, path: str) -> tuple[Any, ...]:
        reader = _reader(kind)
        query = {"resourceVersion": "0"}
        if kind.selector:
            query["fieldSelector"] = kind.selector
        pages = list(
            list_pages(self._transport, lambda body: read_page(reader, body, path), path, query, most_objects=_PAGE)
        )
        self._unreadable.update(each for page in pages for each in page.unreadable)
        return tuple(item for page in pages for item in page.items)

    def _require_pods(self) -> None:
        """Raises ClusterDenied when not one pod may be seen: there is nothing to decide on."""
        if any(permission.resource == "pods" and not permission.namespace for permission in self._unseen):
            raise ClusterDenied(
                f"pods may be listed neither in the cluster nor in namespace {self._namespace}; "
                "the right to list pods is missing, see docs/rbac.yaml for all that is read",
                status=403,
            )


@cache
def _reader(kind: ListedResource) -> Reader[Any]:
    object_kind = kind.object_kind or _OBJECT_KINDS.get(kind.field, "")
    return Reader(kind.typed, object_kind, any_size=bool(object_kind))


def _with_kind(kind: ListedResource, item: Mapping[str, Any]) -> dict[str, Any]:
    """Items of a list do not say what they are."""
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {**item, "apiVersion": version, "kind": kind.object_kind or _OBJECT_KINDS[kind.field]}


class LiveCluster(msgspec.Struct, frozen=True):
    """A cluster as listed."""

    access: Access
    state: ClusterState
    kubernetes_version: str
    unseen: tuple[MissingPermission, ...]


def access_of(kubeconfig: Path | None, context: str) -> Access:
    """The access to a cluster by a kubeconfig. Raises InvalidInput."""
    from shiplap.cluster.kubeconfig import load  # noqa: PLC0415 - files need no client

    instead = ", or give the cluster's objects by --cluster-state"
    return load(kubeconfig, context, environment=os.environ, home=Path.home(), instead=instead)


def read_live_cluster(
    access: Access, *, manifests: bool, workloads: bool, features: Sequence[ChosenPolicy] | None
) -> LiveCluster:
    """Enter a cluster and list what a decision reads.

    Raises:
        InvalidInput: the credentials are of no use, or the cluster does not answer.
    """
    from shiplap_cli.inputs.context_access import enter_context  # noqa: PLC0415 - as above

    source = f"context {access.context}"
    with progress(f"asking {access.server}") as report:
        try:
            transport = enter_context(access, clock=time.time, environment=os.environ, sleep=time.sleep)
            listing = list_cluster(
                transport,
                namespace=access.namespace,
                manifests=manifests,
                workloads=workloads,
                features=features,
                report=report,
            )
        except ClusterError as error:
            raise InvalidInput(source, _explained(error, access)) from error
    return LiveCluster(
        access=access,
        state=_state(listing, source),
        kubernetes_version=listing.kubernetes_version,
        unseen=listing.unseen,
    )


def _state(listing: ClusterListing, source: str) -> ClusterState:
    read = listing.of_features
    of_features = FeatureObjects(tuple(_documents(source, read)), live=True) if read is not None else None
    claims, manifests = _documents(source, listing.node_claims), _documents(source, listing.manifests)
    return state_of(listing.view, claims, manifests, of_features)


def _documents(source: str, objects: Iterable[Mapping[str, Any]]) -> Sequence[Document]:
    return [
        Document(source, number, 0, f"{item['kind']}/{_name(item)}", dict(item)) for number, item in enumerate(objects)
    ]


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "?")) if isinstance(metadata, Mapping) else "?"


def _explained(error: ClusterError, access: Access) -> str:
    """The error and its remedy."""
    if isinstance(error, ClusterDenied) and error.status == 401:
        who = f"user {access.user}" if access.user else "the context, which names no user"
        return f"{error}; the credentials of {who} were refused: log in again, or renew them in the kubeconfig"
    if isinstance(error, ClusterUnreachable) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{error}; the kubeconfig's certificate-authority is not that of this server"
    if isinstance(error, ClusterUnreachable):
        return f"{error}; see whether `kubectl --context {access.context} version` is answered"
    return str(error)
