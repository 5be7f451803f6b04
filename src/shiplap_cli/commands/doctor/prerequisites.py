"""Checks before there is a stack: what shiplap.yaml asks of the account, its network and its clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec

from shiplap.aws.selectors.network import subnets as subnets_of
from shiplap.instances.catalog.ami_families import family_of
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap_cdk.install_document import InstallConfig, ServedCluster, read
from shiplap_cdk.stack_values import log_group_of
from shiplap_cli.commands.doctor import account_checks, cluster_checks, fixes
from shiplap_cli.commands.doctor.check_results import Check, CheckReporter, CheckResult, Client, answer_or_none
from shiplap_cli.commands.doctor.fixes import by_hand


class NodeRole(msgspec.Struct, frozen=True, order=True):
    """A role of nodes that the stack does not make: by `role`, or by the `profile` that holds it; `os` runs with it."""

    node_class: str
    role: str
    profile: str
    os: str


class PlannedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of shiplap.yaml."""

    name: str
    in_eks: bool
    access_entry: bool
    audit: bool
    """Whether its audit log is a source of events."""
    kubeconfig_secret: bool
    zonal_shift: bool
    live_manifests: bool
    """Whether its NodePools are read from its API server, so that nobody knows them yet."""
    subnets: tuple[str, ...]
    """Of the functions; without any, they are outside of any VPC."""
    security_groups: tuple[str, ...]
    """Of the functions."""
    node_roles: tuple[NodeRole, ...]
    node_classes: tuple[EC2NodeClass, ...]
    """Those written in files."""


class PlannedInstall(msgspec.Struct, frozen=True, kw_only=True):
    """The whole install."""

    name: str
    region: str
    account: str
    """Twelve digits; empty where any account will do."""
    clusters: tuple[PlannedCluster, ...]
    volume_keys: tuple[str, ...]
    spot: bool
    """Whether a NodePool written in a file may launch spot instances."""
    qualifier: str
    """Of the CDK's bootstrap stack that the stack is deployed by."""
    permissions_boundary: str
    """Name, or ARN, of the policy that bounds every role; empty for none."""
    collector: str = ""
    """The address that metrics are sent to; empty for none."""
    metrics_secret: bool = False
    """Whether the headers of that address are a secret."""


def read_planned_install(path: Path) -> PlannedInstall:
    """Read shiplap.yaml and its manifests, as the CDK app reads them.

    Raises:
        InvalidInput: the file cannot be read.
        InvalidManifests: the file, or a manifest, says something wrong.
    """
    return planned_install_of(read(path))


def planned_install_of(install: InstallConfig) -> PlannedInstall:
    """Return the needs of an install in AWS."""
    pools = [pool for cluster in install.clusters for pool in cluster.settings.manifests.node_pools]
    return PlannedInstall(
        name=install.document.name,
        region=install.document.region,
        account=install.document.account,
        clusters=tuple(map(_planned_cluster, install.clusters)),
        volume_keys=tuple(sorted({key for cluster in install.clusters for key in cluster.volume_keys})),
        spot=any(map(_allows_spot, pools)),
        collector=install.document.otlp.endpoint if install.document.otlp else "",
        metrics_secret=bool(install.document.otlp and install.document.otlp.headers_secret),
        qualifier=install.document.bootstrap_qualifier or _CDKS_QUALIFIER,
        permissions_boundary=install.document.permissions_boundary,
    )


def _planned_cluster(cluster: ServedCluster) -> PlannedCluster:
    document = cluster.document
    return PlannedCluster(
        name=cluster.name,
        in_eks=not document.endpoint,
        access_entry=cluster.access_entry,
        audit=document.audit,
        kubeconfig_secret=bool(document.kubeconfig_secret),
        zonal_shift=document.zonal_shift,
        live_manifests=document.reads_cluster,
        subnets=document.vpc.subnets if document.vpc else (),
        security_groups=document.vpc.security_groups if document.vpc else (),
        node_roles=tuple(
            NodeRole(item.metadata.name, item.spec.role, item.spec.instance_profile, family_of(item).os)
            for item in cluster.settings.manifests.node_classes
            if item.spec.role != cluster.own_node_role
        ),
        node_classes=cluster.settings.manifests.node_classes,
    )


