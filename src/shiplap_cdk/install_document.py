"""Reads `shiplap.yaml`, the one file a platform team writes, and everything it refers to.

Mistakes stop the synth with file, line, field and reason. What the functions need is compiled to `shiplap.settings`;
the rest (network, access, retention) shapes the stack.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import botocore
import msgspec

from shiplap.aws.instance_profiles import identity_path, role_name
from shiplap.disruption.repair.repair_policies import policy_problems
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances.catalog.ami_families import family_of
from shiplap.manifests.claim_rules import rule_problems
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.manifests.decoding import Path as Where
from shiplap.manifests.decoding import Problem, decode, field_name
from shiplap.manifests.files.documents import Document, read_documents
from shiplap.manifests.files.loading import load_manifests
from shiplap.manifests.files.manifest_folders import find_documents
from shiplap.manifests.validation.nodeclass_rules import is_role_name, not_a_role
from shiplap.policies.policy_settings import chosen
from shiplap.regions import exists, nearest, partition_of
from shiplap.settings import ClusterSettings, OtlpSettings, Settings
from shiplap_cdk.install_keys import (
    LIVE,
    LOG_RETENTION_DAYS,
    ClusterDocument,
    InstallDocument,
    OtlpDocument,
    of_clusters,
    of_installs,
    written_install,
)
from shiplap_cdk.policy_document import documents
from shiplap_cdk.region_differences import Feature, gap

# `shiplap-schedule` may be an install's name: its function `watch` must not be our `schedule` in a network `watch`.
_FUNCTIONS = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "audit", "widget")
_RESERVED_NAMES = (*_FUNCTIONS, "provisioning", "interruption")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _key(policy: str) -> str:
    """Return the key of a policy in shiplap.yaml."""
    first, *more = policy.split("_")
    return first + "".join(part.title() for part in more)


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
        refused = (_refusal(source, where, reason) for where, reason in problems)
        raise InvalidManifests(sorted(refused, key=lambda each: each.line or 0))
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
    for name, part in of_installs():
        _refuse_annotations(manifests_path, part.unwelcome(getattr(install, name)))
    if written.access == "entry":
        _refuse_roles_of_two_systems(manifests_path)
    return ServedCluster(written, ClusterSettings(**values))


def _refuse_misfits(source: Document, index: int, document: ClusterDocument, manifests: Manifests) -> None:
    """Raises InvalidManifests for what optional features name and the manifests do not have."""
    problems = [
        _refusal(source, ("clusters", index, _key(name), *field), reason)
        for name, part in of_clusters()
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
    yield from _region_problems(install)
    if install.log_retention_days not in LOG_RETENTION_DAYS:
        yield ("logRetentionDays",), f"must be one of {', '.join(map(str, LOG_RETENTION_DAYS))}"
    if install.alarm_topic.startswith("arn:") and install.alarm_topic.split(":")[3:4] != [install.region]:
        yield ("alarmTopic",), f"{install.alarm_topic!r} is not the ARN of an SNS topic in {install.region}"
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
    for name, part in of_installs():
        yield from (((_key(name), *field), True, feature) for field, feature in part.needs(getattr(install, name)))


def _problems_of_parts(cluster: ClusterDocument) -> Iterator[Problem]:
    """Of the parts of a cluster that check themselves."""
    parts: dict[str, Iterable[Problem]] = {
        "podTopologySpread": cluster.pod_topology_spread.problems(),
        "claimRules": rule_problems(cluster.claim_rules),
        "disruption": cluster.disruption.problems(),
        "repairPolicies": policy_problems(cluster.repair_policies),
    }
    parts |= {_key(name): document.problems(getattr(cluster, name)) for name, document in of_clusters()}
    for name, problems in parts.items():
        yield from (((name, *field), reason) for field, reason in problems)


def _problems_of_features(install: InstallDocument) -> Iterator[Problem]:
    """Of the keys of the install that optional features have."""
    for name, part in of_installs():
        wrong = part.problems_of_install(getattr(install, name), f"{install.region}/{install.name}")
        yield from (((_key(name), *field), reason) for field, reason in wrong)


def _otlp_problems(otlp: OtlpDocument) -> Iterator[tuple[str, str]]:
    address = _address(otlp.endpoint)
    if address.scheme != "https" or not address.hostname:
        yield "endpoint", f"{otlp.endpoint!r} is not an address, for example https://collector.example.com/v1/metrics"
    if address.username is not None or address.query:
        yield "endpoint", "must hold no password and no query: put a token into the secret of `headersSecret`"


def _network_problems(install: InstallDocument, index: int) -> Iterator[str]:
    cluster = install.clusters[index]
    name = _network_name(cluster)
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


def _cluster_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    if not 0 <= cluster.vm_memory_overhead_percent < 1:
        reason = "must be a fraction from 0 to less than 1, for example 0.075"
        yield "vmMemoryOverheadPercent", f"{cluster.vm_memory_overhead_percent!r} {reason}"
    endpoint = _address(cluster.endpoint)
    if cluster.endpoint and (endpoint.scheme not in ("https", "http") or not endpoint.hostname):
        yield "endpoint", f"{cluster.endpoint!r} is not an address, for example https://10.0.0.10"
    elif endpoint.scheme == "http" and endpoint.hostname not in _LOOPBACK:
        yield "endpoint", "must be https, unless the cluster runs on this machine"
    if cluster.token and endpoint.hostname not in _LOOPBACK:
        yield "token", "a token in a file is readable by many; it is only for a cluster on this machine"
    yield from _secret_problems(cluster)
    yield from _control_plane_problems(cluster)
    wrong = [role for role in cluster.node_roles if not is_role_name(role)]
    yield from (("nodeRoles", not_a_role(role)) for role in wrong if role != own_node_role(cluster.name))
    yield from _bound_problems(cluster)


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


def _secret_problems(cluster: ClusterDocument) -> Iterator[tuple[str, str]]:
    if not cluster.kubeconfig_secret:
        return
    if not cluster.endpoint:
        yield "kubeconfigSecret", "is for a cluster outside EKS: give its `endpoint` too, which nodes are told"
    if cluster.token:
        yield "token", "the secret's kubeconfig says who enters: leave `token` out"
