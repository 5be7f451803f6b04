"""The Kubernetes API of one cluster, as the flows see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from shiplap.kubernetes.objects import CustomObject, Event, Node, Pod, RawObject, Taint
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.related_objects import (
    Lease,
    PersistentVolumeClaim,
    Scalable,
    ScalableName,
    VolumeAttachment,
)
from shiplap.scheduling.model.snapshot import ClusterView


class WatchEvent(msgspec.Struct, frozen=True):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object carries only the resourceVersion.

    `unreadable` says why the object could not be read. Then it stands in the place of one that must not be lost sight
    of, or is DELETED: as if it were not there.
    """

    type: str
    object: Pod | Node | CustomObject
    resource_version: str
    unreadable: str = ""


Listed = tuple[Pod, ...] | tuple[Node, ...] | tuple[CustomObject, ...]

MANIFEST_KINDS = ("nodepools", "ec2nodeclasses", "nodeoverlays", "capacitybuffers")
"""The kinds of manifests that can be watched."""


class ManifestObjects(msgspec.Struct, frozen=True):
    """The objects of a cluster that may be manifests, as its API server lists them."""

    node_pools: tuple[RawObject, ...] = ()
    node_classes: tuple[RawObject, ...] = ()
    node_overlays: tuple[RawObject, ...] = ()
    capacity_buffers: tuple[RawObject, ...] = ()
    pod_templates: tuple[RawObject, ...] = ()

    def all(self) -> Iterator[RawObject]:
        """Every object, kind by kind."""
        yield from (*self.node_pools, *self.node_classes, *self.node_overlays, *self.capacity_buffers)
        yield from self.pod_templates


KnownPods = Callable[[int, str], Sequence[Pod] | None]
"""The bound pods, if they need not be listed: asked with how many nodes there are and a version to have caught up with.
"""


class ClusterApi(Protocol):
    """The Kubernetes API of one cluster."""

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """Everything a scheduling decision reads; pending pods and nodes are listed fresh, in pages.

        Bound pods are listed unless `known` tells them. It is asked last, so that a pod that is bound meanwhile can be
        found among them; what it tells of a pod that is listed as pending under its name is older and counts for
        nothing.

        Storage objects are listed only for pods with claims that need a node: pending ones, and those of nodes that are
        being deleted or `leaving` (names of nodes, or of the claims that became them). Namespaces are listed only if a
        pod selects them by their labels, Services and controllers only for `workloads`.
        """
        ...

    def pending_pods(self, most: int = 0) -> tuple[Pod, ...]:
        """Pods without a node, listed fresh (fieldSelector `spec.nodeName=`); only the first `most` of them, if set."""
        ...

    def pending_pod(self, namespace: str, name: str) -> Pod | None:
        """One pod, read fresh; None if it has a node, has finished or is gone."""
        ...

    def nodes(self) -> tuple[Node, ...]: ...

    def node(self, name: str) -> Node:
        """Raises ObjectNotFound."""
        ...

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods bound to a node, listed fresh, sorted by namespace and name."""
        ...

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes since a resourceVersion; ends at the timeout. Raises ResourceVersionGone.

        `kind` is `pods` (those without a node), `nodes`, `bound` (unfinished pods that have one), or one of
        MANIFEST_KINDS.
        """
        ...

    def bound_pages(self) -> Iterator[tuple[tuple[Pod, ...], str]]:
        """Unfinished pods that have a node, in pages, each with the resourceVersion that all of them stand for.

        Raises ResourceVersionGone when the server forgets the list half way: what was yielded is worth nothing then.
        """
        ...

    def list_for_watch(self, kind: str) -> tuple[Listed, str]:
        """Pending `pods`, all `nodes` or all of one of MANIFEST_KINDS, with the resourceVersion to watch from."""
        ...

    def manifest_objects(self) -> ManifestObjects:
        """NodePools, EC2NodeClasses, NodeOverlays, CapacityBuffers, and PodTemplates if buffers name any.

        Raises ObjectNotFound where the CRD of NodePools or EC2NodeClasses is missing; the other CRDs may be.
        """
        ...

    def ending_definitions(self) -> tuple[str, ...]:
        """Names of the CRDs of NodePools and EC2NodeClasses that are being deleted, with all their objects; sorted."""
        ...

    def lease(self, namespace: str, name: str) -> Lease | None:
        """A Lease; None if there is none."""
        ...

    def patch_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str],
        taints: Sequence[Taint],
        resource_version: str,
    ) -> Node:
        """Merge labels (None takes one away) and annotations and replace the taints; the node as it is then.

        Refused with ObjectConflict if the node changed.
        """
        ...

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node in the scheduler's place; nothing checks whether it fits.

        Raises ObjectNotFound, ObjectConflict when the pod has a node already or was recreated under its name.
        """
        ...

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Ask for a pod to be deleted, with its own grace period unless one is given, as far as PDBs allow it.

        Raises TooManyRequests when a PodDisruptionBudget forbids it now, ObjectNotFound, ObjectConflict when the pod
        was recreated under its name.
        """
        ...

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its PodDisruptionBudgets say; one that is ending already gets no more than `grace_s`.

        Raises ObjectNotFound, ObjectConflict when the pod was recreated under its name.
        """
        ...

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict when it was recreated under its name."""
        ...

    def volume_attachments(self) -> tuple[VolumeAttachment, ...]:
        """Which volumes are attached to which nodes, of the whole cluster."""
        ...

    def volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        """All PersistentVolumeClaims, sorted by namespace and name."""
        ...

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets, sorted by namespace and name."""
        ...

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """These workloads in the order given, as far as they exist."""
        ...

    def publish(self, event: Event) -> None:
        """Write a Kubernetes Event; failures to do so are never worth failing a flow, so callers log and go on."""
        ...