def _allows_spot(pool: NodePool) -> bool:
    for rule in pool.spec.template.spec.requirements:
        if rule.key == labels.CAPACITY_TYPE:
            listed = "spot" in rule.values
            if (rule.operator == "In" and not listed) or (rule.operator == "NotIn" and listed):
                return False
    return True


_CDKS_QUALIFIER = "hnb659fds"
_BOOTSTRAPS = "/cdk-bootstrap/"
"""Where the CDK's bootstrap stacks keep their versions in SSM, each below its qualifier."""

_LEAST_BOOTSTRAP = 6
"""Version of the CDK's bootstrap stack that the synthesised stack asks for."""

_SUBSCRIPTIONS = 2
"""Subscription filters of a log group: a quota of CloudWatch Logs that cannot be raised."""

_DEFAULT_BUS_RULES = 10
"""Rules that an install may make on the default bus."""

_HTTPS = 443
_ASSIGN = "ec2:AssignIpv6Addresses"
_LOST_BLOCKS = ("disassociating", "disassociated", "failing", "failed")
"""States of a block of IPv6 addresses, as EC2 names them, in which a subnet does not have it."""

_SPOT_ROLE, _FLEET_ROLE = "AWSServiceRoleForEC2Spot", "AWSServiceRoleForEC2Fleet"


def prerequisite_checks(client: Client, plan: PlannedInstall, now: float) -> Iterable[Check]:
    """Every prerequisite of an install, each as a check of its own."""
    yield Check("credentials", lambda: credentials(client, plan, now))
    yield Check("bootstrap", lambda: bootstrap(client, plan.qualifier))
    if plan.permissions_boundary:
        yield Check("boundary", lambda: boundary(client, plan.permissions_boundary))
    yield Check("quotas", lambda: account_checks.vcpus_and_templates(client))
    yield Check("quotas", lambda: account_checks.concurrency(client, len(plan.clusters)))
    yield Check("quotas", lambda: rules(client))
    yield Check("volumes", lambda: volumes(client, plan))
    yield Check("service-linked roles", lambda: service_linked_roles(client, plan))
    for subnets, group in _by_subnets(plan.clusters).items():
        endpoints = account_checks.endpoints_of(group, metrics_secret=plan.metrics_secret)
        yield Check("network", partial(network, client, subnets, endpoints, plan.collector))
    for cluster in plan.clusters:
        if cluster.in_eks:
            yield Check("cluster", partial(control_plane, client, cluster))
            yield Check("ingress", partial(ingress, client, cluster))
            for role in cluster.node_roles:
                yield Check("node role", partial(node_role, client, cluster.name, role))
            yield Check("IPv6", partial(addresses, client, cluster))
        if cluster.audit:
            yield Check("audit log", partial(audit_log, client, plan.name, cluster))


def app(folder: Path) -> Iterator[CheckResult]:
    """Check that the CDK's command line finds an app in the folder that it is started in; a template needs none."""
    if not (folder / "cdk.json").exists():
        says = "this folder has no cdk.json, so that `npx aws-cdk` would answer `--app is required`"
        yield CheckReporter("app").warning("cdk.json", says, by_hand("`shiplap init` writes it"))


def credentials(client: Client, plan: PlannedInstall, now: float) -> Iterator[CheckResult]:
    """Check the caller's identity and account, and that this machine's clock is AWS's."""
    yield from account_checks.caller(client, plan.region, now, plan.account)


def bootstrap(client: Client, qualifier: str) -> Iterator[CheckResult]:
    """Check that `cdk bootstrap` was run in this account and Region, under the qualifier that the stack asks for."""
    report = CheckReporter("bootstrap")
    fix = fixes.bootstrap("" if qualifier == _CDKS_QUALIFIER else qualifier)
    name = f"{_BOOTSTRAPS}{qualifier}/version"
    parameter = answer_or_none(lambda: client("ssm").get_parameter(Name=name), "ParameterNotFound")
    if parameter is None:
        if others := _qualifiers(client):
            says = f"is bootstrapped under {', '.join(others)}, and shiplap.yaml asks for {qualifier}"
            fix = by_hand(f"`bootstrapQualifier: {others[0]}` in shiplap.yaml, or {fix.says}")
            yield report.failed("CDK", says, fix)
        else:
            yield report.failed("CDK", "this account and Region are not bootstrapped", fix)
        return
    version = int(parameter["Parameter"]["Value"])
    if version < _LEAST_BOOTSTRAP:
        yield report.failed("CDK", f"its bootstrap stack is of version {version}, {_LEAST_BOOTSTRAP} is needed", fix)
    else:
        yield report.ok("CDK", f"its bootstrap stack is of version {version}")


