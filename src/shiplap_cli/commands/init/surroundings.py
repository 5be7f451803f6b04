"""Reads an EKS cluster that Shiplap is to serve from AWS: its endpoint, networks, nodes and other provisioners.

Everything here is read; nothing is changed. The rights that are needed are those of `eks:List*`, `eks:Describe*`,
`ec2:Describe*` and `autoscaling:DescribeAutoScalingGroups`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.aws.ec2_errors import aws_errors

Client = Callable[[str], Any]
"""Makes the client of a service, in the Region that is asked."""

DISCOVERY_TAG = "karpenter.sh/discovery"
"""The tag by which Karpenter's guides have subnets and security groups found; its value is the cluster's name."""

ANYWHERE = "0.0.0.0/0"


class VpcSubnet(msgspec.Struct, frozen=True, order=True):
    """A subnet of the cluster's VPC. `is_public`: its routes lead to an internet gateway."""

    id: str
    zone: str
    is_public: bool = False
    is_tagged: bool = False
    has_ipv6: bool = False


class NodeGroup(msgspec.Struct, frozen=True, order=True):
    """A managed node group; `ami_type` as EKS names it, such as AL2023_x86_64_STANDARD."""

    name: str
    ami_type: str
    subnets: tuple[str, ...]


class OtherProvisioners(msgspec.Struct, frozen=True):
    """The other provisioners that launch nodes for the cluster, as far as AWS shows them."""

    karpenter: bool = False
    cluster_autoscaler: bool = False
    auto_mode: bool = False


class ClusterSurroundings(msgspec.Struct, frozen=True):
    """A cluster and what is around it. Subnets and node groups are sorted.

    `cluster_subnets` are those that the control plane has its interfaces in, `public_cidrs` who may reach the public
    endpoint, `is_group_tagged` whether a security group has the discovery tag, `is_ipv6` whether pods have IPv6
    addresses.
    """

    region: str
    cluster: str
    status: str
    authentication_mode: str
    is_public: bool
    is_private: bool
    public_cidrs: tuple[str, ...]
    cluster_subnets: tuple[str, ...]
    security_group: str
    is_group_tagged: bool
    subnets: tuple[VpcSubnet, ...]
    node_groups: tuple[NodeGroup, ...]
    others: OtherProvisioners
    is_ipv6: bool = False

    @property
    def is_open(self) -> bool:
        """True if functions reach the endpoint from outside the VPC: their addresses are not known beforehand."""
        return self.is_public and ANYWHERE in self.public_cidrs


def clusters_of(client: Client) -> tuple[str, ...]:
    """The names of the EKS clusters of the Region, sorted. Raises AwsThrottled, AwsError."""
    with aws_errors("list EKS clusters"):
        pages = client("eks").get_paginator("list_clusters").paginate()
        return tuple(sorted(name for page in pages for name in page["clusters"]))


def look_around(client: Client, region: str, name: str) -> ClusterSurroundings:
    """Return AWS's description of a cluster. Raises AwsThrottled, AwsError: it does not exist, or may not be read."""
    with aws_errors(f"describe EKS cluster {name}"):
        cluster = client("eks").describe_cluster(name=name)["cluster"]
    network = cluster["resourcesVpcConfig"]
    vpc = network.get("vpcId", "")
    node_groups = _node_groups(client, name)
    return ClusterSurroundings(
        region=region,
        cluster=name,
        status=cluster.get("status", ""),
        authentication_mode=cluster.get("accessConfig", {}).get("authenticationMode", ""),
        is_public=network.get("endpointPublicAccess", True),
        is_private=network.get("endpointPrivateAccess", False),
        public_cidrs=tuple(network.get("publicAccessCidrs") or (ANYWHERE,)),
        cluster_subnets=tuple(sorted(network.get("subnetIds", ()))),
        security_group=network.get("clusterSecurityGroupId") or next(iter(network.get("securityGroupIds", ())), ""),
        is_group_tagged=_is_group_tagged(client, vpc, name),
        subnets=_subnets(client, vpc, name),
        node_groups=node_groups,
        others=OtherProvisioners(
            karpenter=_has_instances_of_karpenter(client, name),
            cluster_autoscaler=_has_groups_to_scale(client, name),
            auto_mode=bool(cluster.get("computeConfig", {}).get("enabled")),
        ),
        is_ipv6=cluster.get("kubernetesNetworkConfig", {}).get("ipFamily") == "ipv6",
    )


