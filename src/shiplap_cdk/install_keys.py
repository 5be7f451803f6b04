"""The keys of shiplap.yaml: the type, the default, the explanation and the bounds of each.

`install_document` reads the file by them, and `install_schema` describes it to editors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, cast

import msgspec

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.disruption.repair.repair_policies import RepairPolicy
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.decoding import demands
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.settings import IMPROVE_S, KARPENTER_LEASE
from shiplap_cdk.policy_document import PolicyDocument, documents

CLUSTER_NAME = r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}"
SUBNET_ID = r"subnet-([0-9a-f]{8}|[0-9a-f]{17})"
SECURITY_GROUP_ID = r"sg-([0-9a-f]{8}|[0-9a-f]{17})"
# The retentions CloudWatch Logs knows that make sense for a function's log.
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
# S3 holds the days of a lifecycle rule in 32 bits.
_MOST_RETENTION_DAYS = 2**31 - 1
# What Lambda takes of a VPC.
_MOST_SUBNETS, _MOST_SECURITY_GROUPS = 16, 5

LIVE = "cluster"
"""In the place of a path to manifests: they are read from the API server."""

WATCH_MEMORY_MIB = 128
"""The least a function can have; enough to watch any cluster, and to keep snapshots of 50,000 pods."""

_MOST_MEMORY_MIB = 10_240


def _key(explanation: str, *, schema: Mapping[str, Any] | None = None, **limits: Any) -> msgspec.Meta:
    """For `Annotated`: a key's explanation, the fields of a Constraint, and what else JSON Schema can say of it."""
    bounds = demands(**limits)
    extra_json_schema = {"description": explanation, **(bounds.extra_json_schema or {}), **(schema or {})}
    return msgspec.Meta(extra=bounds.extra, extra_json_schema=extra_json_schema)


def _whole(pattern: str) -> str:
    """A pattern for the whole of a text."""
    return rf"^({pattern})\Z"


_TOPIC_ARN = r"|arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[0-9A-Za-z_-]{1,256}"
_SECRET_ARN = r"|arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[0-9A-Za-z/_+=.@-]{1,512}"  # noqa: S105 - a pattern
_KEY = (
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:)?((key/)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(key/)?mrk-[0-9a-f]+"
    r"|alias/[0-9A-Za-z/_-]{1,250})"
)
_BOUNDARY = r"|(arn:aws[a-z-]*:iam::(\d{12}|aws):policy/)?([\w+=,.@-]+/)*[\w+=,.@-]{1,128}"