def _qualifiers(client: Client) -> list[str]:
    """Return the qualifiers of all bootstrap stacks of this account and Region, sorted."""
    pages = client("ssm").get_paginator("get_parameters_by_path").paginate(Path=_BOOTSTRAPS, Recursive=True)
    names = [item["Name"].removeprefix(_BOOTSTRAPS) for page in pages for item in page["Parameters"]]
    return sorted(name.removesuffix("/version") for name in names if name.endswith("/version"))


def boundary(client: Client, named: str) -> Iterator[CheckResult]:
    """Check that the policy exists that is to bound every role."""
    report, arn = CheckReporter("boundary"), named if named.startswith("arn:") else _own_arn(client, f"policy/{named}")
    if answer_or_none(lambda: client("iam").get_policy(PolicyArn=arn), "NoSuchEntity") is None:
        fix = "correct `permissionsBoundary` in shiplap.yaml; `aws iam list-policies --scope Local` lists policies"
        yield report.failed(arn, "does not exist, so no role could be made", by_hand(fix))
    else:
        yield report.ok(arn, "exists")


def _own_arn(client: Client, resource: str) -> str:
    """The ARN of something of the account's in IAM, in the partition of whoever asks."""
    caller = client("sts").get_caller_identity()
    return f"arn:{caller['Arn'].split(':')[1]}:iam::{caller['Account']}:{resource}"


def rules(client: Client) -> Iterator[CheckResult]:
    """Check that the default bus has room for the rules that receive interruptions."""
    report, what = CheckReporter("quotas"), "rules on the default bus"
    pages = client("events").get_paginator("list_rules").paginate()
    used = sum(len(page["Rules"]) for page in pages)
    limit = account_checks.quota_of(client, "events", "L-244521F2")
    if used + _DEFAULT_BUS_RULES > limit:
        fix = fixes.ask_for_quota("events", "L-244521F2", used + _DEFAULT_BUS_RULES)
        yield report.failed(what, f"{used} of {limit:g} are used, up to {_DEFAULT_BUS_RULES} more are needed", fix)
    else:
        yield report.ok(what, f"{used} of {limit:g}")


def volumes(client: Client, plan: PlannedInstall) -> Iterator[CheckResult]:
    """Check an own key that encrypts volumes by default; instances end at once if it may not be used."""
    report, ec2 = CheckReporter("volumes"), client("ec2")
    if not ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"]:
        yield report.ok("default encryption", "is off")
        return
    key = ec2.get_ebs_default_kms_key_id()["KmsKeyId"]
    if key.endswith("alias/aws/ebs") or key in plan.volume_keys:
        yield report.ok("default encryption", f"is by {key}")
        return
    described = client("kms").describe_key(KeyId=key)["KeyMetadata"]
    names = {key, key.rpartition(":")[2], described["Arn"], described["KeyId"]}
    if described.get("KeyManager") == "AWS" or names & set(plan.volume_keys):
        yield report.ok("default encryption", f"is by {key}")
        return
    says = f"is by {key}, which shiplap.yaml does not name"
    yield report.failed(
        "default encryption",
        says,
        by_hand(f"name it in shiplap.yaml, `volumeKeys: [{described['Arn']}]`, so that `schedule` may use it"),
    )


def service_linked_roles(client: Client, plan: PlannedInstall) -> Iterator[CheckResult]:
    """Check that EC2's own roles exist: AWS refuses to functions a call that needs a missing role."""
    report = CheckReporter("service-linked roles")
    unread = [cluster.name for cluster in plan.clusters if cluster.live_manifests]
    if plan.spot or unread:
        fix = fixes.make_service_linked_role("spot.amazonaws.com")
        if _exists(client, _SPOT_ROLE):
            yield report.ok(_SPOT_ROLE, "exists")
        elif plan.spot:
            yield report.failed(_SPOT_ROLE, "does not exist, and NodePools allow spot", fix)
        else:
            says = f"does not exist, and NodePools in {', '.join(unread)} may allow spot"
            yield report.warning(_SPOT_ROLE, says, fix)
    if _exists(client, _FLEET_ROLE):
        yield report.ok(_FLEET_ROLE, "exists")
    else:
        says = "does not exist; EC2's guide asks for it where fleets are made by the API"
        yield report.warning(_FLEET_ROLE, says, fixes.make_service_linked_role("ec2fleet.amazonaws.com"))


