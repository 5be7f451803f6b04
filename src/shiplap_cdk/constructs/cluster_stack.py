"""What belongs to one cluster alone: its nodes' roles, the functions' way into it, its audit log as a source of events.

A nested stack for each, so that a cluster more or less changes nothing of another's, and the install's own template
grows by one resource.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import cast

from aws_cdk import Aws, CfnResource, NestedStack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from shiplap.aws.instance_profiles import profile_name, role_name
from shiplap_cdk.constructs.acknowledged import acknowledge
from shiplap_cdk.constructs.audit_subscription import subscribe
from shiplap_cdk.install_document import ServedCluster
from shiplap_cdk.region_differences import ec2_principals

# The Kubernetes group that docs/rbac.yaml binds.
KUBERNETES_GROUP = "shiplap"

_NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)


def needs_stack(cluster: ServedCluster) -> bool:
    """Whether anything is made for this cluster alone; CloudFormation refuses a stack of nothing."""
    return (
        cluster.access_entry or cluster.document.audit or bool(cluster.roles_in_manifests) or cluster.has_own_node_role
    )


class ClusterStack(NestedStack):
    """The nested stack of one cluster.

    `roles` are those of the functions that enter the cluster, by the functions' names; `audit` is the function that
    reads audit logs, and `delivery` lets CloudWatch call it.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster: ServedCluster,
        roles: Mapping[str, iam.IRole],
        audit: lambda_.IFunction | None,
        delivery: lambda_.CfnPermission | None,
    ) -> None:
        super().__init__(scope, id_, description=f"Shiplap: access to the cluster {cluster.name}")
        self._cluster = cluster
        nodes = self._node_role() if cluster.has_own_node_role else None
        # IAM tells roles apart by their names, whatever their paths.
        for name in sorted({role_name(role): role for role in sorted(cluster.roles_in_manifests)}.values()):
            self._profile(name, nodes.role_name if nodes and name == cluster.own_node_role else role_name(name))
        if cluster.access_entry:
            for function, role in roles.items():
                self._enter(function, role)
        if cluster.document.audit and audit is not None and delivery is not None:
            subscription = subscribe(self, "AuditLog", cluster.settings.install, cluster.name, audit)
            # CloudWatch tries the function out when it is subscribed.
            subscription.node.add_dependency(delivery)

    def _profile(self, role: str, name_in_iam: str) -> None:
        """The instance profile that launches name for a role of the manifests."""
        own = self._cluster.settings
        iam.CfnInstanceProfile(
            self,
            # CloudFormation takes letters and digits only: `a-b` and `ab` would have the same logical id.
            f"Profile-{role_name(role)}-{hashlib.sha256(role_name(role).encode()).hexdigest()[:8]}",
            roles=[name_in_iam],
            instance_profile_name=profile_name(own.install, own.region, own.name, role),
        )

    def _node_role(self) -> iam.Role:
        cluster = self._cluster
        role = iam.Role(
            self,
            "Nodes",
            role_name=cluster.node_role_name,
            path=cluster.node_role_path,
            description=f"Nodes that Shiplap launches for {cluster.name}",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in _NODE_POLICIES],
        )
        names = ec2_principals(cluster.settings.region)
        if len(names) > 1:
            # The CDK writes any name of EC2 as ec2.amazonaws.com.
            cast("CfnResource", role.node.default_child).add_property_override(
                "AssumeRolePolicyDocument.Statement.0.Principal.Service", list(names)
            )
        acknowledge(
            role,
            "AwsSolutions-IAM4",
            "What a node of EKS needs is published by AWS as managed policies and changes with EKS.",
            *(f"Policy::arn:<AWS::Partition>:iam::aws:policy/{name}" for name in _NODE_POLICIES),
        )
        if cluster.access_entry:
            eks.CfnAccessEntry(
                self,
                "NodesEntry",
                cluster_name=cluster.name,
                principal_arn=role.role_arn,
                type=cluster.node_entry_type,
            )
        return role

    def _enter(self, function: str, role: iam.IRole) -> None:
        eks.CfnAccessEntry(
            self,
            f"Entry-{function}",
            cluster_name=self._cluster.name,
            principal_arn=role.role_arn,
            kubernetes_groups=[KUBERNETES_GROUP],
            type="STANDARD",
        )


def node_roles(cluster: ServedCluster) -> tuple[str, ...]:
    """ARNs of the roles, not made by the stack, that the cluster's nodes may carry."""
    others = (role for role in cluster.node_roles if role != cluster.own_node_role)
    return tuple(f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{role.lstrip('/')}" for role in others)
