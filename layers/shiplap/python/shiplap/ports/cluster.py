"""The port to the Kubernetes API of one cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from shiplap.kubernetes.objects import CustomObject, Event, Node, Pod, RawObject, Taint
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.reading import Reader, Unreadable
from shiplap.kubernetes.related_objects import (
    Lease,
    PersistentVolumeClaim,
    RolledWorkload,
    Scalable,
    ScalableName,
    VolumeAttachment,
)
from shiplap.scheduling.model.snapshot import ClusterView


class WatchEvent(msgspec.Struct, frozen=True):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object has only the resourceVersion.

    `unreadable` says why the object cannot be read. `object` is then a placeholder for one that must stay in view, or
    `type` is DELETED, as if the object did not exist.
    """

    type: str
    object: Pod | Node | CustomObject
    resource_version: str
    unreadable: str = ""


Listed = tuple[Pod, ...] | tuple[Node, ...] | tuple[CustomObject, ...]

MANIFEST_KINDS = ("nodepools", "ec2nodeclasses", "nodeoverlays", "capacitybuffers", "nodeclaims")
"""The kinds that are watched with live manifests: those of manifests, and NodeClaims because users delete them."""


class ManifestObjects(msgspec.Struct, frozen=True):
    """Objects of a cluster that may be manifests, as its API server lists them."""

    node_pools: tuple[RawObject, ...] = ()
    node_classes: tuple[RawObject, ...] = ()
    node_overlays: tuple[RawObject, ...] = ()
    capacity_buffers: tuple[RawObject, ...] = ()
    pod_templates: tuple[RawObject, ...] = ()

    def all(self) -> Iterator[RawObject]:
        """Yield all objects, kind by kind."""
        yield from (*self.node_pools, *self.node_classes, *self.node_overlays, *self.capacity_buffers)
        yield from self.pod_templates


