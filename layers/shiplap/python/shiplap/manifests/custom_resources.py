"""The manifests users write, typed: NodePool, EC2NodeClass, NodeOverlay and CapacityBuffer.

Field names are upstream's in snake_case (camelCase on the wire). Durations stay text here and are parsed by
`times`; quantities stay text and are parsed by `kubernetes.quantity`. Unknown fields are refused on decoding.
`demands` repeats what the CRDs demand of single fields, so that a manifest is refused here where it would be there.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from shiplap.kubernetes.objects import ObjectMeta, Taint
from shiplap.manifests.decoding import demands

_AMOUNT = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
Quantity = Annotated[
    str | int,
    demands(
        pattern=rf"^[-+]?{_AMOUNT}([KMGTPE]i|[numkMGTPE]|[eE][-+]?{_AMOUNT})?\Z",
        form="a quantity: expected digits and an optional suffix such as m, k, Mi, Gi",
    ),
]
_DOMAIN = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
LABEL_KEY = rf"^{_DOMAIN}([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z"
"""How a label key is spelled, its length aside."""
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z"
_VALUE_FORM = "a label value: letters, digits, '-', '_' and '.', with a letter or digit at either end"
_DURATION = r"([0-9]+[smh])+"
_DURATION_FORM = "a duration: expected whole numbers with s, m or h, such as 90s or 1h30m"
DurationOrNever = Annotated[str, demands(pattern=rf"^({_DURATION}|Never)\Z", form=f"{_DURATION_FORM}, or Never")]
NotEmpty = Annotated[str, demands(shortest=1)]
Count = Annotated[int, demands(least=0, most=2**31 - 1)]
SelectorTags = Annotated[dict[str, str], demands(most_entries=20)]
Switch = Annotated[str, demands(choices=("enabled", "disabled"))]

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
CONSOLIDATION_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
BUDGET_REASONS = ("Underutilized", "Empty", "Drifted", "Unhealthy")
AMI_FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
VOLUME_TYPES = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")

_KEY_FORM = "a label key: a name of letters, digits, '-', '_' or '.', with or without a domain and '/' before it"
_BUDGET_DURATION = r"^([0-9]+h[0-9]+m|[0-9]+[hm])(0s)?\Z"
_SCHEDULE = r"^@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\s(.+)\s(.+)\s(.+)\s(.+)\Z"
_GIBIBYTES, _GIGABYTES = (
    r"[1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000",
    r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000",
)
_TEBIBYTES, _TERABYTES = r"[1-9]?|[1-5][0-7]|58", r"[1-9]?|[1-5][0-9]|6[0-3]|64"
_VOLUME_SIZE = rf"^(({_GIBIBYTES})Gi|({_GIGABYTES})G|({_TEBIBYTES})Ti|({_TERABYTES})T)\Z"
_PRICE_CHANGE = r"^([-+]\d*\.?\d+|\+\d*\.?\d+%|-\d{1,2}(\.\d+)?%|-100%)\Z"


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything a user writes."""


class RequirementSpec(_Spec, frozen=True):
    """One line of `requirements`; `values` of an `In` may hold globs (see `tiers`)."""

    key: Annotated[str, demands(pattern=LABEL_KEY, longest=316, form=_KEY_FORM)]
    operator: Annotated[str, demands(choices=OPERATORS)]
    values: tuple[str, ...] = ()
    min_values: Annotated[int, demands(least=1, most=50)] | None = None


class NodeClassReference(_Spec, frozen=True):
    name: NotEmpty
    kind: Annotated[str, demands(shortest=1, required=True)] = "EC2NodeClass"
    group: Annotated[
        str, demands(shortest=1, required=True, pattern=r"^[^/]*\Z", form="an API group: it holds no '/'")
    ] = "karpenter.k8s.aws"


class TemplateMetadata(_Spec, frozen=True):
    labels: Annotated[
        dict[str, Annotated[str, demands(pattern=LABEL_VALUE, longest=63, form=_VALUE_FORM)]],
        demands(most_entries=100),
    ] = {}
    annotations: dict[str, str] = {}


class NodeClaimTemplateSpec(_Spec, frozen=True):
    node_class_ref: NodeClassReference
    requirements: Annotated[tuple[RequirementSpec, ...], demands(most_entries=100, required=True)] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: DurationOrNever = "720h"
    termination_grace_period: Annotated[str, demands(pattern=rf"^{_DURATION}\Z", form=_DURATION_FORM)] | None = None


