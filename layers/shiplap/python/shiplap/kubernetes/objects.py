"""Typed views of the Kubernetes objects Shiplap reads.

Only the fields a decision looks at are declared: msgspec skips the rest while it decodes, which keeps a list of
10,000 pods smaller than its JSON. Structs are frozen and decoded straight from the API server's bytes; quantities stay
text until they are needed (see `quantity`). Timestamps stay RFC 3339 text in UTC, which sorts as time; those that the
API server writes as null when unset (in pod templates and events) are None there.

An API server bounds an object at 1.5 MiB, and hardly any list in it. Here each list and map has a most length, which is
part of its type: what is longer makes its object unreadable as it is decoded, and `reading` sets it aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from shiplap.kubernetes.names import namespaced_name

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer as an API server may send it: 64 bits. What is larger makes its object unreadable."""

Quantity = str | Whole | float

MOST_LABELS = 1_000
"""Labels of one object: node-feature-discovery writes some 200 of a node, and no workload writes as many."""

MOST_ENTRIES = 100
"""Entries of a list of constraints, of a map of resources, of owners or conditions: ten times what controllers write.
A decision looks at each for every NodePool and kind of node.
"""

MOST_PARTS = 500
"""Containers, their ports and statuses, tolerations: a kubelet runs 110 pods, so 500 parts in one pod are far more.
"""

MOST_NAMES = 1_000
"""Volumes and namespaces of one pod: they are looked up by name once."""

Item = TypeVar("Item")

Labels = Annotated[dict[str, str], msgspec.Meta(max_length=MOST_LABELS)]
FewLabels = Annotated[dict[str, str], msgspec.Meta(max_length=MOST_ENTRIES)]
Amounts = Annotated[dict[str, Quantity], msgspec.Meta(max_length=MOST_ENTRIES)]
Few = Annotated[tuple[Item, ...], msgspec.Meta(max_length=MOST_ENTRIES)]
Parts = Annotated[tuple[Item, ...], msgspec.Meta(max_length=MOST_PARTS)]
Names = Annotated[tuple[Item, ...], msgspec.Meta(max_length=MOST_NAMES)]


class ApiObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base: camelCase on the wire, absent fields fall back to the zero value of the API."""


class OwnerReference(ApiObject, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Whole = 0
    labels: Labels = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = ""
    deletion_timestamp: str = ""
    finalizers: Few[str] = ()
    owner_references: Few[OwnerReference] = ()


RawObject = Mapping[str, Any]
"""An object of the API as JSON."""


class CustomObject(ApiObject, frozen=True):
    """As much of an object of any kind as shows that somebody has edited or deleted it."""

    metadata: ObjectMeta = ObjectMeta()
    kind: str = ""


class LabelSelectorRequirement(ApiObject, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(ApiObject, frozen=True):
    match_labels: FewLabels = {}
    match_expressions: Few[LabelSelectorRequirement] = ()


class NodeSelectorRequirement(ApiObject, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiObject, frozen=True):
    match_expressions: Few[NodeSelectorRequirement] = ()
    match_fields: Few[NodeSelectorRequirement] = ()


class NodeSelector(ApiObject, frozen=True):
    node_selector_terms: Few[NodeSelectorTerm] = ()


class PreferredSchedulingTerm(ApiObject, frozen=True):
    weight: Whole
    preference: NodeSelectorTerm


class NodeAffinity(ApiObject, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: Few[PreferredSchedulingTerm] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(ApiObject, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: Names[str] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: Few[str] = ()
    mismatch_label_keys: Few[str] = ()


class WeightedPodAffinityTerm(ApiObject, frozen=True):
    weight: Whole
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiObject, frozen=True):
    """Serves as podAffinity and as podAntiAffinity: their shapes are the same."""

    required: Few[PodAffinityTerm] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: Few[WeightedPodAffinityTerm] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiObject, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(ApiObject, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(ApiObject, frozen=True):
    key: str
    effect: str
    value: str = ""


class TopologySpreadConstraint(ApiObject, frozen=True):
    max_skew: Whole
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Whole | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: Few[str] = ()


class ResourceRequirements(ApiObject, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class ContainerPort(ApiObject, frozen=True):
    container_port: Whole = 0
    host_port: Whole = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(ApiObject, frozen=True):
    """`restart_policy` is `Always` on a sidecar among the init containers."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: Parts[ContainerPort] = ()
    restart_policy: str = ""