class CustomKind(msgspec.Struct, frozen=True):
    """A kind of namespaced objects whose definition may be missing; the first of `versions` that is served counts.

    The reader names the kind.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    reader: Reader[Any]


class NamedObjects(msgspec.Struct, frozen=True):
    """The objects that were asked for by namespace and name, as far as they exist.

    `unlisted` are namespaces and names that were not looked for to the end, as there are too many objects of the kind.
    `more`: where all were asked for, there are more.
    """

    items: tuple[Any, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    unlisted: tuple[tuple[str, str], ...] = ()
    more: bool = False


KnownPods = Callable[[int, str], Sequence[Pod] | None]
"""Returns the bound pods, or None if they must be listed. Takes the number of nodes and the version to be reached."""


class ClusterApi(Protocol):
    """The Kubernetes API of one cluster."""

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """Read all inputs of a scheduling decision; pending pods and nodes are listed fresh, in pages.

        Bound pods are listed unless `known` returns them. `known` is called last, so that it includes pods bound in the
        meantime. Its older state of a pod that is listed as pending is ignored.

        Storage objects are listed only for pods with claims that need a node: pending pods, and pods of nodes that are
        being deleted or `leaving` (names of nodes or of their claims). Namespaces are listed only if a pod selects them
        by their labels, Services and controllers only for `workloads`.
        """
        ...

    def pending_pods(self, most: int = 0) -> tuple[Pod, ...]:
        """List pods without a node (fieldSelector `spec.nodeName=`); only the first `most` of them, if set."""
        ...

    def pending_pod(self, namespace: str, name: str) -> Pod | None:
        """Read one pod; None if it has a node, has finished or does not exist."""
        ...

    def nodes(self) -> tuple[Node, ...]: ...

    def node(self, name: str) -> Node:
        """Raises ObjectNotFound."""
        ...

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """List unfinished pods bound to a node, sorted by namespace and name."""
        ...

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Yield changes since a resourceVersion until the timeout. Raises ResourceVersionGone.

        `kind` is `pods` (pods without a node), `nodes`, `bound` (unfinished pods with a node), or one of
        MANIFEST_KINDS.
        """
        ...

    def bound_pages(self) -> Iterator[tuple[tuple[Pod, ...], str]]:
        """Yield pages of unfinished pods with a node; each page comes with the resourceVersion of the whole list.

        Raises ResourceVersionGone when the server drops the list half way: the pages yielded so far are invalid then.
        """
        ...

    def list_for_watch(self, kind: str) -> tuple[Listed, str]:
        """List pending `pods`, `nodes` or objects of one of MANIFEST_KINDS, with the resourceVersion to watch from."""
        ...

    def manifest_objects(self) -> ManifestObjects:
        """List NodePools, EC2NodeClasses, NodeOverlays, CapacityBuffers, and PodTemplates if buffers name any.

        Raises ObjectNotFound if the CRD of NodePools or EC2NodeClasses is missing; the other CRDs are optional.
        """
        ...

    def ending_definitions(self) -> tuple[str, ...]:
        """Return names of the CRDs of NodePools, NodeClaims and EC2NodeClasses that are being deleted; sorted."""
        ...

    def write_status(self, kind: str, namespace: str, name: str, status: RawObject, resource_version: str) -> None:
        """Merge fields into the status of a manifest of this kind.

        Raises ObjectNotFound, and ObjectConflict when it has changed since `resource_version`.
        """
        ...

    def node_claim_objects(self) -> tuple[RawObject, ...]:
        """All NodeClaims. Raises ObjectNotFound where their CRD is missing."""
        ...

    def node_claim_object(self, name: str) -> RawObject | None:
        """A NodeClaim; None if there is none of this name, or no CRD."""
        ...

    def create_node_claim(self, body: RawObject) -> None:
        """Create a NodeClaim, then write the status that it is given with.

        Raises ObjectConflict when there is one of its name.
        """
        ...

    def delete_node_claim(self, item: RawObject) -> None:
        """Delete a NodeClaim. Raises ObjectNotFound, ObjectConflict when it was recreated under its name."""
        ...

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
        """Replace the finalizers of a Node or NodeClaim; merge labels and annotations.

        Raises ObjectNotFound, and ObjectConflict when it has changed since `resource_version`.
        """
        ...

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Read a Lease; None if there is none."""
        ...

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
        """Merge labels (None removes one) and annotations, replace the taints, set the only owner; the new node.

        Raises ObjectConflict if the node changed.
        """
        ...

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod to a node instead of kube-scheduler; nothing checks whether it fits.

        Raises ObjectNotFound; ObjectConflict when the pod has a node or was recreated under its name.
        """
        ...

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Evict a pod with its own grace period, unless one is given.

        Raises TooManyRequests when a PodDisruptionBudget forbids it now; ObjectNotFound; ObjectConflict when the pod
        was recreated under its name.
        """
        ...

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod regardless of PodDisruptionBudgets; a pod that is ending gets at most `grace_s` more.

        Raises ObjectNotFound; ObjectConflict when the pod was recreated under its name.
        """
        ...

    def delete_node(self, node: Node) -> None:
        """Delete a Node object. Raises ObjectNotFound; ObjectConflict when it was recreated under its name."""
        ...

    def volume_attachments(self) -> tuple[VolumeAttachment, ...]:
        """List the attachments of volumes to nodes in the whole cluster."""
        ...

    def volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """List PersistentVolumeClaims, sorted by namespace and name."""
        ...

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """List PodDisruptionBudgets, sorted by namespace and name."""
        ...

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """Read these workloads, in the given order, if they exist."""
        ...

    def workload(self, name: ScalableName) -> RolledWorkload | None:
        """Read a workload; None if there is none of this name."""
        ...

    def annotate_template(
        self, name: ScalableName, annotations: Mapping[str, str], *, uid: str, resource_version: str
    ) -> RolledWorkload:
        """Merge annotations into the pod template of a workload, which replaces its pods; the new workload.

        Raises ObjectNotFound; ObjectConflict when it has changed since `resource_version`, or was recreated.
        """
        ...

    def annotate_pod(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Merge annotations into those of a pod; None removes one.

        Raises ObjectNotFound; ObjectConflict when the pod has changed since it was read, or was recreated.
        """
        ...

    def named_objects(self, kind: CustomKind, names: Collection[tuple[str, str]] | None) -> NamedObjects:
        """List objects of a kind and keep those of these namespaces and names; none where the kind is not defined.

        Without `names` all are kept; `more` says that there are more than one list has.
        """
        ...

    def publish(self, event: Event) -> None:
        """Write a Kubernetes Event. Callers log a failure and continue: no flow fails because of it."""
        ...