def _exists(client: Client, role: str) -> bool:
    return answer_or_none(lambda: client("iam").get_role(RoleName=role), "NoSuchEntity") is not None


def _by_subnets(clusters: Sequence[PlannedCluster]) -> dict[tuple[str, ...], list[PlannedCluster]]:
    groups: dict[tuple[str, ...], list[PlannedCluster]] = {}
    for cluster in clusters:
        groups.setdefault(cluster.subnets, []).append(cluster)
    return groups


def network(
    client: Client, subnets: Sequence[str], endpoints: Sequence[str], collector: str = ""
) -> Iterator[CheckResult]:
    """Check that the subnets exist, and that functions in them reach the services that they ask, and a collector."""
    described = _subnets(client, subnets)
    if len({item["VpcId"] for item in described}) > 1:
        yield CheckReporter("network").failed(
            ", ".join(subnets), "are of several VPCs", by_hand("name subnets of one VPC in `vpc`")
        )
        return
    yield from account_checks.egress(client, _vpc(described), subnets, endpoints, collector)


def _subnets(client: Client, names: Sequence[str]) -> list[Mapping[str, Any]]:
    return list(client("ec2").describe_subnets(SubnetIds=list(names))["Subnets"]) if names else []


def _vpc(subnets: Sequence[Mapping[str, Any]]) -> str:
    return str(subnets[0]["VpcId"]) if subnets else ""


def control_plane(client: Client, cluster: PlannedCluster) -> Iterator[CheckResult]:
    """Check that EKS knows the cluster, takes access entries, and lets the functions reach its endpoint."""
    described, findings = cluster_checks.describe_cluster(client, cluster.name)
    yield from findings
    if described is None:
        return
    inside = {"SubnetIds": list(cluster.subnets), "VpcId": _vpc(_subnets(client, cluster.subnets))}
    yield cluster_checks.endpoint(cluster.name, described.get("resourcesVpcConfig", {}), inside)
    if cluster.access_entry:
        yield cluster_checks.authentication(cluster.name, described)


def ingress(client: Client, cluster: PlannedCluster) -> Iterator[CheckResult]:
    """Check that the cluster's security groups admit the functions' on port 443, where they meet inside the VPC."""
    report = CheckReporter("ingress")
    described, _ = cluster_checks.describe_cluster(client, cluster.name)
    config = (described or {}).get("resourcesVpcConfig", {})
    if not cluster.subnets or not config.get("endpointPrivateAccess"):
        return
    names = [name for name in (config.get("clusterSecurityGroupId"), *config.get("securityGroupIds", ())) if name]
    if not names:
        says = "EKS names no security group of its API server"
        yield report.unknown(
            cluster.name,
            says,
            by_hand("look at the cluster's networking in the EKS console: it must admit the functions on port 443"),
        )
        return
    own = names[0]
    groups = client("ec2").describe_security_groups(GroupIds=names)["SecurityGroups"]
    subnets = _subnets(client, cluster.subnets)
    rules = [rule for group in groups for rule in group.get("IpPermissions", ()) if _of_https(rule)]
    source = cluster.security_groups[0]
    if any(_admits(rule, cluster.security_groups, [item["CidrBlock"] for item in subnets]) for rule in rules):
        yield report.ok(cluster.name, f"its security groups admit {source} on port {_HTTPS}")
        return
    says = f"{own} does not admit the functions' {source} on port {_HTTPS}"
    yield report.failed(cluster.name, says, fixes.admit_functions(own, _HTTPS, source))


def _of_https(rule: Mapping[str, Any]) -> bool:
    if rule["IpProtocol"] == "-1":
        return True
    return rule["IpProtocol"] == "tcp" and _HTTPS in range(rule["FromPort"], rule["ToPort"] + 1)


def _admits(rule: Mapping[str, Any], groups: Sequence[str], blocks: Sequence[str]) -> bool:
    if any(pair.get("GroupId") in groups for pair in rule.get("UserIdGroupPairs", ())):
        return True
    ranges = [ip_network(item["CidrIp"], strict=False) for item in rule.get("IpRanges", ())]
    return all(any(ip_network(block).subnet_of(known) for known in ranges) for block in blocks)  # type: ignore[arg-type]