class NodePoolTemplate(_Spec, frozen=True):
    spec: NodeClaimTemplateSpec
    metadata: TemplateMetadata = TemplateMetadata()


class Budget(_Spec, frozen=True):
    nodes: Annotated[
        str, demands(pattern=r"^((100|[0-9]{1,2})%|[0-9]+)\Z", form="a whole number or a percentage from 0% to 100%")
    ] = "10%"
    schedule: Annotated[str, demands(pattern=_SCHEDULE, form="a cron schedule of five fields")] | None = None
    duration: (
        Annotated[
            str,
            demands(
                pattern=_BUDGET_DURATION, form="a budget's duration: expected hours and minutes, such as 8h or 1h30m"
            ),
        ]
        | None
    ) = None
    reasons: (
        Annotated[tuple[Annotated[str, demands(choices=BUDGET_REASONS)], ...], demands(most_entries=50, unique=True)]
        | None
    ) = None


class Disruption(_Spec, frozen=True):
    consolidate_after: DurationOrNever = "0s"
    consolidation_policy: Annotated[str, demands(choices=CONSOLIDATION_POLICIES)] = "WhenEmptyOrUnderutilized"
    budgets: Annotated[tuple[Budget, ...], demands(most_entries=50)] = (Budget(),)


class NodePoolSpec(_Spec, frozen=True):
    template: NodePoolTemplate
    disruption: Disruption = Disruption()
    limits: dict[str, Quantity] = {}
    weight: Annotated[int, demands(least=1, most=100)] = 0
    replicas: Count | None = None


class NodePool(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: NodePoolSpec
    api_version: str = "karpenter.sh/v1"
    kind: str = "NodePool"
    status: dict[str, Any] = {}


class SubnetSelectorTerm(_Spec, frozen=True):
    tags: SelectorTags = {}
    id: Annotated[str, demands(pattern="subnet-[0-9a-z]+", form="of the form subnet-0123abcd")] = ""


class SecurityGroupSelectorTerm(_Spec, frozen=True):
    tags: SelectorTags = {}
    id: Annotated[str, demands(pattern="sg-[0-9a-z]+", form="of the form sg-0123abcd")] = ""
    name: str = ""


class CapacityReservationSelectorTerm(_Spec, frozen=True):
    tags: SelectorTags = {}
    id: Annotated[str, demands(pattern=r"^cr-[0-9a-z]+\Z", form="of the form cr-0123abcd")] = ""
    owner_id: Annotated[str, demands(pattern=r"^[0-9]{12}\Z", form="an account of 12 digits")] = msgspec.field(
        default="", name="ownerID"
    )
    instance_match_criteria: Annotated[str, demands(choices=("open", "targeted"))] = ""


class AmiSelectorTerm(_Spec, frozen=True):
    alias: Annotated[str, demands(longest=30)] = ""
    tags: SelectorTags = {}
    id: Annotated[str, demands(pattern="ami-[0-9a-z]+", form="of the form ami-0123abcd")] = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


class PlacementGroupSelector(_Spec, frozen=True):
    name: NotEmpty = ""
    id: Annotated[str, demands(pattern=r"^pg-[0-9a-z]+\Z", form="of the form pg-0123abcd")] = ""


class BlockDevice(_Spec, frozen=True):
    delete_on_termination: bool | None = None
    encrypted: bool | None = None
    iops: int | None = None
    kms_key_id: str | None = msgspec.field(default=None, name="kmsKeyID")
    snapshot_id: str | None = msgspec.field(default=None, name="snapshotID")
    throughput: int | None = None
    volume_initialization_rate: Annotated[int, demands(least=100, most=300)] | None = None
    volume_size: (
        Annotated[
            str,
            demands(
                pattern=_VOLUME_SIZE,
                unit="Gi",
                form="a volume size: expected a whole number with Gi, G, Ti or T "
                "(1Gi to 59000Gi, 1G to 64000G, 1Ti to 58Ti, 1T to 64T)",
            ),
        ]
        | None
    ) = None
    volume_type: Annotated[str, demands(choices=VOLUME_TYPES)] | None = None


class BlockDeviceMapping(_Spec, frozen=True):
    device_name: str = ""
    root_volume: bool = False
    ebs: BlockDevice | None = None


class NetworkInterface(_Spec, frozen=True):
    network_card_index: Annotated[int, demands(least=0, most=2**31 - 1, required=True)] = 0
    device_index: Annotated[int, demands(least=0, most=2**31 - 1, required=True)] = 0
    interface_type: Annotated[str, demands(choices=("interface", "efa-only"), required=True)] = "interface"


class MetadataOptions(_Spec, frozen=True):
    http_endpoint: Switch = "enabled"
    http_protocol_ipv6: Switch = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[int, demands(least=1, most=64)] = 1
    http_tokens: Annotated[str, demands(choices=("required", "optional"))] = "required"


class ConnectionTracking(_Spec, frozen=True):
    """Timeouts in seconds."""

    tcp_established_timeout: Annotated[int, demands(least=60, most=432000)] | None = None
    udp_stream_timeout: Annotated[int, demands(least=60, most=180)] | None = None
    udp_timeout: Annotated[int, demands(least=30, most=60)] | None = None


class CpuOptions(_Spec, frozen=True):
    nested_virtualization: Switch | None = None


class EnclaveOptions(_Spec, frozen=True):
    enabled: Annotated[bool, demands(required=True)] = False


class EC2NodeClassSpec(_Spec, frozen=True):
    """`kubelet` is upstream's open map; `kubelet_settings` reads the fields that shape capacity from it."""

    subnet_selector_terms: Annotated[tuple[SubnetSelectorTerm, ...], demands(most_entries=30, required=True)] = ()
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupSelectorTerm, ...], demands(most_entries=30, required=True)
    ] = ()
    ami_selector_terms: Annotated[tuple[AmiSelectorTerm, ...], demands(fewest=1, most_entries=30, required=True)] = ()
    capacity_reservation_selector_terms: Annotated[
        tuple[CapacityReservationSelectorTerm, ...], demands(most_entries=30)
    ] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    ami_family: Annotated[str, demands(choices=AMI_FAMILIES)] = ""
    user_data: str | None = None
    role: str = ""
    instance_profile: str = ""
    tags: dict[str, str] = {}
    kubelet: dict[str, Any] = {}
    block_device_mappings: Annotated[tuple[BlockDeviceMapping, ...], demands(most_entries=50)] = ()
    instance_store_policy: Annotated[str, demands(choices=("RAID0",))] | None = None
    detailed_monitoring: bool | None = None
    associate_public_ip_address: bool | None = msgspec.field(default=None, name="associatePublicIPAddress")
    ip_prefix_count: Count | None = None
    network_interfaces: Annotated[tuple[NetworkInterface, ...], demands(most_entries=150)] = ()
    metadata_options: MetadataOptions = MetadataOptions()
    connection_tracking: ConnectionTracking | None = None
    cpu_options: CpuOptions | None = None
    context: str | None = None
    enclave_options: EnclaveOptions | None = None


