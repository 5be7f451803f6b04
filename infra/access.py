"""Who may do what: a role per function, the nodes' roles, and the functions' way into the clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import permissions
from infra.acknowledged import acknowledge
from infra.events import Events
from infra.settings import Cluster, Install
from infra.storage import Storage
from shiplap.aws.instance_profiles import profile_name, role_name

# The Kubernetes group that docs/rbac.yaml binds.
KUBERNETES_GROUP = "shiplap"

# Functions that talk to the Kubernetes API.
CLUSTER_FUNCTIONS = ("schedule", "lifecycle", "disrupt", "watch")

_PERMISSIONS: dict[str, Callable[[permissions.Reach], permissions.Statements]] = {
    "schedule": permissions.schedule,
    "lifecycle": permissions.lifecycle,
    "interrupt": permissions.interrupt,
    "catalog": permissions.catalog,
    "disrupt": permissions.disrupt,
    "watch": permissions.watch,
    "audit": permissions.audit,
    "widget": permissions.widget,
}

_NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)


class Access(Construct):
    """`roles` by the names of the functions that are deployed."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: Install,
        storage: Storage,
        events: Events,
        functions: Sequence[str],
        in_network: bool,
        tracing: bool,
    ) -> None:
        super().__init__(scope, id_)
        clusters, region = install.clusters, install.document.region
        node_roles = [arn for cluster in clusters for arn in self._nodes_of(cluster, region)]
        reach = permissions.Reach(
            storage,
            events.bus.event_bus_arn,
            events.provisioning,
            events.lifecycle,
            events.interruption,
            install.document.name,
            tuple(cluster.name for cluster in clusters),
            tuple(dict.fromkeys(node_roles)),
            tuple(sorted({name for cluster in clusters for name in cluster.image_parameters})),
            tuple(sorted({key for cluster in clusters for key in cluster.volume_keys})),
            tuple(sorted({cluster.document.kubeconfig_secret for cluster in clusters} - {""})),
        )
        self.roles = {name: self._role(name, reach, in_network=in_network, tracing=tracing) for name in functions}
        for cluster in clusters:
            if cluster.access_entry:
                self._enter(cluster)

    def _role(self, name: str, reach: permissions.Reach, *, in_network: bool, tracing: bool) -> iam.Role:
        role = iam.Role(
            self,
            name.capitalize(),
            description=f"Shiplap's function {name}",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        statements = _PERMISSIONS[name](reach)
        if name in CLUSTER_FUNCTIONS:
            statements += permissions.kubeconfigs(reach)
        if in_network and name in CLUSTER_FUNCTIONS:
            statements += permissions.inside_network()
        if tracing:
            statements += permissions.traced()
        for statement in statements:
            role.add_to_policy(statement)
        acknowledge(
            role,
            "AwsSolutions-IAM5",
            "Instances, volumes, templates and recorded decisions get their ids when they are made: tags or a prefix "
            "bound them instead. Describe actions and the Pricing API know no resources.",
            *sorted({f"Resource::{self._readable(arn)}" for arn in _wildcards(statements)}),
        )
        return role

    def _readable(self, arn: str) -> str:
        """An ARN as cdk-nag writes it in the id of a finding: `<LogicalId.Attribute>` for each reference."""
        resolved = Stack.of(self).resolve(arn)
        if isinstance(resolved, str):
            return resolved
        parts = resolved["Fn::Join"][1]
        return "".join(part if isinstance(part, str) else f"<{_reference(part)}>" for part in parts)

    def _nodes_of(self, cluster: Cluster, region: str) -> list[str]:
        """ARNs of the roles a cluster's nodes may carry; makes the instance profiles of those that manifests name."""
        arns = []
        for role in cluster.node_roles:
            made = self._make_node_role(cluster) if role == cluster.own_node_role else None
            arns.append(made.role_arn if made else f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{role.lstrip('/')}")
            if role in cluster.roles_in_manifests:
                iam.CfnInstanceProfile(
                    self,
                    f"Profile-{cluster.name}-{role_name(role)}",
                    roles=[made.role_name if made else role_name(role)],
                    instance_profile_name=profile_name(region, cluster.name, role),
                )
        return arns

    def _make_node_role(self, cluster: Cluster) -> iam.Role:
        role = iam.Role(
            self,
            f"Nodes-{cluster.name}",
            role_name=cluster.own_node_role,
            description=f"Nodes that Shiplap launches for {cluster.name}",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in _NODE_POLICIES],
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
                f"NodesEntry-{cluster.name}",
                cluster_name=cluster.name,
                principal_arn=role.role_arn,
                type="EC2_LINUX",
            )
        return role

    def _enter(self, cluster: Cluster) -> None:
        for function in CLUSTER_FUNCTIONS:
            eks.CfnAccessEntry(
                self,
                f"Entry-{cluster.name}-{function}",
                cluster_name=cluster.name,
                principal_arn=self.roles[function].role_arn,
                kubernetes_groups=[KUBERNETES_GROUP],
                type="STANDARD",
            )


def _wildcards(statements: permissions.Statements) -> list[str]:
    return [arn for statement in statements for arn in statement.resources if arn.endswith("*")]


def _reference(part: dict[str, object]) -> str:
    """`{"Ref": "X"}` as X, `{"Fn::GetAtt": ["X", "Arn"]}` as X.Arn."""
    (target,) = part.values()
    return ".".join(map(str, target)) if isinstance(target, list) else str(target)