SubnetId = Annotated[str, demands(pattern=_whole(SUBNET_ID), form="the id of a subnet")]
SecurityGroupId = Annotated[str, demands(pattern=_whole(SECURITY_GROUP_ID), form="the id of a security group")]
VolumeKey = Annotated[str, demands(pattern=_whole(_KEY), form="the id, ARN or alias of a KMS key")]
SnapshotId = Annotated[str, demands(pattern=_whole("snap-[0-9a-f]+"), form="the id of a snapshot, snap-…")]
AllowedSubnet = Annotated[str, demands(pattern=_whole("subnet-[0-9a-f]+"), form="the id of a subnet, subnet-…")]
AllowedGroup = Annotated[str, demands(pattern=_whole("sg-[0-9a-f]+"), form="the id of a security group, sg-…")]
Owner = Annotated[
    str,
    demands(
        pattern=_whole("[0-9]{12}|self|amazon|aws-marketplace"),
        form="an account of 12 digits, self, amazon or aws-marketplace",
    ),
]
ReservationId = Annotated[str, demands(pattern=_whole("cr-[0-9a-f]+"), form="the id of a capacity reservation, cr-…")]
GroupId = Annotated[str, demands(pattern=_whole("pg-[0-9a-f]+"), form="the id of a placement group, pg-…")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in shiplap.yaml."""


class VpcConfig(_Part, frozen=True):
    """The place of functions that call a private API endpoint: ids of subnets and security groups of one VPC."""

    subnets: Annotated[
        tuple[SubnetId, ...],
        _key("Private subnets of the functions; Lambda takes 16.", fewest=1, most_entries=_MOST_SUBNETS, unique=True),
    ]
    security_groups: Annotated[
        tuple[SecurityGroupId, ...],
        _key(
            "Security groups of the functions; Lambda takes 5.",
            fewest=1,
            most_entries=_MOST_SECURITY_GROUPS,
            unique=True,
        ),
    ]
    name: Annotated[
        str,
        _key(
            "Tells the networks of an install apart; one of them goes without.",
            pattern=_whole("|[a-z][a-z0-9]{0,15}"),
            form="a name of lower-case letters and digits, at most 16",
        ),
    ] = ""


class ClusterDocument(_Part, frozen=True):
    """One cluster as written.

    Optional features add keys of their own (`written_install`).
    """

    name: Annotated[
        str, _key("The name of the EKS cluster.", pattern=_whole(CLUSTER_NAME), form="the name of an EKS cluster")
    ]
    manifests: Annotated[
        str,
        _key(
            "NodePools, EC2NodeClasses and NodeOverlays: a file or folder, relative to this file; or `cluster`: the "
            "objects of the API server, whose EC2NodeClasses may name only what the lists of this cluster hold.",
            shortest=1,
        ),
    ]
    access: Annotated[
        str,
        _key(
            "`entry`: the stack makes EKS access entries for its functions; `none`: you map their roles. Without it, "
            "`entry`; for a cluster with `endpoint`, `none`.",
            choices=("", "entry", "none"),
        ),
    ] = ""
    vpc: Annotated[VpcConfig | None, _key("The place of the functions that talk to a private API endpoint.")] = None
    watch: Annotated[bool, _key("The watch function; without it pods wait for the sweep, at most a minute.")] = True
    audit: Annotated[
        bool, _key("The cluster's audit log as a further source of events; EKS must log `audit` already.")
    ] = False
    node_roles: Annotated[
        tuple[str, ...],
        _key(
            "Roles (name with path, not ARN), beside those of the EC2NodeClasses, that instance profiles of this "
            "cluster carry. With `manifests: cluster` the only roles that EC2NodeClasses may name."
        ),
    ] = ()
    volume_keys: Annotated[
        tuple[VolumeKey, ...],
        _key(
            "KMS keys (id, ARN or alias) beside those of the EC2NodeClasses: the one that the account encrypts volumes "
            "with by default, for example."
        ),
    ] = ()
    instance_profiles: Annotated[
        tuple[str, ...], _key("With `manifests: cluster`: instance profiles that EC2NodeClasses may name.")
    ] = ()
    image_parameters: Annotated[
        tuple[str, ...], _key("With `manifests: cluster`: SSM parameters that EC2NodeClasses may find images by.")
    ] = ()
    volume_snapshots: Annotated[
        tuple[SnapshotId, ...], _key("With `manifests: cluster`: snapshots that EC2NodeClasses may name.")
    ] = ()
    subnets: Annotated[
        tuple[AllowedSubnet, ...], _key("With `manifests: cluster`: subnets that selectors may match; all without.")
    ] = ()
    security_groups: Annotated[
        tuple[AllowedGroup, ...],
        _key("With `manifests: cluster`: security groups that selectors may match; all without."),
    ] = ()
    image_owners: Annotated[
        tuple[Owner, ...],
        _key("With `manifests: cluster`: owners of images that selectors may match; all without."),
    ] = ()
    capacity_reservations: Annotated[
        tuple[ReservationId, ...],
        _key("With `manifests: cluster`: capacity reservations that selectors may match; all without."),
    ] = ()
    placement_groups: Annotated[
        tuple[GroupId, ...],
        _key("With `manifests: cluster`: placement groups that selectors may match; all without."),
    ] = ()
    karpenter_lease: Annotated[
        str, _key("With `manifests: cluster`: nothing is launched while this Lease, NAMESPACE/NAME, is held.")
    ] = KARPENTER_LEASE
    endpoint: Annotated[str, _key("Address of the API server, for clusters outside EKS.")] = ""
    certificate_authority: Annotated[
        str, _key("The API server's certificate in base64, as a kubeconfig has it, for clusters outside EKS.")
    ] = ""
    token: Annotated[str, _key("A bearer token, only for a cluster on the same machine.")] = ""
    kubeconfig_secret: Annotated[
        str,
        _key(
            "ARN of a secret in Secrets Manager with a kubeconfig in JSON, for clusters without IAM access; give "
            "`endpoint` too.",
            pattern=_whole(_SECRET_ARN),
            form="the ARN of a secret in Secrets Manager",
        ),
    ] = ""
    kubernetes_version: Annotated[
        str,
        _key(
            "Minor version of a cluster outside EKS, in quotes: '1.34'.",
            pattern=_whole(r"|1\.\d{1,3}"),
            form="a minor version, for example '1.34'",
        ),
    ] = ""
    service_cidr: Annotated[str, _key("Range of the addresses of Services, for clusters outside EKS.")] = msgspec.field(
        default="", name="serviceCIDR"
    )
    vm_memory_overhead_percent: Annotated[
        float,
        _key(
            "Share of memory that the hypervisor keeps, as a fraction.",
            least=0,
            below=1,
            form="a fraction, for example 0.075",
        ),
    ] = 0.075
    reserved_enis: Annotated[int, _key("Network interfaces that pods cannot use.", least=0)] = msgspec.field(
        default=0, name="reservedENIs"
    )
    prefix_delegation: Annotated[
        str,
        _key(
            "Whether the VPC CNI gives pods addresses by prefixes; `auto`: as its DaemonSet says.",
            choices=("auto", "on", "off"),
        ),
    ] = "auto"
    preference_policy: Annotated[
        str,
        _key(
            "`Respect`: preferences bind until a pod cannot be placed. `Ignore`: they never bind.",
            choices=("Respect", "Ignore"),
        ),
    ] = "Respect"
    min_values_policy: Annotated[
        str,
        _key(
            "`Strict`: a launch offers at least `minValues`. `BestEffort`: as many as there are.",
            choices=("Strict", "BestEffort"),
        ),
    ] = "Strict"
    reserved_policy: Annotated[
        str,
        _key(
            "`Strict`: a pod for reserved capacity waits for the next decision. `Fallback`: it takes other capacity.",
            choices=("Strict", "Fallback"),
        ),
    ] = "Strict"
    pod_topology_spread: Annotated[
        PodTopologySpread,
        _key("kube-scheduler's configured default for pods without spread constraints."),
    ] = PodTopologySpread()
    placement: Annotated[
        str,
        _key(
            "How pods are steered to their nodes: `nominate` tells kube-scheduler, `bind` binds them, `none`.",
            choices=("none", "nominate", "bind"),
        ),
    ] = "nominate"
    join_timeout_s: Annotated[
        int, _key("Seconds after which an instance that has not joined is ended.", least=60, most=3600)
    ] = msgspec.field(default=900, name="joinTimeoutSeconds")
    unproven_nodes: Annotated[
        int, _key("Most nodes on their way at once on an AMI that no node has joined with.", least=1, most=5000)
    ] = 200
    unproven_pod_nodes: Annotated[
        int,
        _key(
            "Most nodes launched within five minutes for kinds of pods that the cluster has not run lately; 0: no "
            "bound.",
            least=0,
            most=5000,
        ),
    ] = 35
    node_repair: Annotated[bool, _key("Sick nodes are replaced.")] = True
    repair_policies: Annotated[
        tuple[RepairPolicy, ...],
        _key("How long bad conditions are waited out, by reason, and what follows; before the built-in policies."),
    ] = ()
    dry_run: Annotated[bool, _key("Check with EC2 that launches are allowed, before pods depend on it.")] = True
    zonal_shift: Annotated[
        bool, _key("Nothing is launched into a zone that ARC zonal shift has shifted away from.")
    ] = False
    paused: Annotated[bool, _key("Nothing is launched, registered, emptied or ended.")] = False
    improve_s: Annotated[
        float,
        _key(
            "Effort per decision to find cheaper nodes, in seconds of a server core; 0 for the first plan only.",
            least=0,
            most=60,
        ),
    ] = msgspec.field(default=IMPROVE_S, name="improveSeconds")
    claim_rules: Annotated[
        tuple[ClaimRule, ...], _key("The pods that belong to Shiplap, beside another autoscaler; every pod without.")
    ] = ()
    disruption: Annotated[DisruptionSettings, _key("Which nodes may be removed or replaced to save money.")] = (
        DisruptionSettings()
    )

    @property
    def reads_cluster(self) -> bool:
        """True if the manifests are those of the cluster's API server."""
        return self.manifests == LIVE

    @property
    def allowed(self) -> AllowedResources:
        """Return the resources that EC2NodeClasses of the cluster's API server may name."""
        return AllowedResources(**{field: getattr(self, field) for field in AllowedResources.__struct_fields__})


class OtlpDocument(_Part, frozen=True):
    """A collector of OpenTelemetry that takes OTLP/HTTP in JSON."""

    endpoint: Annotated[str, _key("Its address, for example https://collector.example.com/v1/metrics.")]
    headers_secret: Annotated[
        str,
        _key(
            "ARN of the secret with its headers, a JSON object.",
            pattern=_whole(_SECRET_ARN),
            form="the ARN of a secret in Secrets Manager",
        ),
    ] = ""


_CLUSTERS = _key("The clusters that the install serves.", schema={"minItems": 1})


class InstallDocument(_Part, frozen=True):
    """The whole of shiplap.yaml: one install of Shiplap, which serves clusters of one Region.

    Optional features add keys of their own (`written_install`).
    """

    region: Annotated[str, _key("The Region of the stack and of its clusters.")]
    clusters: Annotated[tuple[ClusterDocument, ...], _CLUSTERS]
    name: Annotated[
        str,
        _key(
            "Prefix of the bus, queues, functions and logs; tells installs of one account and Region apart.",
            pattern=_whole("[a-z][a-z0-9-]{0,30}"),
            form="a name of lower-case letters, digits and dashes, at most 31",
        ),
    ] = "shiplap"
    account: Annotated[
        str,
        _key("Twelve digits, in quotes; the caller's account without.", pattern=_whole(r"|\d{12}"), form="12 digits"),
    ] = ""
    log_retention_days: Annotated[
        int, _key("Days that CloudWatch keeps logs of functions.", one_of=LOG_RETENTION_DAYS)
    ] = 30
    record_retention_days: Annotated[
        int,
        _key("Days that the bucket keeps recorded decisions.", least=1, most=_MOST_RETENTION_DAYS),
    ] = 30
    alarm_topic: Annotated[
        str,
        _key(
            "ARN of an SNS topic in the same Region that receives alarms; without it they only show in CloudWatch.",
            pattern=_whole(_TOPIC_ARN),
            form="the ARN of an SNS topic in the install's Region",
        ),
    ] = ""
    watch_memory_mib: Annotated[
        int,
        _key(
            "Memory of the watch function: it keeps snapshots of clusters of (MiB - 90) x 1,400 pods.",
            least=WATCH_MEMORY_MIB,
            most=_MOST_MEMORY_MIB,
        ),
    ] = WATCH_MEMORY_MIB
    snap_start: Annotated[
        bool, _key("Functions start from a snapshot instead of cold; each retained version is paid for.")
    ] = False
    tracing: Annotated[bool, _key("Traces in X-Ray.")] = False
    dashboard: Annotated[bool, _key("A dashboard in CloudWatch.")] = True
    cluster_metrics: Annotated[
        bool,
        _key(
            "Also write what is known of each cluster, NodePool and tier as metrics of its own, each of which is paid "
            "for."
        ),
    ] = False
    otlp: Annotated[OtlpDocument | None, _key("Send metrics to an OpenTelemetry collector as well.")] = None
    permissions_boundary: Annotated[
        str,
        _key(
            "Name (with path) or ARN of the IAM policy that bounds every role of the stack.",
            pattern=_whole(_BOUNDARY),
            form="the name or ARN of an IAM policy, for example arn:aws:iam::123456789012:policy/developers",
        ),
    ] = ""
    bootstrap_qualifier: Annotated[
        str,
        _key(
            "Qualifier of the `cdk bootstrap` that deploys the stack; the CDK's own without.",
            pattern=_whole("|[0-9A-Za-z_-]{1,10}"),
            form="a qualifier of letters, digits, - and _, at most 10",
        ),
    ] = ""


def of_clusters() -> list[tuple[str, PolicyDocument]]:
    """Return the optional features that have a key of a cluster."""
    return [(name, document) for name, document in documents() if document.of_cluster is not None]


def of_installs() -> list[tuple[str, PolicyDocument]]:
    """Return the optional features that have a key of the install."""
    return [(name, document) for name, document in documents() if document.of_install is not None]


@cache
def written_install() -> type[InstallDocument]:
    """Return the struct of the whole file: an InstallDocument with the keys of optional features, named by them."""
    keys = [(name, *_explained(part, part.of_cluster)) for name, part in documents() if part.of_cluster is not None]
    cluster = _with_keys(ClusterDocument, keys)
    fields: list[Any] = [("clusters", Annotated[tuple[cluster, ...], _CLUSTERS])]  # type: ignore[valid-type]
    fields += [(name, *_explained(part, part.of_install)) for name, part in documents() if part.of_install is not None]
    return cast("type[InstallDocument]", _with_keys(InstallDocument, fields))


def _explained(part: PolicyDocument, key: tuple[Any, Any]) -> tuple[Any, Any]:
    """Type and default of an optional feature's key, with its explanation."""
    return Annotated[key[0], _key(part.explanation)], key[1]


def _with_keys(base: type[msgspec.Struct], fields: list[Any]) -> type[msgspec.Struct]:
    """A struct with further fields, under the name and docstring of its base."""
    first_sentence = {"__doc__": (base.__doc__ or "").partition("\n")[0]}
    return msgspec.defstruct(base.__name__, fields, bases=(base,), namespace=first_sentence, frozen=True)


def keys_of_install(install: InstallDocument) -> dict[str, Any]:
    """Return the keys of the install that optional features have, by the names of the features."""
    return {name: getattr(install, name) for name, _ in of_installs()}
