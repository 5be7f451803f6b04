"""Reads `shiplap.yaml`, the one file a platform team writes, and everything it refers to.

Mistakes stop the synth with file, line, field and reason. What the functions need is compiled to `shiplap.settings`;
the rest (network, access, retention) shapes the stack.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import botocore
import msgspec

from shiplap.aws.instance_profiles import identity_path, role_name
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances.catalog.ami_families import family_of
from shiplap.manifests.claim_rules import ClaimRule, rule_problems
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.manifests.decoding import Path as Where
from shiplap.manifests.decoding import Problem, decode, field_name
from shiplap.manifests.files.documents import Document, read_documents
from shiplap.manifests.files.loading import load_manifests
from shiplap.manifests.files.manifest_folders import find_documents
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.manifests.validation.nodeclass_rules import is_role_name, not_a_role
from shiplap.policies.policy_settings import chosen
from shiplap.regions import exists, nearest, partition_of
from shiplap.settings import IMPROVE_S, KARPENTER_LEASE, ClusterSettings, OtlpSettings, Settings
from shiplap_cdk.policy_document import PolicyDocument, documents
from shiplap_cdk.region_differences import Feature, gap

# The retentions CloudWatch Logs knows that make sense for a function's log.
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_INSTALL_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_NETWORK_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
# `shiplap-schedule` may be an install's name: its function `watch` must not be our `schedule` in a network `watch`.
_FUNCTIONS = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "audit", "widget")
_RESERVED_NAMES = (*_FUNCTIONS, "provisioning", "interruption")
_NETWORK_ID = re.compile(r"(subnet|sg)-([0-9a-f]{8}|[0-9a-f]{17})")
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:(?P<region>[a-z0-9-]+):\d{12}:[0-9A-Za-z_-]{1,256}")
_SECRET = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[0-9A-Za-z/_+=.@-]{1,512}")
_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:)?((key/)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(key/)?mrk-[0-9a-f]+"
    r"|alias/[0-9A-Za-z/_-]{1,250})"
)
_BOUNDARY = re.compile(r"(arn:aws[a-z-]*:iam::(\d{12}|aws):policy/)?([\w+=,.@-]+/)*[\w+=,.@-]{1,128}", re.ASCII)
_QUALIFIER = re.compile(r"[0-9A-Za-z_-]{1,10}")
_VERSION = re.compile(r"1\.\d{1,3}")
# S3 holds the days of a lifecycle rule in 32 bits.
_MOST_RETENTION_DAYS = 2**31 - 1
# What Lambda takes of a VPC.
_MOST_SUBNETS, _MOST_SECURITY_GROUPS = 16, 5
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in shiplap.yaml."""


class VpcConfig(_Part, frozen=True):
    """The place of functions that call a private API endpoint: ids of subnets and security groups of one VPC.

    `name` tells the networks of an install apart; one of them goes without.
    """

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    name: str = ""


class ClusterDocument(_Part, frozen=True):
    """One cluster as written. `access` is `entry` (an EKS access entry made by the stack) or `none` (mapped by others).

    `manifests` is a file or folder, relative to shiplap.yaml, or `cluster`: then the functions read them from the
    API server, and the lists beside it say what its EC2NodeClasses may name (see `AllowedResources`). `node_roles`
    names roles, beside those of the EC2NodeClasses, that instance profiles of this cluster carry. `volume_keys`
    names KMS keys, by id, ARN or alias, beside those of the EC2NodeClasses: the one that the account encrypts
    volumes with by default, for example. `watch` and `audit` are sources of events beside the sweep. Optional
    features add keys of their own (`written_install`).
    """

    name: str
    manifests: str
    access: str = ""
    vpc: VpcConfig | None = None
    watch: bool = True
    audit: bool = False
    node_roles: tuple[str, ...] = ()
    volume_keys: tuple[str, ...] = ()
    instance_profiles: tuple[str, ...] = ()
    image_parameters: tuple[str, ...] = ()
    volume_snapshots: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    image_owners: tuple[str, ...] = ()
    capacity_reservations: tuple[str, ...] = ()
    placement_groups: tuple[str, ...] = ()
    karpenter_lease: str = KARPENTER_LEASE
    endpoint: str = ""
    certificate_authority: str = ""
    token: str = ""
    kubeconfig_secret: str = ""
    kubernetes_version: str = ""
    service_cidr: str = msgspec.field(default="", name="serviceCIDR")
    vm_memory_overhead_percent: float = 0.075
    reserved_enis: int = msgspec.field(default=0, name="reservedENIs")
    prefix_delegation: str = "auto"
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    reserved_policy: str = "Strict"
    pod_topology_spread: PodTopologySpread = PodTopologySpread()
    placement: str = "nominate"
    join_timeout_s: int = msgspec.field(default=900, name="joinTimeoutSeconds")
    unproven_nodes: int = 200
    unproven_pod_nodes: int = 35
    node_repair: bool = True
    dry_run: bool = True
    zonal_shift: bool = False
    paused: bool = False
    improve_s: float = msgspec.field(default=IMPROVE_S, name="improveSeconds")
    claim_rules: tuple[ClaimRule, ...] = ()
    disruption: DisruptionSettings = DisruptionSettings()

    @property
    def reads_cluster(self) -> bool:
        """True if the manifests are those of the cluster's API server."""
        return self.manifests == LIVE

    @property
    def allowed(self) -> AllowedResources:
        """Return the resources that EC2NodeClasses of the cluster's API server may name."""
        return AllowedResources(**{field: getattr(self, field) for field in AllowedResources.__struct_fields__})