class PersistentVolumeClaimVolume(ApiObject, frozen=True):
    claim_name: str


class EphemeralVolume(ApiObject, frozen=True):
    volume_claim_template: dict[str, Any] = {}


class Volume(ApiObject, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class PodSchedulingGate(ApiObject, frozen=True):
    name: str = ""


class PodSchedulingGroup(ApiObject, frozen=True):
    """The PodGroup of `scheduling.k8s.io` that a pod belongs to."""

    pod_group_name: str = ""


class PodSpec(ApiObject, frozen=True):
    node_name: str = ""
    node_selector: FewLabels = {}
    affinity: Affinity | None = None
    tolerations: Parts[Toleration] = ()
    topology_spread_constraints: Few[TopologySpreadConstraint] = ()
    containers: Parts[Container] = ()
    init_containers: Parts[Container] = ()
    overhead: Amounts = {}
    resources: ResourceRequirements | None = None
    volumes: Names[Volume] = ()
    priority: Whole = 0
    priority_class_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    runtime_class_name: str = ""
    resource_claims: Few[dict[str, Any]] = ()
    scheduling_gates: Few[PodSchedulingGate] = ()
    scheduling_group: PodSchedulingGroup | None = None
    termination_grace_period_seconds: Whole | None = None


class PodCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = ""


class ContainerStatus(ApiObject, frozen=True):
    name: str = ""
    allocated_resources: Amounts = {}
    resources: ResourceRequirements | None = None


TERMINAL_PHASES = ("Succeeded", "Failed")
"""Phases of pods that have ended: they hold nothing of their node."""


class PodStatus(ApiObject, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str = ""
    conditions: Few[PodCondition] = ()
    container_statuses: Parts[ContainerStatus] = ()
    init_container_statuses: Parts[ContainerStatus] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts = {}


class Pod(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """`namespace/name`, as plans and events name a pod."""
        return namespaced_name(self.metadata.namespace, self.metadata.name)


class NodeSpec(ApiObject, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: Few[Taint] = ()
    unschedulable: bool = False


class NodeCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = ""


class NodeSystemInfo(ApiObject, frozen=True):
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(ApiObject, frozen=True):
    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: Few[NodeCondition] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def goes_with_node(metadata: ObjectMeta) -> bool:
    """True if the pod with this metadata belongs to its node: it is of a DaemonSet, or static."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in metadata.owner_references)


def is_ready(status: NodeStatus | PodStatus) -> bool:
    """True if the condition Ready of a node or a pod is True."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)


class PodTemplateSpec(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


CNI_VARIABLES = frozenset({"ENABLE_IPv6", "ENABLE_PREFIX_DELEGATION", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "MAX_ENI"})
"""Environment variables whose values are kept: how the VPC CNI gives out addresses."""


class EnvVar(ApiObject, frozen=True):
    """An environment variable. Other values than the CNI's may be secrets and are dropped as they are decoded."""

    name: str = ""
    value: str = ""

    def __post_init__(self) -> None:
        if self.value and self.name not in CNI_VARIABLES:
            msgspec.structs.force_setattr(self, "value", "")


class DaemonContainer(Container, frozen=True):
    """A container with what the VPC CNI is configured by; kept out of pods, where `env` would double their memory."""

    image: str = ""
    env: tuple[EnvVar, ...] = ()


class DaemonPodSpec(PodSpec, frozen=True):
    containers: Parts[DaemonContainer] = ()


class DaemonTemplateSpec(PodTemplateSpec, frozen=True):
    spec: DaemonPodSpec = DaemonPodSpec()


class DaemonSetSpec(ApiObject, frozen=True):
    template: DaemonTemplateSpec = DaemonTemplateSpec()


class DaemonSet(ApiObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class ObjectReference(ApiObject, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class EventSource(ApiObject, frozen=True):
    component: str = ""


class Event(ApiObject, frozen=True):
    """A core/v1 Event; only those of Cluster Autoscaler are read, and Shiplap's own are written."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    last_timestamp: str | None = ""
    event_time: str | None = None
    count: Whole = 0
