"""The names by which AWS resources are known as ours, for the adapters that write them and the policies that check.

Karpenter may run in the same cluster while a team migrates, and tags what it launches with the same keys. `MANAGED_BY`
is what tells the two apart: nothing without it is ever ended.
"""

from __future__ import annotations

import hashlib

CLUSTER_NAME_TAG = "eks:eks-cluster-name"
NODE_POOL_TAG = "karpenter.sh/nodepool"
NODE_CLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
NODE_CLAIM_TAG = "karpenter.sh/nodeclaim"
MANAGED_BY_TAG = "app.kubernetes.io/managed-by"
MANAGED_BY = "shiplap"

_LONGEST_PROFILE_NAME = 128


def cluster_tag(cluster: str) -> str:
    """Key of the tag, value `owned`, that Kubernetes' own controllers look for."""
    return f"kubernetes.io/cluster/{cluster}"


def instance_profile_name(region: str, cluster: str, role: str) -> str:
    """The instance profile that the stack makes for a role named by an EC2NodeClass; at most 128 characters.

    IAM knows no Regions, so the name carries it. A name that is too long ends in a digest of the whole.
    """
    name = f"shiplap-{region}-{cluster}-{role}"
    if len(name) <= _LONGEST_PROFILE_NAME:
        return name
    return f"{name[: _LONGEST_PROFILE_NAME - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
