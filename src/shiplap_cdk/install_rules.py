"""Rules of shiplap.yaml beyond the type and the bounds of single keys: what must fit together, and fit the Region."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from urllib.parse import SplitResult, urlsplit

import botocore

from shiplap.disruption.repair.repair_policies import policy_problems
from shiplap.manifests.claim_rules import rule_problems
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation.nodeclass_rules import is_role_name, not_a_role
from shiplap.regions import exists, nearest, partition_of
from shiplap_cdk.install_keys import (
    ClusterDocument,
    InstallDocument,
    OtlpDocument,
    of_clusters,
    of_installs,
)
from shiplap_cdk.region_differences import Feature, gap

# `shiplap-schedule` may be an install's name: its function `watch` must not be our `schedule` in a network `watch`.
_FUNCTIONS = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "audit", "widget")
_RESERVED_NAMES = (*_FUNCTIONS, "provisioning", "interruption")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def key_of(policy: str) -> str:
    """Return the key of a policy in shiplap.yaml."""
    first, *more = policy.split("_")
    return first + "".join(part.title() for part in more)


def own_node_role(cluster: str) -> str:
    """By this name an EC2NodeClass asks for the node role that the stack makes."""
    return f"shiplap-node-{cluster}"


def install_problems(install: InstallDocument) -> Iterator[Problem]:
    """Yield every problem of a document whose keys have the right types."""
    yield from _region_problems(install)
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
        if "$" in region or "{{" in region:
            yield ("region",), f"{region!r} holds a variable that nobody fills in here: write the Region"
            return
        near = f"the nearest are {', '.join(names)}" if (names := nearest(region)) else "for example eu-west-1"
        newer = f"if AWS has opened it since, install a newer botocore than {botocore.__version__}"
        yield ("region",), f"{region!r} is not a Region, {near}; {newer}"
        return
    asked: tuple[tuple[Path, bool, Feature], ...] = (
        (("snapStart",), install.snap_start, Feature.SNAP_START),
        (("tracing",), install.tracing, Feature.TRACING),
        *_needs_of_features(install),
    )
    for where, is_asked, feature in asked:
        if is_asked and (row := gap(region, feature)):
            yield where, f"{region} lacks {feature} ({row.source}): leave it out"

    if install.alarm_topic.startswith("arn:") and install.alarm_topic.split(":")[3:4] != [region]:
        yield ("alarmTopic",), f"{install.alarm_topic!r} is not the ARN of an SNS topic in {region}"
    for where, name in _named_resources(install):
        if reason := other_partition(name, region):
            yield where, reason


def _named_resources(install: InstallDocument) -> Iterator[tuple[Path, str]]:
    """Yield the names in the file that are ARNs, or may be: each with its field."""
    yield ("alarmTopic",), install.alarm_topic
    yield ("permissionsBoundary",), install.permissions_boundary
    if install.otlp is not None:
        yield ("otlp", "headersSecret"), install.otlp.headers_secret
    for index, cluster in enumerate(install.clusters):
        where: Path = ("clusters", index)
        yield (*where, "kubeconfigSecret"), cluster.kubeconfig_secret
        yield from (((*where, "volumeKeys"), key) for key in cluster.volume_keys)
        yield from (((*where, "imageParameters"), name) for name in cluster.image_parameters)


def other_partition(name: str, region: str) -> str:
    """Return why an ARN cannot be used in a Region: partitions know nothing of each other; empty for anything else."""
    named, own = name.split(":")[1:2], partition_of(region)
    if not name.startswith("arn:") or named == [own]:
        return ""
    return f"{name!r} is of another partition than {region}: name one that begins with arn:{own}:"


def _needs_of_features(install: InstallDocument) -> Iterator[tuple[Path, bool, Feature]]:
    """Yield what optional features need of the Region by their keys of the install."""
    for name, part in of_installs():
        yield from (((key_of(name), *field), True, feature) for field, feature in part.needs(getattr(install, name)))


def _problems_of_parts(cluster: ClusterDocument) -> Iterator[Problem]:
    """Of the parts of a cluster that check themselves."""
    parts: dict[str, Iterable[Problem]] = {
        "podTopologySpread": cluster.pod_topology_spread.problems(),
        "claimRules": rule_problems(cluster.claim_rules),
        "repairPolicies": policy_problems(cluster.repair_policies),
    }
    parts |= {key_of(name): document.problems(getattr(cluster, name)) for name, document in of_clusters()}
    for name, problems in parts.items():
        yield from (((name, *field), reason) for field, reason in problems)


def _problems_of_features(install: InstallDocument) -> Iterator[Problem]:
    """Of the keys of the install that optional features have."""
    for name, part in of_installs():
        wrong = part.problems_of_install(getattr(install, name), f"{install.region}/{install.name}")
        yield from (((key_of(name), *field), reason) for field, reason in wrong)


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