def node_role(client: Client, cluster: str, role: NodeRole) -> Iterator[CheckResult]:
    """Check that a role of nodes that the stack does not make has an access entry of the right type."""
    yield cluster_checks.node_access_entry(client, cluster, _arn_of(client, role), role.os)


def _arn_of(client: Client, role: NodeRole) -> str:
    if role.role:
        return _own_arn(client, f"role/{role.role.lstrip('/')}")
    return cluster_checks.role_of_profile(client, role.profile)


def audit_log(client: Client, install: str, cluster: PlannedCluster) -> Iterator[CheckResult]:
    """Check that EKS logs API requests, and that the log group has room for this install's subscription."""
    report, group = CheckReporter("audit log"), log_group_of(cluster.name)
    if cluster.in_eks and not _logs_audit(client, cluster.name):
        says = "its control plane does not log `audit`, which `audit: true` reads"
        yield report.failed(cluster.name, says, fixes.log_audit(cluster.name))
        return
    logs = client("logs")
    answer = answer_or_none(lambda: logs.describe_subscription_filters(logGroupName=group)["subscriptionFilters"])
    if answer is None:
        fix = "wait a few minutes after the logs were switched on, or leave `audit` out"
        yield report.failed(cluster.name, f"there is no log group {group} to subscribe to", by_hand(fix))
        return
    others = sorted(item["filterName"] for item in answer if item["filterName"] != install)
    if len(others) >= _SUBSCRIPTIONS:
        says = f"{group} has the subscriptions {', '.join(others)}, and CloudWatch allows {_SUBSCRIPTIONS}"
        fix = f"aws logs delete-subscription-filter --log-group-name {group} --filter-name NAME, or leave `audit` out"
        yield report.failed(cluster.name, says, by_hand(fix))
    else:
        yield report.ok(cluster.name, f"{group} has room for a subscription")


def _logs_audit(client: Client, cluster: str) -> bool:
    described, _ = cluster_checks.describe_cluster(client, cluster)
    setups = (described or {}).get("logging", {}).get("clusterLogging", ())
    return any(setup.get("enabled") and "audit" in setup.get("types", ()) for setup in setups)


def addresses(client: Client, cluster: PlannedCluster) -> Iterator[CheckResult]:
    """Check that nodes of a cluster whose pods have IPv6 addresses get such addresses, too."""
    described, _ = cluster_checks.describe_cluster(client, cluster.name)
    if (described or {}).get("kubernetesNetworkConfig", {}).get("ipFamily") != "ipv6":
        return
    report = CheckReporter("IPv6")
    for node_class in cluster.node_classes:
        names = [subnet.id for subnet in subnets_of(client("ec2"), node_class)]
        without = [item["SubnetId"] for item in _subnets(client, names) if not _has_ipv6(item)]
        subject = f"{cluster.name}/{node_class.metadata.name}"
        if without:
            says = f"{', '.join(without)} have no IPv6 addresses, which its pods need"
            fix = "aws ec2 associate-subnet-cidr-block --subnet-id SUBNET --ipv6-cidr-block BLOCK, or select others"
            yield report.failed(subject, says, by_hand(fix))
        else:
            yield report.ok(subject, f"{len(names)} subnets have IPv6 addresses")
    for role in cluster.node_roles:
        yield _may_assign(client, cluster.name, _arn_of(client, role))


def _has_ipv6(subnet: Mapping[str, Any]) -> bool:
    blocks = subnet.get("Ipv6CidrBlockAssociationSet", ())
    return any(block.get("Ipv6CidrBlockState", {}).get("State") not in _LOST_BLOCKS for block in blocks)


def _may_assign(client: Client, cluster: str, role: str) -> CheckResult:
    """Check that a role of nodes lets the VPC CNI give pods IPv6 addresses; the plugin may have a role of its own."""
    report, subject = CheckReporter("IPv6"), f"{cluster}/{role.rpartition('/')[2]}"
    simulate = client("iam").simulate_principal_policy
    (answer,) = simulate(PolicySourceArn=role, ActionNames=[_ASSIGN])["EvaluationResults"]
    if answer["EvalDecision"] == "allowed":
        return report.ok(subject, f"allows {_ASSIGN}")
    fix = f"allow {_ASSIGN} to the role, unless the VPC CNI has a role of its own that allows it"
    return report.warning(subject, f"does not allow {_ASSIGN}: pods would get no addresses", by_hand(fix))
