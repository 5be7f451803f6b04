"""The audit log of EKS as a source of events: a subscription per cluster that asks for it.

Records come from the cluster's log group in CloudWatch, where EKS puts them when its control plane logs `audit`; the
stack neither makes that group nor switches the logs on. A log group takes two subscriptions; this is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.settings import Cluster

PATTERN = (
    '{ ($.objectRef.resource = "pods") && ($.objectRef.subresource = "status") && ($.stage = "ResponseComplete") && '
    '($.user.username != "system:node:*") && ($.responseObject.spec.nodeName NOT EXISTS) }'
)
"""What CloudWatch passes on: writes to the status of pods without a node, by anybody but the kubelets, whose writes are
nearly all. Records that lost their objects, being too large, pass too; those that were cut are no JSON and do not."""


def log_group_of(cluster: str) -> str:
    """The log group of an EKS cluster's control plane."""
    return f"/aws/eks/{cluster}/cluster"


class AuditLogs(Construct):
    """Subscriptions of a function to the audit logs of clusters."""

    def __init__(
        self, scope: Construct, id_: str, *, name: str, clusters: Sequence[Cluster], function: lambda_.Alias
    ) -> None:
        super().__init__(scope, id_)
        for cluster in clusters:
            group = log_group_of(cluster.name)
            allowed = lambda_.CfnPermission(
                self,
                f"Deliver-{cluster.name}",
                action="lambda:InvokeFunction",
                function_name=function.function_arn,
                principal=iam.ServicePrincipal("logs.amazonaws.com").service,
                source_account=Aws.ACCOUNT_ID,
                source_arn=f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{group}:*",
            )
            subscription = logs.CfnSubscriptionFilter(
                self,
                f"Subscription-{cluster.name}",
                log_group_name=group,
                filter_name=name,
                filter_pattern=PATTERN,
                destination_arn=function.function_arn,
            )
            # CloudWatch tries the function out when it is subscribed.
            subscription.node.add_dependency(allowed)
