"""Typed views of the storage objects that decide where a pod may run and how many volumes a node still takes.

Apart from `objects`, because most decisions read none of them: they are listed only while a pod with claims waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ApiObject, Node, NodeSelector, ObjectMeta, Pod, Volume

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose binding is done; without it a claim that names its volume is still being bound."""

DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
"""Annotations that make a StorageClass the default, the second an older spelling."""


class PersistentVolumeClaimSpec(ApiObject, frozen=True):
    """`storage_class_name` is None when the default class is wanted, and empty when none is."""

    volume_name: str = ""
    storage_class_name: str | None = None


class PersistentVolumeClaimStatus(ApiObject, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIVolumeSource(ApiObject, frozen=True):
    driver: str


class VolumeNodeAffinity(ApiObject, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiObject, frozen=True):
    """At most one source is set; sources that neither pin a volume to a node nor are attached are left out."""

    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    local: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologySelectorLabelRequirement(ApiObject, frozen=True):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiObject, frozen=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(ApiObject, frozen=True):
    """`count` is how many volumes of a driver fit a node; None when the driver sets no limit."""

    count: int | None = None


class CSINodeDriver(ApiObject, frozen=True):
    name: str
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiObject, frozen=True):
    """`drivers` is null on the wire while none has registered."""

    drivers: tuple[CSINodeDriver, ...] | None = None


class CSINode(ApiObject, frozen=True):
    """What the CSI drivers on a node have registered; it has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(ApiObject, frozen=True):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(ApiObject, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiObject, frozen=True):
    """A volume that is attached to a node, or on its way there or off it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


def attached_volumes(
    attachments: Iterable[VolumeAttachment], node: str, staying: Iterable[Pod], claims: Iterable[PersistentVolumeClaim]
) -> tuple[str, ...]:
    """Names of the PersistentVolumes attached to a node, sorted, without those of the claims of `staying` pods."""
    used = {
        (pod.metadata.namespace, _claim_name(pod, volume))
        for pod in staying
        for volume in pod.spec.volumes
        if is_claim(volume)
    }
    kept = {claim.spec.volume_name for claim in claims if (claim.metadata.namespace, claim.metadata.name) in used}
    found = {item.spec.source.persistent_volume_name for item in attachments if item.spec.node_name == node}
    return tuple(sorted(found - kept - {""}))


def _claim_name(pod: Pod, volume: Volume) -> str:
    """The claim of a pod's volume; one made for the pod is named after both."""
    given = volume.persistent_volume_claim
    return given.claim_name if given is not None else f"{pod.metadata.name}-{volume.name}"


def is_claim(volume: Volume) -> bool:
    """Whether a pod's volume stands for a PersistentVolumeClaim, its own or one made for the pod."""
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def has_claims(pod: Pod) -> bool:
    """Whether any volume of a pod stands for a PersistentVolumeClaim."""
    for volume in pod.spec.volumes:  # asked of every pod of a cluster: a loop costs half of what any() does
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
    return False


def needs_storage_objects(pods: Iterable[Pod], nodes: Iterable[Node], leaving: Collection[str] = ()) -> bool:
    """Whether a decision about these pods reads storage objects: one with claims needs a node, or will soon.

    Args:
        pods: bound and pending ones.
        nodes: all; the pods of those that are being deleted need another.
        leaving: names of further nodes that are on their way out, or of the claims that became them.
    """
    going = {
        node.metadata.name
        for node in nodes
        if node.metadata.deletion_timestamp
        or node.metadata.name in leaving
        or node.metadata.labels.get(labels.NODE_CLAIM, "") in leaving
    }
    return any((not pod.spec.node_name or pod.spec.node_name in going) and has_claims(pod) for pod in pods)
