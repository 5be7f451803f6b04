"""Checks of each cluster: what EKS says of it, whether the functions may enter, and what they may do inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap.aws.bucket import BucketCatalog, BucketManifests, BucketStatus
from shiplap.errors import InvalidInput, StoreError
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import ClusterStatus
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap_cdk.shipped_files import at_hand
from shiplap_cdk.stack_values import log_group_of
from shiplap_cli.commands.doctor import fixes
from shiplap_cli.commands.doctor.check_results import (
    CheckReporter,
    CheckResult,
    CheckVerdict,
    Client,
    Deployment,
    answer_or_none,
)
from shiplap_cli.commands.doctor.fixes import GROUP, by_hand
from shiplap_cli.output import counted, summary

ENTERING = ("schedule", "lifecycle", "disrupt", "watch")
"""Functions that talk to API servers."""
LIVE_RBAC = "rbac-cluster-manifests.yaml"
"""What the group may do besides where manifests are read from the cluster."""

_OLD_CATALOG_S = 3 * 3600
_OLD_STATUS_S = 1800

Ask = Callable[[str, Mapping[str, Any]], bytes]
"""A POST to an API server: path and body in, the answer's body out."""


class RbacPermission(msgspec.Struct, frozen=True, order=True):
    """One thing that an RBAC manifest grants; `resource` with its subresource after a slash.

    `name` is that of the only object that it is granted for, if any.
    """

    verb: str
    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return " ".join(part for part in (self.verb, kind, self.name) if part)


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class _Document(msgspec.Struct, frozen=True):
    kind: str = ""
    rules: tuple[_Rule, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _Answer = _Answer()


def permissions_of(manifest: Path) -> tuple[RbacPermission, ...]:
    """Everything the ClusterRoles of a manifest grant, sorted. Raises InvalidInput."""
    import yaml  # noqa: PLC0415 - slow to import, and only needed here

    try:
        documents = [msgspec.convert(item, _Document) for item in yaml.safe_load_all(manifest.read_text()) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidInput(str(manifest), f"the RBAC manifest cannot be read: {error}") from error
    rules = [rule for document in documents if document.kind == "ClusterRole" for rule in document.rules]
    permissions = {
        RbacPermission(verb, group, resource, name)
        for rule in rules
        for verb in rule.verbs
        for group in rule.api_groups
        for resource in rule.resources
        for name in rule.resource_names or ("",)
    }
    return tuple(sorted(permissions))


def catalogue(s3: Any, deployment: Deployment, region: str, now: float) -> Iterator[CheckResult]:
    """Check that instance types and prices are fresh."""
    report, fix = CheckReporter("catalogue"), fixes.refresh_catalogue(deployment.function("catalog"))
    try:
        age_s = now - BucketCatalog(s3, deployment.output("Bucket"), region).load().refreshed_at
    except StoreError as error:
        yield report.failed(region, str(error), fix)
        return
    if age_s > _OLD_CATALOG_S:
        yield report.failed(region, f"was refreshed {age_s / 3600:.1f} hours ago", fix)
    else:
        yield report.ok(region, f"was refreshed {age_s / 60:.0f} minutes ago")


def node_classes(known: Sequence[ClusterStatus], now: float) -> Iterator[CheckResult]:
    """Report the last inspection: AMIs, subnets, security groups by their selectors, role and instance profile."""
    report = CheckReporter("node classes")
    if not known:
        yield report.failed(
            "",
            "nothing was inspected yet",
            by_hand("wait five minutes after the first deployment; then look at the log of the function catalog"),
        )
    for cluster in known:
        age_s = now - cluster.checked_at
        if age_s > _OLD_STATUS_S:
            says = f"the last inspection was {age_s / 60:.0f} minutes ago"
            yield report.warning(cluster.cluster, says, by_hand("look at the log of the function catalog"))
        for status in cluster.node_classes:
            subject = f"{cluster.cluster}/{status.name}"
            wrong = [found for found in status.conditions if found.status != nodeclass_status.TRUE and found.message]
            if status.ready.status == nodeclass_status.TRUE:
                groups = len(status.security_groups)
                yield report.ok(
                    subject, f"{len(status.subnets)} subnets, {groups} security groups, {len(status.amis)} AMIs"
                )
            for condition in wrong[:1]:
                says = f"{condition.type}: {condition.reason}: {condition.message}"
                yield report.failed(
                    subject,
                    says,
                    by_hand("correct the manifest or the tags and deploy; it is inspected again within five minutes"),
                )


def control_plane(client: Client, deployment: Deployment, cluster: str) -> Iterator[CheckResult]:
    """Check that the cluster is there, lets access entries in, can be reached, and lets each function in."""
    described, findings = describe_cluster(client, cluster)
    yield from findings
    if described is None:
        return
    network = _network_of(client, deployment, cluster)
    schedule = client("lambda").get_function_configuration(FunctionName=deployment.function(f"schedule{network}"))
    yield endpoint(cluster, described.get("resourcesVpcConfig", {}), schedule.get("VpcConfig", {}))
    entries = authentication(cluster, described)
    if entries.verdict is CheckVerdict.FAILED:
        yield entries
        return
    for name in ENTERING:
        yield _access_entry(client, deployment, cluster, f"{name}{network}")


def _network_of(client: Client, deployment: Deployment, cluster: str) -> str:
    """The network whose functions enter a cluster; the first where none do, and where there is only one."""
    for name in deployment.networks[1:]:
        function = deployment.function(f"schedule{name}")
        role = client("lambda").get_function_configuration(FunctionName=function)["Role"]
        if _entry_of(client, cluster, role) is not None:
            return name
    return deployment.networks[0]


def describe_cluster(client: Client, cluster: str) -> tuple[Mapping[str, Any] | None, list[CheckResult]]:
    """Return EKS's description of a cluster, None when it is not there or not in service; and the findings of that."""
    report = CheckReporter("cluster")
    found = answer_or_none(lambda: client("eks").describe_cluster(name=cluster)["cluster"])
    if found is None:
        says = "EKS knows no cluster of this name"
        return None, [
            report.warning(
                cluster,
                says,
                by_hand("right for a cluster outside EKS (`endpoint` in shiplap.yaml); else correct `name`"),
            )
        ]
    if found.get("status") not in ("ACTIVE", "UPDATING"):
        return None, [
            report.failed(
                cluster, f"is {found.get('status')}", by_hand("wait, or look at its health in the EKS console")
            )
        ]
    return found, [report.ok(cluster, f"is {found['status']}, Kubernetes {found.get('version', '?')}")]


def authentication(cluster: str, described: Mapping[str, Any]) -> CheckResult:
    """Check that a cluster knows access entries."""
    report, mode = CheckReporter("access"), described.get("accessConfig", {}).get("authenticationMode", "API")
    if mode == "CONFIG_MAP":
        says = "knows no access entries: its mode is CONFIG_MAP"
        return report.failed(cluster, says, fixes.know_access_entries(cluster))
    return report.ok(cluster, f"knows access entries: its mode is {mode}")


def endpoint(cluster: str, config: Mapping[str, Any], vpc: Mapping[str, Any]) -> CheckResult:
    """Check that functions in a VPC (`VpcConfig` as Lambda has it), or in none, reach the API server's endpoint."""
    report = CheckReporter("endpoint")
    inside, public = bool(vpc.get("SubnetIds")), config.get("endpointPublicAccess", True)
    private, open_to = config.get("endpointPrivateAccess", False), config.get("publicAccessCidrs", ["0.0.0.0/0"])
    if not inside and not public:
        says = "its endpoint is private, and the functions are outside of its VPC"
        fix = "give the cluster `vpc` in shiplap.yaml: subnets and security groups that reach its endpoint"
        return report.failed(cluster, says, by_hand(fix))
    if not inside and "0.0.0.0/0" not in open_to:
        says = f"its public endpoint is open only to {', '.join(open_to)}"
        fix = (
            "give the cluster `vpc` in shiplap.yaml, or allow all addresses: functions outside a VPC have no fixed ones"
        )
        return report.failed(cluster, says, by_hand(fix))
    if inside and private and vpc.get("VpcId") != config.get("vpcId"):
        says = f"functions are in {vpc.get('VpcId')}, the cluster in {config.get('vpcId')}"
        return report.warning(
            cluster,
            says,
            by_hand(
                "right if the VPCs are peered and resolve the endpoint's name; else use subnets of the cluster's VPC"
            ),
        )
    kind = "public and private" if public and private else "public" if public else "private"
    return report.ok(cluster, f"its endpoint is {kind}, the functions are {'inside' if inside else 'outside'} the VPC")


def _entry_of(client: Client, cluster: str, role: str) -> Mapping[str, Any] | None:
    """The access entry of a role; None when it has none."""
    eks = client("eks")
    answer = answer_or_none(lambda: eks.describe_access_entry(clusterName=cluster, principalArn=role))
    return answer["accessEntry"] if answer is not None else None


def _access_entry(client: Client, deployment: Deployment, cluster: str, name: str) -> CheckResult:
    report, subject = CheckReporter("access"), f"{cluster}/{name}"
    role = client("lambda").get_function_configuration(FunctionName=deployment.function(name))["Role"]
    entry = _entry_of(client, cluster, role)
    if entry is None:
        return report.failed(subject, f"no access entry for {role}", fixes.let_function_enter(cluster, role))
    groups = entry.get("kubernetesGroups", ())
    if GROUP not in groups:
        fix = fixes.add_function_to_group(cluster, role, groups)
        return report.failed(subject, f"its access entry lacks the group {GROUP}", fix)
    return report.ok(subject, f"enters as the group {GROUP}")


def node_access_entries(client: Client, known: Sequence[ClusterStatus]) -> Iterator[CheckResult]:
    """Check that the roles of nodes, by the instance profiles last inspected, enter as nodes of their system."""
    types = {
        (cluster.cluster, status.instance_profile, FAMILIES[status.family].os)
        for cluster in known
        for status in cluster.node_classes
        if status.instance_profile and status.family in FAMILIES
    }
    for cluster, profile, system in sorted(types):
        yield node_access_entry(client, cluster, role_of_profile(client, profile), system)


def role_of_profile(client: Client, profile: str) -> str:
    """ARN of the role that an instance profile holds. Raises InvalidInput when it holds none."""
    roles = client("iam").get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
    if not roles:
        raise InvalidInput(f"instance profile {profile}", "holds no role")
    return str(roles[0]["Arn"])


def node_access_entry(client: Client, cluster: str, role: str, system: str) -> CheckResult:
    """Check that a role has an access entry of the type that nodes of an operating system (linux, windows) need."""
    report, wanted = CheckReporter("node role"), f"EC2_{system.upper()}"
    subject, entry = f"{cluster}/{role.rpartition('/')[2]}", _entry_of(client, cluster, role)
    if entry is None:
        says = "has no access entry, so its nodes join only if the ConfigMap aws-auth maps it"
        return report.warning(subject, says, fixes.let_nodes_enter(cluster, role, wanted))
    kind = entry.get("type", "STANDARD")
    if kind != wanted:
        says = f"its access entry is of type {kind}, its nodes need {wanted}"
        return report.failed(subject, says, fixes.replace_node_entry(cluster, role, wanted))
    return report.ok(subject, f"enters as {wanted}")


def audit_logs(client: Client, deployment: Deployment, cluster: str) -> Iterator[CheckResult]:
    """Check that a cluster's audit log reaches the function, where the install has one."""
    report, group = CheckReporter("audit log"), log_group_of(cluster)
    if "audit" not in deployment.functions:
        yield report.ok(cluster, "is not used")
        return
    answer = answer_or_none(
        lambda: client("logs").describe_subscription_filters(logGroupName=group)["subscriptionFilters"]
    )
    if answer is None:
        yield report.warning(cluster, f"there is no log group {group}", fixes.log_audit(cluster))
        return
    function = deployment.function("audit")
    if any(f":function:{function}" in item["destinationArn"] for item in answer):
        yield report.ok(cluster, f"reaches {function}")
    else:
        live = client("lambda").get_alias(FunctionName=function, Name="live")["AliasArn"]
        fix = fixes.subscribe_audit_log(cluster, deployment.install, live)
        yield report.warning(cluster, f"no subscription of {group} reaches {function}", fix)


def rbac(
    ask: Ask, cluster: str, rights: Sequence[RbacPermission], *, myself: bool, manifest: str = ""
) -> Iterator[CheckResult]:
    """Check that the functions' group may do all that RBAC manifests grant, by asking the API server for each.

    `manifest` is the file of all these rights, if it is neither that of every cluster nor that of live manifests.
    `myself` asks for the identity that asks, by SelfSubjectAccessReview, for who runs this with a function's role.
    """
    report = CheckReporter("rbac")
    missing = [right for right in rights if not _is_allowed(ask, right, myself=myself)]
    if missing:
        of_manifests = any(right.group.startswith("karpenter.") for right in missing)
        file = at_hand(f"docs/{manifest or (LIVE_RBAC if of_manifests else 'rbac.yaml')}")
        says = f"the group {GROUP} may not {summary([*map(str, missing)])}"
        yield report.failed(cluster, says, fixes.grant_rights(file))
    else:
        yield report.ok(cluster, f"{len(rights)} rights are granted")


def _is_allowed(ask: Ask, right: RbacPermission, *, myself: bool) -> bool:
    resource, _, subresource = right.resource.partition("/")
    wanted = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    if right.name:
        wanted["name"] = right.name
    kind = "SelfSubjectAccessReview" if myself else "SubjectAccessReview"
    who = {} if myself else {"user": "shiplap:doctor", "groups": [GROUP, "system:authenticated"]}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": wanted, **who},
    }
    answer = ask(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    return msgspec.json.decode(answer, type=_Review).status.allowed


def manifests_read(s3: Any, bucket: str, cluster: str) -> LiveManifests:
    """Return the manifests that `schedule` last read from a cluster; empty if they are files. Raises StoreError."""
    return BucketManifests(s3, bucket).load(cluster)


def live_manifests(read: LiveManifests, cluster: str) -> Iterator[CheckResult]:
    """Check that the manifests of a cluster can be used; yield nothing for a cluster whose manifests are files."""
    report = CheckReporter("manifests")
    for item in read.refused:
        name = f"{item.kind} {item.namespace}/{item.name}" if item.namespace else f"{item.kind} {item.name}"
        says = f"{name} is not used: {item.reasons[0]}"
        yield report.failed(cluster, says, by_hand(f"kubectl edit {item.kind.lower()} {item.name}"))
    if read.observed and not read.refused:
        yield report.ok(cluster, f"{counted(len(read.observed), 'object')} of the API server can be used")


def inspected_clusters(s3: Any, bucket: str) -> tuple[ClusterStatus, ...]:
    """Return the function catalog's findings about the clusters. Raises StoreError."""
    return BucketStatus(s3, bucket).load().clusters