def _of_clusters() -> list[tuple[str, PolicyDocument]]:
    """Return the optional features that have a key of a cluster."""
    return [(name, document) for name, document in documents() if document.of_cluster is not None]


def _of_installs() -> list[tuple[str, PolicyDocument]]:
    """Return the optional features that have a key of the install."""
    return [(name, document) for name, document in documents() if document.of_install is not None]


def _key(policy: str) -> str:
    """Return the key of a policy in shiplap.yaml."""
    first, *more = policy.split("_")
    return first + "".join(part.title() for part in more)


LIVE = "cluster"
"""In the place of a path to manifests: they are read from the API server."""

WATCH_MEMORY_MIB = 128
"""The least a function can have; enough to watch any cluster, and to keep snapshots of 50,000 pods."""

_MOST_MEMORY_MIB = 10_240


class OtlpDocument(_Part, frozen=True):
    """A collector that takes OTLP/HTTP in JSON, and the ARN of the secret with its headers, a JSON object."""

    endpoint: str
    headers_secret: str = ""


class InstallDocument(_Part, frozen=True):
    """The whole of shiplap.yaml. `name` tells several installs of one account and Region apart.

    `alarm_topic` is the ARN of the SNS topic that alarms are told to; without it they only show in CloudWatch.
    `watch_memory_mib` is what the watch function has: it keeps snapshots of clusters of (MiB - 90) x 1,400 pods.
    `snap_start` restores functions from a snapshot instead of starting them cold; `tracing` sends traces to X-Ray.
    `dashboard` makes one in CloudWatch. `cluster_metrics` writes what is known of each cluster, NodePool and tier as
    metrics of its own, each of which is paid for, beside the figures of all clusters together. `otlp` sends metrics to
    an OpenTelemetry collector as well. `permissions_boundary` is the name, with its path, or the ARN of the policy that
    bounds every role of the stack. `bootstrap_qualifier` says which `cdk bootstrap` of the account the stack is
    deployed by; empty is the CDK's own. Optional features add keys of their own (`written_install`).
    """

    region: str
    clusters: tuple[ClusterDocument, ...]
    name: str = "shiplap"
    account: str = ""
    log_retention_days: int = 30
    record_retention_days: int = 30
    alarm_topic: str = ""
    watch_memory_mib: int = WATCH_MEMORY_MIB
    snap_start: bool = False
    tracing: bool = False
    dashboard: bool = True
    cluster_metrics: bool = False
    otlp: OtlpDocument | None = None
    permissions_boundary: str = ""
    bootstrap_qualifier: str = ""