def _node_groups(client: Client, cluster: str) -> tuple[NodeGroup, ...]:
    with aws_errors(f"describe the node groups of {cluster}"):
        eks = client("eks")
        pages = eks.get_paginator("list_nodegroups").paginate(clusterName=cluster)
        names = sorted(name for page in pages for name in page["nodegroups"])
        found = [eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"] for name in names]
    return tuple(
        NodeGroup(name, item.get("amiType", ""), tuple(sorted(item.get("subnets", ()))))
        for name, item in zip(names, found, strict=True)
    )


def _subnets(client: Client, vpc: str, cluster: str) -> tuple[VpcSubnet, ...]:
    mine = [{"Name": "vpc-id", "Values": [vpc]}]
    with aws_errors(f"describe the subnets of {vpc}"):
        ec2 = client("ec2")
        pages = ec2.get_paginator("describe_subnets").paginate(Filters=mine)
        subnets = [item for page in pages for item in page["Subnets"]]
        tables = [
            item
            for page in ec2.get_paginator("describe_route_tables").paginate(Filters=mine)
            for item in page["RouteTables"]
        ]
    table_of = {link["SubnetId"]: table for table in tables for link in table["Associations"] if "SubnetId" in link}
    main: Mapping[str, Any] = next(
        (table for table in tables if any(link.get("Main") for link in table["Associations"])), {}
    )
    return tuple(
        sorted(
            VpcSubnet(
                item["SubnetId"],
                item["AvailabilityZone"],
                is_public=_leads_outside(table_of.get(item["SubnetId"], main)),
                is_tagged=_is_tagged(item, cluster),
                has_ipv6=bool(item.get("Ipv6CidrBlockAssociationSet")),
            )
            for item in subnets
        )
    )


def _leads_outside(table: Mapping[str, Any]) -> bool:
    return any(str(route.get("GatewayId", "")).startswith("igw-") for route in table.get("Routes", ()))


def _is_tagged(item: Mapping[str, Any], cluster: str) -> bool:
    return {"Key": DISCOVERY_TAG, "Value": cluster} in item.get("Tags", ())


def _is_group_tagged(client: Client, vpc: str, cluster: str) -> bool:
    return bool(
        _found(
            client,
            "describe_security_groups",
            "SecurityGroups",
            [{"Name": "vpc-id", "Values": [vpc]}, {"Name": f"tag:{DISCOVERY_TAG}", "Values": [cluster]}],
        )
    )


def _has_instances_of_karpenter(client: Client, cluster: str) -> bool:
    filters = [
        {"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]},
        {"Name": "tag:eks:eks-cluster-name", "Values": [cluster]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    return bool(_found(client, "describe_instances", "Reservations", filters))


def _found(client: Client, operation: str, key: str, filters: Sequence[Mapping[str, Any]]) -> list[Any]:
    with aws_errors(operation.replace("_", " ")):
        pages = client("ec2").get_paginator(operation).paginate(Filters=filters)
        return [item for page in pages for item in page[key]]


def _has_groups_to_scale(client: Client, cluster: str) -> bool:
    """True if Auto Scaling groups with room to scale carry the tag by which Cluster Autoscaler finds them."""
    filters = [{"Name": "tag-key", "Values": [f"k8s.io/cluster-autoscaler/{cluster}"]}]
    with aws_errors("describe Auto Scaling groups"):
        pages = client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate(Filters=filters)
        groups = [item for page in pages for item in page["AutoScalingGroups"]]
    # EKS puts the tag on the groups of managed node groups, whether or not anything scales them.
    return any(group["MinSize"] < group["MaxSize"] and not _is_managed(group) for group in groups)


def _is_managed(group: Mapping[str, Any]) -> bool:
    return any(tag["Key"] == "eks:nodegroup-name" for tag in group.get("Tags", ()))