class EC2NodeClass(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: EC2NodeClassSpec
    api_version: str = "karpenter.k8s.aws/v1"
    kind: str = "EC2NodeClass"
    status: dict[str, Any] = {}


class NodeOverlaySpec(_Spec, frozen=True):
    requirements: Annotated[tuple[RequirementSpec, ...], demands(most_entries=100, required=True)] = ()
    price_adjustment: (
        Annotated[
            str,
            demands(
                pattern=_PRICE_CHANGE,
                form="an adjustment: expected a sign and a decimal or percentage, such as -10% or +0.1",
            ),
        ]
        | None
    ) = None
    price: (
        Annotated[
            str, demands(pattern=r"^\d+(\.\d+)?\Z", form="a price: expected a decimal without sign, such as 0.42")
        ]
        | None
    ) = None
    capacity: dict[str, Quantity] = {}
    weight: Annotated[int, demands(least=1, most=10000)] = 0


class NodeOverlay(_Spec, frozen=True):
    metadata: ObjectMeta
    spec: NodeOverlaySpec
    api_version: str = "karpenter.sh/v1alpha1"
    kind: str = "NodeOverlay"
    status: dict[str, Any] = {}


class LocalReference(_Spec, frozen=True):
    name: NotEmpty


class ScalableReference(_Spec, frozen=True):
    kind: NotEmpty
    name: NotEmpty
    api_group: str = "apps"


class CapacityBufferSpec(_Spec, frozen=True):
    """`replicas`, and `percentage` of the scalable's replicas: the larger of both counts, cut by `limits`."""

    provisioning_strategy: str = "buffer.x-k8s.io/active-capacity"
    pod_template_ref: LocalReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: Count | None = None
    percentage: Count | None = None
    limits: dict[str, Quantity] = {}


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
