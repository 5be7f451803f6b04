"""Typed views of objects that pods refer to: volumes with their claims and classes, namespaces, Services, controllers.

Apart from `objects`, because most decisions read none of them. Storage is listed only for pods with claims, namespaces
only when a pod selects them by their labels, the others only where a cluster has default spread constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import ceil
from typing import Any

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    ApiObject,
    Few,
    LabelSelector,
    Node,
    NodeSelector,
    ObjectMeta,
    ObjectReference,
    Pod,
    PodTemplateSpec,
    Volume,
    Whole,
)
from shiplap.kubernetes.timestamps import epoch

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label every namespace carries: its name."""


class ObjectIdentity(ApiObject, frozen=True):
    """The fields kept of an object's metadata: annotations may hold whole manifests with secrets of users."""

    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = ""


class LabelledIdentity(ObjectIdentity, frozen=True):
    labels: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class Namespace(ApiObject, frozen=True):
    metadata: LabelledIdentity = LabelledIdentity()


class ServiceSpec(ApiObject, frozen=True):
    """`selector` is empty for a Service whose endpoints are managed elsewhere, and null for one that is only a name."""

    selector: dict[str, str] | None = None


class Service(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ServiceSpec = ServiceSpec()


class ControllerSpec(ApiObject, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ControllerSpec = ControllerSpec()


class ReplicationController(ApiObject, frozen=True):
    """Selects by plain labels, as a Service does."""

    metadata: ObjectIdentity = ObjectIdentity()
    spec: ServiceSpec = ServiceSpec()


class ScalableSpec(ApiObject, frozen=True):
    replicas: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class Scalable(ApiObject, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet, as far as its number and its pods go; absent replicas are 1."""

    kind: str = ""
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ScalableSpec = ScalableSpec()


class ScalableName(msgspec.Struct, frozen=True, order=True):
    """The name of a workload; `kind` is one of SCALABLE_PLURALS."""

    namespace: str
    kind: str
    name: str


SCALABLE_PLURALS = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}
"""How URLs call the kinds of apps/v1 that a CapacityBuffer may be made of."""


def needs_namespaces(pods: Iterable[Pod]) -> bool:
    """True if any pod, bound or pending, selects namespaces by labels other than their names."""
    return any(pod.spec.affinity is not None and _selects_namespaces(pod) for pod in pods)


def selects_by_name_only(selector: LabelSelector) -> bool:
    """True if a selector over namespaces asks only for their names, so that it needs no other labels."""
    expressions = selector.match_expressions
    return selector.match_labels.keys() <= {NAMESPACE_NAME} and all(item.key == NAMESPACE_NAME for item in expressions)


def _selects_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if part is None:
            continue
        for term in (*part.required, *(entry.pod_affinity_term for entry in part.preferred)):
            if term.namespace_selector is not None and not selects_by_name_only(term.namespace_selector):
                return True
    return False


BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose binding is done; without it a claim that names its volume is still being bound."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim that kube-scheduler has chosen a node for; its volume is being made where that node is."""

DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
"""Annotations that make a StorageClass the default, the second an older spelling."""


class VolumeResourceRequirements(ApiObject, frozen=True):
    requests: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class PersistentVolumeClaimSpec(ApiObject, frozen=True):
    """`storage_class_name` is None when the default class is wanted, and empty when none is."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


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
    """At most one source is set; sources that neither pin a volume to a node nor are attached are left out.

    `claim_ref` names the claim that the volume is bound to, or kept for.
    """

    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    local: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    claim_ref: ObjectReference | None = None
    volume_mode: str = "Filesystem"


class PersistentVolumeStatus(ApiObject, frozen=True):
    phase: str = ""


class PersistentVolume(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


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
    """The registration of the CSI drivers on a node; it has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(ApiObject, frozen=True):
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ApiObject, frozen=True):
    """A driver as it has been installed; it has the name that classes and volumes know it by."""

    metadata: ObjectIdentity = ObjectIdentity()
    spec: CSIDriverSpec = CSIDriverSpec()


class LeaseSpec(ApiObject, frozen=True):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    renew_time: str | None = ""


class Lease(ApiObject, frozen=True):
    """The record of which process leads among several; the leader renews it every few seconds."""

    metadata: ObjectIdentity = ObjectIdentity()
    spec: LeaseSpec = LeaseSpec()

    def is_fresh(self, now: float, margin_s: float) -> bool:
        """True if its last renewal is so recent that its holder may still work, or that a successor may soon take over.

        Raises:
            ValueError: its time cannot be read.
        """
        renewed = self.spec.renew_time
        return bool(renewed) and now < epoch(renewed or "") + (self.spec.lease_duration_seconds or 0) + margin_s


class VolumeAttachmentSource(ApiObject, frozen=True):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(ApiObject, frozen=True):
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
    """True if a pod's volume stands for a PersistentVolumeClaim, either named by the pod or made for the pod."""
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def has_claims(pod: Pod) -> bool:
    """True if any volume of a pod stands for a PersistentVolumeClaim."""
    for volume in pod.spec.volumes:  # asked of every pod of a cluster: a loop costs half of what any() does
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
    return False


def needs_storage_objects(pods: Iterable[Pod], nodes: Iterable[Node], leaving: Collection[str] = ()) -> bool:
    """True if a decision about these pods reads storage objects: a pod with claims needs a node, or will soon.

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


REVISION = "deployment.kubernetes.io/revision"
"""Annotation of a Deployment and its ReplicaSets: those of the current template have the Deployment's."""

IntOrPercent = Whole | str


class RollingUpdate(ApiObject, frozen=True):
    """How many pods a rollout may add and lack. `partition` is of StatefulSets."""

    max_surge: IntOrPercent = "25%"
    max_unavailable: IntOrPercent = "25%"
    partition: Whole = 0


class UpdateStrategy(ApiObject, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None

    @property
    def rolling(self) -> RollingUpdate:
        return self.rolling_update or RollingUpdate()


class AnnotatedTemplate(ApiObject, frozen=True):
    """The metadata of a pod template. Its spec is not read."""

    metadata: ObjectMeta = ObjectMeta()


class RolledSpec(ApiObject, frozen=True):
    replicas: Whole = 1
    paused: bool = False
    selector: LabelSelector | None = None
    strategy: UpdateStrategy = UpdateStrategy()
    template: AnnotatedTemplate = AnnotatedTemplate()


class RolloutCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""


class RolloutStatus(ApiObject, frozen=True):
    """The counts that a workload's controller has written, for the spec of `observed_generation`."""

    observed_generation: Whole = 0
    replicas: Whole = 0
    updated_replicas: Whole = 0
    available_replicas: Whole = 0
    conditions: Few[RolloutCondition] = ()


class RolledWorkload(ApiObject, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RolledSpec = RolledSpec()
    status: RolloutStatus = RolloutStatus()


def amount_of(written: IntOrPercent, replicas: int, *, up: bool) -> int:
    """A number of pods, or a percentage of the replicas, rounded up or down. Raises ValueError: it is neither."""
    if isinstance(written, int):
        return written
    share = int(written.removesuffix("%")) * replicas / 100
    return ceil(share) if up else int(share)


def surge_and_unavailable(rolling: RollingUpdate, replicas: int) -> tuple[int, int]:
    """How many pods a rollout may add and lack; one of both is at least one, or it would never move.

    Raises ValueError: an amount is neither a number nor a percentage.
    """
    surge = amount_of(rolling.max_surge, replicas, up=True)
    unavailable = amount_of(rolling.max_unavailable, replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)
