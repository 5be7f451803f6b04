"""The manifests users write, typed: NodePool, EC2NodeClass, NodeOverlay and CapacityBuffer.

Field names are upstream's in snake_case (camelCase on the wire). Durations stay text here and are parsed by
`durations`; quantities stay text and are parsed by `kubernetes.quantity`. Unknown fields are refused on decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.kubernetes.objects import ObjectMeta, Taint


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything a user writes."""


class RequirementSpec(_Spec, frozen=True):
    """One line of `requirements`; `values` of an `In` may hold globs (see `tiers`)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class NodeClassReference(_Spec, frozen=True):
    name: str
    kind: str = "EC2NodeClass"
    group: str = "karpenter.k8s.aws"


class TemplateMetadata(_Spec, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NodeClaimTemplateSpec(_Spec, frozen=True):
    node_class_ref: NodeClassReference
    requirements: tuple[RequirementSpec, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str | None = None


class NodePoolTemplate(_Spec, frozen=True):
    spec: NodeClaimTemplateSpec
    metadata: TemplateMetadata = TemplateMetadata()


class Budget(_Spec, frozen=True):
    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: tuple[str, ...] | None = None


class Disruption(_Spec, frozen=True):
    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = (Budget(),)


class NodePoolSpec(_Spec, frozen=True):
    template: NodePoolTemplate
    disruption: Disruption = Disruption()
    limits: dict[str, str | int | float] = {}
    weight: int = 0
    replicas: int | None = None


class NodePool(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: NodePoolSpec
    api_version: str = "karpenter.sh/v1"
    kind: str = "NodePool"
    status: dict[str, Any] = {}


class SubnetSelectorTerm(_Spec, frozen=True):
    tags: dict[str, str] = {}
    id: str = ""


class SecurityGroupSelectorTerm(_Spec, frozen=True):
    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""


class CapacityReservationSelectorTerm(_Spec, frozen=True):
    tags: dict[str, str] = {}
    id: str = ""
    owner_id: str = msgspec.field(default="", name="ownerID")
    instance_match_criteria: str = ""


class AmiSelectorTerm(_Spec, frozen=True):
    alias: str = ""
    tags: dict[str, str] = {}
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


class PlacementGroupSelector(_Spec, frozen=True):
    name: str = ""
    id: str = ""


class BlockDevice(_Spec, frozen=True):
    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int | None = None
    kms_key_id: str | None = msgspec.field(default=None, name="kmsKeyID")
    snapshot_id: str | None = msgspec.field(default=None, name="snapshotID")
    throughput: int | None = None
    volume_initialization_rate: int | None = None
    volume_size: str | None = None
    volume_type: str | None = None


class BlockDeviceMapping(_Spec, frozen=True):
    device_name: str = ""
    root_volume: bool = False
    ebs: BlockDevice | None = None


class NetworkInterface(_Spec, frozen=True):
    network_card_index: int = 0
    device_index: int = 0
    interface_type: str = "interface"


class MetadataOptions(_Spec, frozen=True):
    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


class ConnectionTracking(_Spec, frozen=True):
    """Timeouts in seconds."""

    tcp_established_timeout: int | None = None
    udp_stream_timeout: int | None = None
    udp_timeout: int | None = None


class CpuOptions(_Spec, frozen=True):
    nested_virtualization: str | None = None


class EC2NodeClassSpec(_Spec, frozen=True):
    """`kubelet` is upstream's open map; `kubelet_settings` reads the fields that shape capacity from it."""

    subnet_selector_terms: tuple[SubnetSelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupSelectorTerm, ...] = ()
    ami_selector_terms: tuple[AmiSelectorTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    ami_family: str = ""
    user_data: str | None = None
    role: str = ""
    instance_profile: str = ""
    tags: dict[str, str] = {}
    kubelet: dict[str, Any] = {}
    block_device_mappings: tuple[BlockDeviceMapping, ...] = ()
    instance_store_policy: str | None = None
    detailed_monitoring: bool | None = None
    associate_public_ip_address: bool | None = msgspec.field(default=None, name="associatePublicIPAddress")
    ip_prefix_count: int | None = None
    network_interfaces: tuple[NetworkInterface, ...] = ()
    metadata_options: MetadataOptions = MetadataOptions()
    connection_tracking: ConnectionTracking | None = None
    cpu_options: CpuOptions | None = None
    context: str | None = None


class EC2NodeClass(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: EC2NodeClassSpec
    api_version: str = "karpenter.k8s.aws/v1"
    kind: str = "EC2NodeClass"
    status: dict[str, Any] = {}


class NodeOverlaySpec(_Spec, frozen=True):
    requirements: tuple[RequirementSpec, ...] = ()
    price_adjustment: str | None = None
    price: str | None = None
    capacity: dict[str, str | int | float] = {}
    weight: int = 0


class NodeOverlay(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: NodeOverlaySpec
    api_version: str = "karpenter.sh/v1alpha1"
    kind: str = "NodeOverlay"
    status: dict[str, Any] = {}


class LocalReference(_Spec, frozen=True):
    name: str


class ScalableReference(_Spec, frozen=True):
    kind: str
    name: str
    api_group: str = "apps"


class CapacityBufferSpec(_Spec, frozen=True):
    """`replicas`, and `percentage` of the scalable's replicas: the larger of both counts, cut by `limits`."""

    provisioning_strategy: str = "buffer.x-k8s.io/active-capacity"
    pod_template_ref: LocalReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, str | int | float] = {}


class CapacityBuffer(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: CapacityBufferSpec
    api_version: str = "autoscaling.x-k8s.io/v1beta1"
    kind: str = "CapacityBuffer"
    status: dict[str, Any] = {}


class PodTemplate(_Spec, frozen=True):
    """`template` is as open as pods are; CapacityBuffers read the pod from it."""

    metadata: ObjectMeta
    template: dict[str, Any] = {}
    api_version: str = "v1"
    kind: str = "PodTemplate"


class Manifests(msgspec.Struct, frozen=True):
    """Everything users wrote for one cluster, each tuple sorted by name."""

    node_pools: tuple[NodePool, ...] = ()
    node_classes: tuple[EC2NodeClass, ...] = ()
    node_overlays: tuple[NodeOverlay, ...] = ()
    capacity_buffers: tuple[CapacityBuffer, ...] = ()
    pod_templates: tuple[PodTemplate, ...] = ()
