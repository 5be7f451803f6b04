"""Tags: by which Shiplap knows its own, and by which users find what it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shiplap.api.nodeclaim import NodeClaim
from shiplap.api.types import EC2NodeClass
from shiplap.kubernetes import labels

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

CLUSTER = "shiplap.dev/cluster"
"""Ours alone: Karpenter, which may run beside us while a team migrates, writes all the other keys too."""

EKS_CLUSTER = "eks:eks-cluster-name"
NAME = "Name"
OWNED = "owned"


def cluster_tag(cluster: str) -> str:
    """The key that marks a resource as belonging to a cluster; its value is `owned`."""
    return f"kubernetes.io/cluster/{cluster}"


def of_pool(claim: NodeClaim, node_class: EC2NodeClass) -> dict[str, str]:
    """Tags of everything made for a claim's pool. The user's own never replace those we find our resources by."""
    return {
        **node_class.spec.tags,
        CLUSTER: claim.cluster,
        cluster_tag(claim.cluster): OWNED,
        EKS_CLUSTER: claim.cluster,
        labels.NODE_POOL: claim.node_pool,
        labels.NODE_CLASS: claim.node_class,
    }


def of_claim(claim: NodeClaim, node_class: EC2NodeClass) -> dict[str, str]:
    """Tags of the instance, its volumes and its fleet; a user's Name is kept."""
    return {NAME: claim.name, **of_pool(claim, node_class), labels.NODE_CLAIM: claim.name}


def written(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Tags in EC2's form, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def read(tags: list[TagTypeDef]) -> dict[str, str]:
    """Tags out of EC2's form."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def owned_by(cluster: str) -> list[FilterTypeDef]:
    """Filters for what this cluster's pools own."""
    return [
        {"Name": f"tag:{cluster_tag(cluster)}", "Values": [OWNED]},
        {"Name": f"tag:{CLUSTER}", "Values": [cluster]},
        {"Name": "tag-key", "Values": [labels.NODE_POOL]},
    ]
