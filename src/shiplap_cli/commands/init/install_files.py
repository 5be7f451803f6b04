"""The first files of an install: shiplap.yaml and manifests that fit a cluster, and what to know about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shiplap_cli.commands.init.surroundings import DISCOVERY_TAG, ClusterSurroundings, VpcSubnet
from shiplap_cli.commands.migrate.migration_findings import MIGRATION_TAINT

SETTINGS = "shiplap.yaml"
NEXT = (
    "npx aws-cdk bootstrap    # once per account and Region",
    "shiplap doctor --before-deploy",
    "npx aws-cdk deploy",
    "kubectl apply -f docs/rbac.yaml",
)
"""The commands after `shiplap init`, in order."""
_MOST_SUBNETS = 16
"""What Lambda takes of a VPC."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a person. `node_role` is empty for the role that the stack makes, `cpu_limit` counts vCPUs.

    `is_beside_another`: another provisioner answers the same pods, although AWS does not show it.
    """

    capacity_types: tuple[str, ...] = ("on-demand",)
    node_role: str = ""
    cpu_limit: int = 100
    is_beside_another: bool = False


class InstallFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file to write, its path relative to the folder of shiplap.yaml; `documents` are its YAML documents."""

    path: str
    documents: tuple[Mapping[str, Any], ...]


class FirstInstall(msgspec.Struct, frozen=True, rename="camel"):
    """The files and remarks of `shiplap init`; `commands` are the next ones to run, in order."""

    files: tuple[InstallFile, ...]
    remarks: tuple[str, ...]
    commands: tuple[str, ...]


def first_install(found: ClusterSurroundings, choices: Choices) -> FirstInstall:
    """The files for a cluster as it was found."""
    folder = f"manifests/{found.cluster}"
    manifests = example_manifests(f"{folder}/nodes.yaml", found, choices)
    settings = InstallFile(SETTINGS, ({"region": found.region, "clusters": [_cluster(found, choices, folder)]},))
    return FirstInstall(
        (settings, manifests),
        tuple(_remarks(found, choices)),
        NEXT,
    )


def example_manifests(path: str, found: ClusterSurroundings, choices: Choices) -> InstallFile:
    """The file with an EC2NodeClass and a NodePool for a cluster."""
    return InstallFile(path, (_node_class(found, choices), _node_pool(found, choices)))


def _cluster(found: ClusterSurroundings, choices: Choices, folder: str) -> dict[str, Any]:
    cluster: dict[str, Any] = {"name": found.cluster, "manifests": folder}
    if not found.is_open:
        subnets = [subnet.id for subnet in _inside(found)][:_MOST_SUBNETS]
        cluster["vpc"] = {"subnets": subnets, "securityGroups": [found.security_group]}
    if _shares_pods(found, choices):
        cluster["claimRules"] = [{"tolerates": MIGRATION_TAINT.key}]
    return cluster


def _node_class(found: ClusterSurroundings, choices: Choices) -> dict[str, Any]:
    tagged = {"tags": {DISCOVERY_TAG: found.cluster}}
    has_tag = any(item.is_tagged for item in found.subnets) or not found.subnets
    subnets = [tagged] if has_tag else [{"id": name} for name in _of_nodes(found)]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": f"{_family(found)}@latest"}],
            "role": choices.node_role or f"shiplap-node-{found.cluster}",
            "subnetSelectorTerms": subnets,
            "securityGroupSelectorTerms": [tagged] if found.is_group_tagged else [{"id": found.security_group}],
        },
    }


def _node_pool(found: ClusterSurroundings, choices: Choices) -> dict[str, Any]:
    """Flex first, then whatever else is cheapest."""
    template: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            _requirement("karpenter.sh/capacity-type", *choices.capacity_types),
            _requirement("kubernetes.io/arch", *_architectures(found)),
            _requirement("karpenter.k8s.aws/instance-category", "c", "m", "r"),
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
            _requirement("karpenter.k8s.aws/instance-family", "*-flex", "*"),
        ],
    }
    if _shares_pods(found, choices):
        template["taints"] = [msgspec.to_builtins(MIGRATION_TAINT)]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": template}, "limits": {"cpu": str(choices.cpu_limit)}},
    }


