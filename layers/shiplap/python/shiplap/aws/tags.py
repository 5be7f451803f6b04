"""Tags: Shiplap recognises its own resources by them, and users find them.

All keys are our own. Karpenter ends every instance that carries its tags of a NodePool, an EC2NodeClass and the cluster
but has no NodeClaim object, and deletes launch templates tagged for its cluster; it may run beside us, if only while a
team migrates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

INSTALL = "shiplap.dev/install"
"""The owner: an account may have several installs, by mistake even for one cluster, each with tables of its own."""
CLUSTER = "shiplap.dev/cluster"
NODE_POOL = "shiplap.dev/nodepool"
NODE_CLASS = "shiplap.dev/ec2nodeclass"
NODE_CLAIM = "shiplap.dev/nodeclaim"
LAUNCH = "shiplap.dev/launch"
"""The token of the launch that made an instance; claims carry it, too."""
NAME = "Name"
OWNED = "owned"


def cluster_tag(cluster: str) -> str:
    """The key that marks a resource as belonging to a cluster; its value is `owned`."""
    return f"kubernetes.io/cluster/{cluster}"


def of_pool(cluster: str, node_pool: str, node_class: str, own: Mapping[str, str], install: str) -> dict[str, str]:
    """Tags of everything made for a NodePool. The user's own never replace those we find our resources by."""
    return {
        **own,
        **({INSTALL: install} if install else {}),
        CLUSTER: cluster,
        cluster_tag(cluster): OWNED,
        NODE_POOL: node_pool,
        NODE_CLASS: node_class,
    }


def written(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Tags in EC2's form, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def read(tags: list[TagTypeDef]) -> dict[str, str]:
    """Tags out of EC2's form."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def is_foreign(own: Mapping[str, str], install: str) -> bool:
    """True if a resource with these tags belongs to another install; untagged resources are older than the tag."""
    return own.get(INSTALL, install) != install


def owned_by(cluster: str) -> list[FilterTypeDef]:
    """Filters for the resources of this cluster's pools, of any install: no filter says "ours or without"."""
    return [
        {"Name": f"tag:{cluster_tag(cluster)}", "Values": [OWNED]},
        {"Name": f"tag:{CLUSTER}", "Values": [cluster]},
        {"Name": "tag-key", "Values": [NODE_POOL]},
    ]