@cache
def written_install() -> type[InstallDocument]:
    """Return the struct of the whole file: an InstallDocument with the keys of optional features, named by them."""
    keys = [(name, *document.of_cluster) for name, document in _of_clusters() if document.of_cluster is not None]
    cluster = msgspec.defstruct(ClusterDocument.__name__, keys, bases=(ClusterDocument,), frozen=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [("clusters", tuple[cluster, ...])]  # type: ignore[valid-type]
    fields += [(name, *document.of_install) for name, document in _of_installs() if document.of_install is not None]
    made = msgspec.defstruct("InstallDocument", fields, bases=(InstallDocument,), frozen=True)
    return cast("type[InstallDocument]", made)


def keys_of_install(install: InstallDocument) -> dict[str, Any]:
    """Return the keys of the install that optional features have, by the names of the features."""
    return {name: getattr(install, name) for name, _ in _of_installs()}


class ServedCluster(msgspec.Struct, frozen=True):
    """A cluster the stack serves: what was written, and what the functions are told."""

    document: ClusterDocument
    settings: ClusterSettings

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.document.name

    @property
    def access_entry(self) -> bool:
        """True if the stack makes EKS access entries for this cluster."""
        return self.document.access == "entry"

    @property
    def asks_eks(self) -> bool:
        """True if functions ask EKS about this cluster: for the address of its API server, or for its ARN."""
        return not self.document.endpoint or self.document.zonal_shift

    @property
    def own_node_role(self) -> str:
        """By this name an EC2NodeClass asks for the node role that the stack makes."""
        return own_node_role(self.name)

    @property
    def has_own_node_role(self) -> bool:
        """True if the stack makes a node role: an EC2NodeClass, or `nodeRoles`, names it."""
        return self.own_node_role in self.node_roles

    def identity_path(self, *below: str) -> str:
        """The path in IAM of what the stack makes for the nodes of this cluster; no other install's is below it."""
        return identity_path(self.settings.install, self.settings.region, self.name, *below)

    @property
    def node_entry_type(self) -> str:
        """The type of the access entry that lets nodes with the stack's role join, empty if the stack makes none."""
        if not self.access_entry:
            return ""
        own = [item for item in self.settings.manifests.node_classes if item.spec.role == self.own_node_role]
        return "EC2_WINDOWS" if any(_is_windows(item) for item in own) else "EC2_LINUX"

    @property
    def is_ipv6(self) -> bool:
        """True if pods and services have IPv6 addresses: EKS gives them by the family of the service range."""
        return ":" in self.settings.service_cidr

    @property
    def profile_roles(self) -> tuple[str, ...]:
        """Names of the roles that the stack makes an instance profile for, sorted; IAM takes no account of paths."""
        named = self.roles_in_manifests | ({self.own_node_role} if self.has_own_node_role else set())
        return tuple(sorted({role_name(role) for role in named}))

    @property
    def roles_in_manifests(self) -> frozenset[str]:
        """Roles named by EC2NodeClasses, or that they may name."""
        if self.document.reads_cluster:
            return frozenset(self.document.node_roles)
        return frozenset({node_class.spec.role for node_class in self.settings.manifests.node_classes} - {""})

    @property
    def node_roles(self) -> tuple[str, ...]:
        """All roles nodes of this cluster may carry, sorted."""
        return tuple(sorted(self.roles_in_manifests | set(self.document.node_roles)))

    @property
    def image_parameters(self) -> frozenset[str]:
        """SSM parameters that EC2NodeClasses find images by: names, without a leading slash, or ARNs."""
        terms = [term for item in self.settings.manifests.node_classes for term in item.spec.ami_selector_terms]
        names = {term.ssm_parameter.removeprefix("/") for term in terms}
        names |= {name.removeprefix("/") for name in self.document.image_parameters}
        return frozenset(name for name in names if name and not name.startswith("aws/service/"))

    @property
    def volume_keys(self) -> frozenset[str]:
        """KMS keys that volumes are encrypted with: ids, ARNs or aliases."""
        specs = [item.spec for item in self.settings.manifests.node_classes]
        devices = [mapping.ebs for spec in specs for mapping in spec.block_device_mappings]
        named = {ebs.kms_key_id for ebs in devices if ebs is not None and ebs.kms_key_id}
        return frozenset(named | set(self.document.volume_keys))


class InstallConfig(msgspec.Struct, frozen=True):
    """Everything the stack is built from; clusters sorted by name."""

    document: InstallDocument
    clusters: tuple[ServedCluster, ...]

    @property
    def networks(self) -> dict[str, tuple[ServedCluster, ...]]:
        """Clusters by the name of their network group, sorted. All clusters of a group have the same `vpc`, or none."""
        names = sorted({cluster.settings.network for cluster in self.clusters})
        return {name: tuple(cluster for cluster in self.clusters if cluster.settings.network == name) for name in names}

    @property
    def audited(self) -> tuple[ServedCluster, ...]:
        """Clusters whose audit log is a source of events."""
        return tuple(cluster for cluster in self.clusters if cluster.document.audit)

    def settings(self) -> Settings:
        """Return the settings that are compiled into the settings layer."""
        written = self.document.otlp
        otlp = OtlpSettings(written.endpoint, written.headers_secret) if written is not None else None
        clusters = tuple(cluster.settings for cluster in self.clusters)
        return Settings(clusters, self.document.cluster_metrics, otlp)


def own_node_role(cluster: str) -> str:
    """By this name an EC2NodeClass asks for the node role that the stack makes."""
    return f"shiplap-node-{cluster}"


def in_group(name: str, group: str) -> str:
    """The name of a function or queue of a network group, within its install."""
    return f"{name}-{group}" if group else name


def read(path: Path) -> InstallConfig:
    """Read shiplap.yaml and the manifests of its clusters.

    Raises:
        InvalidInput: the file cannot be read or is not YAML.
        InvalidManifests: it, or a manifest it refers to, says something wrong; holds all problems of that file.
    """
    if not path.exists():
        wanted = "`shiplap init` writes a first one; or name another (--settings, or `npx cdk -c settings=PATH`)"
        raise InvalidInput(str(path), f"does not exist; {wanted}")
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document, found {len(documents)}")
    source = documents[0]
    install, problems = decode(source.data, written_install())
    if install is not None:
        problems += _problems(install)
    if install is None or problems:
        raise InvalidManifests([_refusal(source, where, reason) for where, reason in problems])
    clusters = [_cluster(source, index, install, path.parent) for index in range(len(install.clusters))]
    return InstallConfig(install, tuple(sorted(clusters, key=lambda cluster: cluster.name)))


def refusal(path: Path, where: Where, reason: str) -> InvalidInput:
    """Return the error for a field of the install that a shiplap.yaml describes."""
    return _refusal(read_documents(path)[0], where, reason)


def _cluster(source: Document, index: int, install: InstallDocument, folder: Path) -> ServedCluster:
    document = install.clusters[index]
    default_access = "none" if document.endpoint else "entry"
    written = msgspec.structs.replace(document, access=document.access or default_access)
    network = document.vpc.name if document.vpc else ""
    shared = set(ClusterSettings.__struct_fields__) & set(ClusterDocument.__struct_fields__)
    values: dict[str, Any] = {field: getattr(document, field) for field in shared}
    values |= {"region": install.region, "install": install.name, "network": network}
    found = (
        part.settings_of(getattr(document, name, None), getattr(install, name, None)) for name, part in documents()
    )
    values["policies"] = chosen(*(item for item in found if item is not None))
    manifests_path = folder / document.manifests
    if document.reads_cluster:
        if manifests_path.exists():
            reason = f"means the API server, and {manifests_path} exists: write ./{LIVE} for it, or move it away"
            raise _refusal(source, ("clusters", index, "manifests"), reason)
        values |= {"live_manifests": True, "allowed": document.allowed, "manifests": Manifests()}
        return ServedCluster(written, ClusterSettings(**values))
    if not manifests_path.exists():
        raise _refusal(source, ("clusters", index, "manifests"), f"{manifests_path} does not exist")
    values["manifests"] = load_manifests([manifests_path])
    _refuse_misfits(source, index, document, values["manifests"])
    _refuse_roles_that_iam_cannot_have(manifests_path, document.name)
    _refuse_other_partitions(manifests_path, install.region)
    for name, part in _of_installs():
        _refuse_annotations(manifests_path, part.unwelcome(getattr(install, name)))
    if written.access == "entry":
        _refuse_roles_of_two_systems(manifests_path)
    return ServedCluster(written, ClusterSettings(**values))


def _refuse_misfits(source: Document, index: int, document: ClusterDocument, manifests: Manifests) -> None:
    """Raises InvalidManifests for what optional features name and the manifests do not have."""
    problems = [
        _refusal(source, ("clusters", index, _key(name), *field), reason)
        for name, part in _of_clusters()
        for field, reason in part.misfits(getattr(document, name), manifests)
    ]
    if problems:
        raise InvalidManifests(problems)


def _node_classes(manifests: Path) -> Iterator[tuple[Document, EC2NodeClass]]:
    """EC2NodeClasses, with where they are written."""
    for document in find_documents([manifests]).ours:
        if document.data.get("kind") == "EC2NodeClass":
            node_class, _ = decode(document.data, EC2NodeClass)
            if node_class is not None:
                yield document, node_class


def _with_role(manifests: Path) -> Iterator[tuple[Document, EC2NodeClass]]:
    return ((document, item) for document, item in _node_classes(manifests) if item.spec.role)


def _refuse_annotations(manifests: Path, unwelcome: Mapping[str, str]) -> None:
    """Raises InvalidManifests for NodePools with annotations that an optional feature does not bear."""
    documents = find_documents([manifests]).ours if unwelcome else ()
    problems = [
        _refusal(document, ("metadata", "annotations", name), reason)
        for document in documents
        if document.data.get("kind") == "NodePool"
        for name, reason in unwelcome.items()
        if name in ((document.data.get("metadata") or {}).get("annotations") or {})
    ]
    if problems:
        raise InvalidManifests(problems)


def _refuse_roles_that_iam_cannot_have(manifests: Path, cluster: str) -> None:
    """Raises InvalidManifests; the role that the stack makes may be asked for by a name that is longer than IAM's."""
    problems = [
        _refusal(document, ("spec", "role"), not_a_role(item.spec.role))
        for document, item in _with_role(manifests)
        if item.spec.role != own_node_role(cluster) and not is_role_name(item.spec.role)
    ]
    if problems:
        raise InvalidManifests(problems)


def _refuse_other_partitions(manifests: Path, region: str) -> None:
    """Raises InvalidManifests for keys and parameters that EC2NodeClasses name by ARNs of another partition."""
    problems = [
        _refusal(document, where, reason)
        for document, item in _node_classes(manifests)
        for where, name in _named_in(item)
        if (reason := _other_partition(name, region))
    ]
    if problems:
        raise InvalidManifests(problems)


def _named_in(node_class: EC2NodeClass) -> Iterator[tuple[Where, str]]:
    """Yield the names in an EC2NodeClass that may be ARNs, each with its field."""
    for index, term in enumerate(node_class.spec.ami_selector_terms):
        yield ("spec", "amiSelectorTerms", index, "ssmParameter"), term.ssm_parameter
    for index, device in enumerate(node_class.spec.block_device_mappings):
        if device.ebs is not None:
            yield ("spec", "blockDeviceMappings", index, "ebs", "kmsKeyID"), device.ebs.kms_key_id or ""


def _refuse_roles_of_two_systems(manifests: Path) -> None:
    """Raises InvalidManifests for each role that Windows and Linux nodes would share: it has one access entry."""
    found: dict[str, dict[bool, tuple[Document, EC2NodeClass]]] = {}
    for document, node_class in _with_role(manifests):
        found.setdefault(node_class.spec.role, {}).setdefault(_is_windows(node_class), (document, node_class))
    problems = []
    where: Where = ("spec", "role")
    for role, by_system in found.items():
        if len(by_system) == 2:
            (linux, of_linux), (windows, _) = by_system[False], by_system[True]
            other = f"EC2NodeClass {of_linux.metadata.name!r} ({linux.source}:{linux.line_of(where)})"
            reason = (
                f"{role!r} is for Windows here and for Linux in {other}; an access entry is of one type: use two roles"
            )
            problems.append(_refusal(windows, where, reason))
    if problems:
        raise InvalidManifests(problems)


def _is_windows(node_class: EC2NodeClass) -> bool:
    return family_of(node_class).os == "windows"


def _refusal(source: Document, where: Where, reason: str) -> InvalidInput:
    return InvalidInput(source.source, reason, field=field_name(where), line=source.line_of(where))


def _problems(install: InstallDocument) -> Iterator[Problem]:
    if not _INSTALL_NAME.fullmatch(install.name):
        yield ("name",), f"{install.name!r} must be lower-case letters, digits and dashes, at most 31"
    yield from _region_problems(install)
    if install.account and not re.fullmatch(r"\d{12}", install.account):
        yield ("account",), f"{install.account!r} is not 12 digits"
    if install.log_retention_days not in LOG_RETENTION_DAYS:
        yield ("logRetentionDays",), f"must be one of {', '.join(map(str, LOG_RETENTION_DAYS))}"
    if not WATCH_MEMORY_MIB <= install.watch_memory_mib <= _MOST_MEMORY_MIB:
        yield ("watchMemoryMib",), f"must be from {WATCH_MEMORY_MIB} to {_MOST_MEMORY_MIB}"
    if not 1 <= install.record_retention_days <= _MOST_RETENTION_DAYS:
        yield ("recordRetentionDays",), f"must be at least 1 and at most {_MOST_RETENTION_DAYS:,}"
    topic = _TOPIC.fullmatch(install.alarm_topic)
    if install.alarm_topic and (topic is None or topic["region"] != install.region):
        yield ("alarmTopic",), f"{install.alarm_topic!r} is not the ARN of an SNS topic in {install.region}"
    yield from _deployment_problems(install)
    if install.otlp is not None:
        yield from ((("otlp", field), reason) for field, reason in _otlp_problems(install.otlp))
    yield from _problems_of_features(install)
    if not install.clusters:
        yield ("clusters",), "must name at least one cluster"
    for index, cluster in enumerate(install.clusters):
        where = ("clusters", index)
        if cluster.name in [other.name for other in install.clusters[:index]]:
            yield (*where, "name"), f"{cluster.name!r} is named twice"
        yield from (((*where, "vpc"), reason) for reason in _network_problems(install, index))
        yield from (((*where, field), reason) for field, reason in _cluster_problems(cluster))
        yield from (((*where, *field), reason) for field, reason in _problems_of_parts(cluster))


def _region_problems(install: InstallDocument) -> Iterator[Problem]:
    """Of the Region itself, and of what it lacks and the file asks for."""
    region = install.region
    if not exists(region):
        near = f"the nearest are {', '.join(names)}" if (names := nearest(region)) else "for example eu-west-1"
        newer = f"if AWS has opened it since, install a newer botocore than {botocore.__version__}"
        yield ("region",), f"{region!r} is not a Region, {near}; {newer}"
        return
    asked: tuple[tuple[Where, bool, Feature], ...] = (
        (("snapStart",), install.snap_start, Feature.SNAP_START),
        (("tracing",), install.tracing, Feature.TRACING),
        *_needs_of_features(install),
    )
    for where, is_asked, feature in asked:
        if is_asked and (row := gap(region, feature)):
            yield where, f"{region} lacks {feature} ({row.source}): leave it out"

    for where, name in _named_resources(install):
        if reason := _other_partition(name, region):
            yield where, reason


def _named_resources(install: InstallDocument) -> Iterator[tuple[Where, str]]:
    """Yield the names in the file that are ARNs, or may be: each with its field."""
    yield ("alarmTopic",), install.alarm_topic
    yield ("permissionsBoundary",), install.permissions_boundary
    if install.otlp is not None:
        yield ("otlp", "headersSecret"), install.otlp.headers_secret
    for index, cluster in enumerate(install.clusters):
        where: Where = ("clusters", index)
        yield (*where, "kubeconfigSecret"), cluster.kubeconfig_secret
        yield from (((*where, "volumeKeys"), key) for key in cluster.volume_keys)
        yield from (((*where, "imageParameters"), name) for name in cluster.image_parameters)


def _other_partition(name: str, region: str) -> str:
    """Return why an ARN cannot be used in a Region: partitions know nothing of each other; empty for anything else."""
    named, own = name.split(":")[1:2], partition_of(region)
    if not name.startswith("arn:") or named == [own]:
        return ""
    return f"{name!r} is of another partition than {region}: name one that begins with arn:{own}:"


def _needs_of_features(install: InstallDocument) -> Iterator[tuple[Where, bool, Feature]]:
    """Yield what optional features need of the Region by their keys of the install."""
    for name, part in _of_installs():
        yield from (((_key(name), *field), True, feature) for field, feature in part.needs(getattr(install, name)))


def _deployment_problems(install: InstallDocument) -> Iterator[Problem]:
    """Of what the account has for every stack."""
    boundary, qualifier = install.permissions_boundary, install.bootstrap_qualifier
    if boundary and not _BOUNDARY.fullmatch(boundary):
        examples = "for example developers or arn:aws:iam::123456789012:policy/developers"
        yield ("permissionsBoundary",), f"{boundary!r} is not the name or ARN of an IAM policy, {examples}"
    if qualifier and not _QUALIFIER.fullmatch(qualifier):
        yield ("bootstrapQualifier",), f"{qualifier!r} must be letters, digits, - and _, at most 10"


def _problems_of_parts(cluster: ClusterDocument) -> Iterator[Problem]:
    """Of the parts of a cluster that check themselves."""
    parts: dict[str, Iterable[Problem]] = {
        "podTopologySpread": cluster.pod_topology_spread.problems(),
        "claimRules": rule_problems(cluster.claim_rules),
        "disruption": cluster.disruption.problems(),
    }
    parts |= {_key(name): document.problems(getattr(cluster, name)) for name, document in _of_clusters()}
    for name, problems in parts.items():
        yield from (((name, *field), reason) for field, reason in problems)


def _problems_of_features(install: InstallDocument) -> Iterator[Problem]:
    """Of the keys of the install that optional features have."""
    for name, part in _of_installs():
        wrong = part.problems_of_install(getattr(install, name), f"{install.region}/{install.name}")
        yield from (((_key(name), *field), reason) for field, reason in wrong)


def _otlp_problems(otlp: OtlpDocument) -> Iterator[tuple[str, str]]:
    address = _address(otlp.endpoint)
    if address.scheme != "https" or not address.hostname:
        yield "endpoint", f"{otlp.endpoint!r} is not an address, for example https://collector.example.com/v1/metrics"
    if address.username is not None or address.query:
        yield "endpoint", "must hold no password and no query: put a token into the secret of `headersSecret`"
    if otlp.headers_secret and not _SECRET.fullmatch(otlp.headers_secret):
        yield "headersSecret", f"{otlp.headers_secret!r} is not the ARN of a secret in Secrets Manager"


def _network_problems(install: InstallDocument, index: int) -> Iterator[str]:
    cluster = install.clusters[index]
    name = _network_name(cluster)
    if name and not _NETWORK_NAME.fullmatch(name):
        yield f"the name {name!r} must be lower-case letters and digits, at most 16"
    if name in _RESERVED_NAMES:
        yield f"the name {name!r} is taken: it is part of the names of queues and functions"
    if index == 0 and all(_network_name(other) for other in install.clusters):
        yield "one network of an install goes without a name: leave `name` out for its clusters"
    first = next(other for other in install.clusters if _network_name(other) == name)
    if cluster.vpc != first.vpc:
        which = f"network {name!r}" if name else "network without a name"
        yield f"the {which} is that of {first.name!r}; give this one a name of its own, `vpc: {{name: …}}`"


def _network_name(cluster: ClusterDocument) -> str:
    return cluster.vpc.name if cluster.vpc else ""


def _one_of(*values: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in values, f"must be {', '.join(values[:-1])} or {values[-1]}"


_CHECKS: tuple[tuple[str, str, tuple[Callable[[Any], bool], str]], ...] = (
    ("name", "name", (lambda value: bool(_NAME.fullmatch(value)), "must be the name of an EKS cluster")),
    ("access", "access", (lambda value: value in ("", "entry", "none"), "must be entry or none")),
    ("prefixDelegation", "prefix_delegation", _one_of("auto", "on", "off")),
    ("preferencePolicy", "preference_policy", _one_of("Respect", "Ignore")),
    ("minValuesPolicy", "min_values_policy", _one_of("Strict", "BestEffort")),
    ("reservedPolicy", "reserved_policy", _one_of("Strict", "Fallback")),
    ("placement", "placement", _one_of("none", "nominate", "bind")),
    (
        "vmMemoryOverheadPercent",
        "vm_memory_overhead_percent",
        (lambda value: 0 <= value < 1, "must be a fraction from 0 to less than 1, for example 0.075"),
    ),
    ("reservedENIs", "reserved_enis", (lambda value: value >= 0, "must not be negative")),
    ("joinTimeoutSeconds", "join_timeout_s", (lambda value: 60 <= value <= 3600, "must be from 60 to 3600")),
    ("unprovenNodes", "unproven_nodes", (lambda value: 1 <= value <= 5000, "must be from 1 to 5000")),
    ("unprovenPodNodes", "unproven_pod_nodes", (lambda value: 0 <= value <= 5000, "must be from 0 to 5000")),
    ("improveSeconds", "improve_s", (lambda value: 0 <= value <= 60, "must be from 0 to 60")),
)


def _cluster_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    for written, field, (holds, reason) in _CHECKS:
        if not holds(getattr(cluster, field)):
            yield written, f"{getattr(cluster, field)!r} {reason}"
    endpoint = _address(cluster.endpoint)
    if cluster.endpoint and (endpoint.scheme not in ("https", "http") or not endpoint.hostname):
        yield "endpoint", f"{cluster.endpoint!r} is not an address, for example https://10.0.0.10"
    elif endpoint.scheme == "http" and endpoint.hostname not in _LOOPBACK:
        yield "endpoint", "must be https, unless the cluster runs on this machine"
    if cluster.token and endpoint.hostname not in _LOOPBACK:
        yield "token", "a token in a file is readable by many; it is only for a cluster on this machine"
    yield from _secret_problems(cluster)
    yield from _control_plane_problems(cluster)
    if cluster.vpc:
        yield from (("vpc", reason) for reason in _vpc_problems(cluster.vpc))
    wrong = [role for role in cluster.node_roles if not is_role_name(role)]
    yield from (("nodeRoles", not_a_role(role)) for role in wrong if role != own_node_role(cluster.name))
    yield from _bound_problems(cluster)
    for key in cluster.volume_keys:
        if not _KEY.fullmatch(key):
            yield "volumeKeys", f"{key!r} is not the id, ARN or alias of a KMS key"


def _address(text: str) -> SplitResult:
    """The parts of an address; those of an empty one where it is none."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is no port
    except ValueError:
        return urlsplit("")
    return parts


def _control_plane_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    """Of what nodes of a cluster outside EKS are told."""
    try:
        b64decode(cluster.certificate_authority, validate=True)
    except ValueError:
        yield "certificateAuthority", "is not a certificate in base64, as a kubeconfig has it"
    if cluster.kubernetes_version and not _VERSION.fullmatch(cluster.kubernetes_version):
        yield "kubernetesVersion", f"{cluster.kubernetes_version!r} is not a minor version, for example '1.34'"
    try:
        ip_network(cluster.service_cidr or "0.0.0.0/0")
    except ValueError:
        yield "serviceCIDR", f"{cluster.service_cidr!r} is not a range of addresses, for example 10.100.0.0/16"


_ONLY_LIVE = (
    ("instanceProfiles", "instance_profiles"),
    ("imageParameters", "image_parameters"),
    ("volumeSnapshots", "volume_snapshots"),
    ("subnets", "subnets"),
    ("securityGroups", "security_groups"),
    ("imageOwners", "image_owners"),
    ("capacityReservations", "capacity_reservations"),
    ("placementGroups", "placement_groups"),
)
_BOUND_IDS = (
    ("volumeSnapshots", "volume_snapshots", r"snap-[0-9a-f]+"),
    ("subnets", "subnets", r"subnet-[0-9a-f]+"),
    ("securityGroups", "security_groups", r"sg-[0-9a-f]+"),
    ("imageOwners", "image_owners", r"[0-9]{12}|self|amazon|aws-marketplace"),
    ("capacityReservations", "capacity_reservations", r"cr-[0-9a-f]+"),
    ("placementGroups", "placement_groups", r"pg-[0-9a-f]+"),
)


def _bound_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    """Of what EC2NodeClasses in a cluster may name."""
    if not cluster.reads_cluster:
        for written, field in _ONLY_LIVE:
            if getattr(cluster, field):
                yield written, "bounds the manifests of a cluster: it is only for `manifests: cluster`"
        return
    namespace, _, name = cluster.karpenter_lease.partition("/")
    if not (namespace and name):
        yield "karpenterLease", f"{cluster.karpenter_lease!r} is not NAMESPACE/NAME of a Lease"
    for written, field, pattern in _BOUND_IDS:
        for item in getattr(cluster, field):
            if not re.fullmatch(pattern, item):
                yield written, f"{item!r} is not {pattern}"


def _vpc_problems(vpc: VpcConfig) -> Iterator[str]:
    if not (vpc.subnets and vpc.security_groups):
        yield "must name at least one of subnets and of securityGroups"
    most = (("subnets", vpc.subnets, _MOST_SUBNETS), ("security groups", vpc.security_groups, _MOST_SECURITY_GROUPS))
    for kind, named, taken in most:
        if len(named) > taken:
            yield f"names {len(named)} {kind}, Lambda takes {taken}: leave some out"
        if len(set(named)) < len(named):
            yield f"names one of its {kind} twice, which CloudFormation refuses: leave it out once"
    for wrong in sorted({*vpc.subnets, *vpc.security_groups}):
        if not _NETWORK_ID.fullmatch(wrong):
            yield f"{wrong!r} is not the id of a subnet or security group"


def _secret_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    if not cluster.kubeconfig_secret:
        return
    if not _SECRET.fullmatch(cluster.kubeconfig_secret):
        yield "kubeconfigSecret", f"{cluster.kubeconfig_secret!r} is not the ARN of a secret in Secrets Manager"
    elif not cluster.endpoint:
        yield "kubeconfigSecret", "is for a cluster outside EKS: give its `endpoint` too, which nodes are told"
    if cluster.token:
        yield "token", "the secret's kubeconfig says who enters: leave `token` out"