def _requirement(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _shares_pods(found: ClusterSurroundings, choices: Choices) -> bool:
    """True if another provisioner answers the same pods: then only pods that tolerate a taint are Shiplap's."""
    return (
        choices.is_beside_another or found.others.karpenter or found.others.cluster_autoscaler or found.others.auto_mode
    )


def _family(found: ClusterSurroundings) -> str:
    kinds = {group.ami_type.partition("_")[0] for group in found.node_groups}
    return "bottlerocket" if kinds == {"BOTTLEROCKET"} else "al2023"


def _architectures(found: ClusterSurroundings) -> Sequence[str]:
    """Return the architectures of the node groups: images may lack any other."""
    known = {"arm64" if "ARM_64" in group.ami_type else "amd64" for group in found.node_groups if group.ami_type}
    return sorted(known) or ["amd64"]


def _of_nodes(found: ClusterSurroundings) -> Sequence[str]:
    """Subnets for nodes: those of the node groups, else of the control plane, else all; private ones if there are.

    Where pods have IPv6 addresses, only subnets that have some, if there are any.
    """
    named = {name for group in found.node_groups for name in group.subnets} or set(found.cluster_subnets)
    known = [subnet for subnet in found.subnets if subnet.id in named] or list(found.subnets)
    if found.is_ipv6:
        known = [subnet for subnet in known if subnet.has_ipv6] or known
    return [subnet.id for subnet in known if not subnet.is_public] or [subnet.id for subnet in known]


def _inside(found: ClusterSurroundings) -> Sequence[VpcSubnet]:
    """Subnets for functions that reach the endpoint from inside. In a public subnet a function reaches nothing else."""
    private = [subnet for subnet in found.subnets if not subnet.is_public]
    near = [subnet for subnet in private if subnet.id in found.cluster_subnets]
    return near or private or found.subnets


def _remarks(found: ClusterSurroundings, choices: Choices) -> Iterator[str]:
    update = f"aws eks update-cluster-config --name {found.cluster} --region {found.region}"
    if found.status not in ("", "ACTIVE"):
        yield f"the cluster is {found.status}: wait until it is ACTIVE"
    if found.authentication_mode == "CONFIG_MAP":
        mode = "--access-config authenticationMode=API_AND_CONFIG_MAP"
        yield f"the cluster takes no access entries: run `{update} {mode}`"
    if not found.is_open:
        reason = "is private" if not found.is_public else f"admits {', '.join(found.public_cidrs)} only"
        yield f"the endpoint {reason}: the functions run in the VPC, see docs/how-to/deployment.md, Networks"
        if not found.is_private:
            access = "--resources-vpc-config endpointPrivateAccess=true"
            yield f"functions in the VPC need the private endpoint: run `{update} {access}`"
        if all(subnet.is_public for subnet in _inside(found)):
            yield "the VPC has no private subnet: functions in public ones reach AWS only by VPC endpoints"
    if not found.subnets:
        tag = f"{DISCOVERY_TAG}={found.cluster}"
        yield f"nodes go into subnets with the tag {tag}: tag some, or name them by --subnets"
    if not found.security_group:
        tag = f"{DISCOVERY_TAG}={found.cluster}"
        yield f"nodes get the security groups with the tag {tag}: tag the cluster's, or name it by --security-group"
    names = ("Karpenter", "Cluster Autoscaler", "EKS Auto Mode")
    seen = (found.others.karpenter, found.others.cluster_autoscaler, found.others.auto_mode)
    others = [name for name, is_seen in zip(names, seen, strict=True) if is_seen]
    if _shares_pods(found, choices):
        who = " and ".join(others) or "another provisioner"
        chosen = f"only pods that tolerate {MIGRATION_TAINT.key} are Shiplap's, see docs/how-to/migration.md"
        yield f"{who} launches nodes for this cluster: {chosen}"
    if found.is_ipv6:
        yield from _remarks_on_ipv6(found, choices)
    if choices.node_role:
        yield f"the role {choices.node_role} must exist, with an access entry of the type EC2_LINUX"
    if "spot" in choices.capacity_types:
        yield (
            "spot needs EC2's service-linked role, once per account: "
            "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`"
        )


def _remarks_on_ipv6(found: ClusterSurroundings, choices: Choices) -> Iterator[str]:
    tagged = [subnet.id for subnet in found.subnets if subnet.is_tagged]
    selected = set(tagged or _of_nodes(found))
    if without := [subnet.id for subnet in found.subnets if subnet.id in selected and not subnet.has_ipv6]:
        listed = ", ".join(without)
        yield f"pods have IPv6 addresses, and nodes would be in {listed}, which have none: give them a block"
    if choices.node_role:
        unless = "unless the VPC CNI has a role of its own"
        yield f"the role {choices.node_role} must allow ec2:AssignIpv6Addresses, {unless}"
