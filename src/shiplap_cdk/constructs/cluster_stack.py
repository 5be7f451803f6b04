"""Makes what belongs to one cluster alone: its nodes' roles, the functions' way into it, its audit log as events.

A nested stack for each, so that a cluster more or less changes nothing of another's, and the install's own template
grows by one resource.

The identity of nodes (an instance profile, the stack's own node role, its access entry) outlives its place in the
template, because instances carry it: without it kubelets are refused at once. The catalog function ends it when no
instance carries it any more. So CloudFormation names it, and whatever of it cannot change in place has a part in its
logical id: the next deployment makes a new one beside the old one, and never alters what running nodes have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from aws_cdk import Aws, CfnResource, CfnTag, NestedStack, RemovalPolicy
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from shiplap.aws import tags
from shiplap.aws.instance_profiles import digest_of, profile_parameter
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

# Part of the logical ids of the stack's own node role, by the type of its access entry. EKS changes no entry's type and
# takes one entry for a role, so another type needs another role.
_VARIANTS = {"EC2_LINUX": "", "EC2_WINDOWS": "Windows", "": "WithoutEntry"}

# What the VPC CNI needs to give pods IPv6 addresses; AWS publishes it as text alone:
# https://docs.aws.amazon.com/eks/latest/userguide/cni-iam-role.html
_IPV6_ACTIONS = (
    "ec2:AssignIpv6Addresses",
    "ec2:DescribeInstances",
    "ec2:DescribeTags",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeInstanceTypes",
)


def needs_stack(cluster: ServedCluster) -> bool:
    """True if the stack makes anything for this cluster alone; CloudFormation refuses a stack of nothing."""
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
        for name in cluster.profile_roles:
            if cluster.has_own_node_role and name == cluster.own_node_role:
                variant = _VARIANTS[cluster.node_entry_type]
                self._profile(name, self._node_role(variant).role_name, variant)
            else:
                self._profile(name, name)
        if cluster.access_entry:
            for function, role in roles.items():
                self._enter(function, role)
        if cluster.document.audit and audit is not None and delivery is not None:
            subscription = subscribe(self, "AuditLog", cluster.settings.install, cluster.name, audit)
            # CloudWatch tries the function out when it is subscribed.
            subscription.node.add_dependency(delivery)

    def _profile(self, role: str, name_in_iam: str, variant: str = "") -> None:
        """The instance profile for a role, and the parameter by which launches find it.

        CloudFormation takes letters and digits only in logical ids: `a-b` and `ab` differ by their digests.
        """
        own = self._cluster.settings
        profile = iam.CfnInstanceProfile(
            self,
            f"Profile-{role}-{digest_of(role)}{variant}",
            roles=[name_in_iam],
            path=self._cluster.identity_path(role),
        )
        profile.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        ssm.CfnParameter(
            self,
            f"ProfileName-{role}-{digest_of(role)}",
            name=profile_parameter(own.install, own.name, role),
            type="String",
            value=profile.ref,
            description=f"Instance profile of the nodes of {own.name} with the role {role}",
        )

    def _node_role(self, variant: str) -> iam.Role:
        """The stack's own node role, with the access entry by which its nodes join."""
        cluster = self._cluster
        role = iam.Role(
            self,
            f"Nodes{variant}",
            path=cluster.identity_path(),
            description=f"Nodes that Shiplap launches for {cluster.name}",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in _NODE_POLICIES],
            inline_policies={"AmazonEKS_CNI_IPv6_Policy": _ipv6_policy()} if cluster.is_ipv6 else None,
        )
        names = ec2_principals(cluster.settings.region)
        if len(names) > 1:
            # The CDK writes any name of EC2 as ec2.amazonaws.com.
            cast("CfnResource", role.node.default_child).add_property_override(
                "AssumeRolePolicyDocument.Statement.0.Principal.Service", list(names)
            )
        role.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        acknowledge(
            role,
            "AwsSolutions-IAM4",
            "What a node of EKS needs is published by AWS as managed policies and changes with EKS.",
            *(f"Policy::arn:<AWS::Partition>:iam::aws:policy/{name}" for name in _NODE_POLICIES),
        )
        if cluster.is_ipv6:
            acknowledge(
                role,
                "AwsSolutions-IAM5",
                "AWS publishes what the VPC CNI needs for IPv6 with these resources.",
                "Resource::*",
                "Resource::arn:<AWS::Partition>:ec2:*:*:network-interface/*",
            )
        if cluster.node_entry_type:
            entry = eks.CfnAccessEntry(
                self,
                f"NodesEntry{variant}",
                cluster_name=cluster.name,
                principal_arn=role.role_arn,
                type=cluster.node_entry_type,
                # The catalog function may end entries with this tag, and no others.
                tags=[CfnTag(key=tags.INSTALL, value=cluster.settings.install)],
            )
            entry.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
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


def _ipv6_policy() -> iam.PolicyDocument:
    interfaces = f"arn:{Aws.PARTITION}:ec2:*:*:network-interface/*"
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(actions=list(_IPV6_ACTIONS), resources=["*"]),
            iam.PolicyStatement(actions=["ec2:CreateTags"], resources=[interfaces]),
        ]
    )


def node_roles(cluster: ServedCluster) -> tuple[str, ...]:
    """ARNs of the roles, not made by the stack, that the cluster's nodes may carry."""
    others = (role for role in cluster.node_roles if role != cluster.own_node_role)
    return tuple(f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{role.lstrip('/')}" for role in others)
