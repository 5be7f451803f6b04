"""The audit log of EKS as a source of events: a subscription per cluster that asks for it.

Records come from the cluster's log group in CloudWatch, where EKS puts them when its control plane logs `audit`; the
stack neither makes that group nor switches the logs on. A log group takes two subscriptions; this is one of them.
"""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from shiplap_cdk.stack_values import AUDIT_PATTERN, log_group_of


def let_deliver(scope: Construct, id_: str, function: lambda_.IFunction) -> lambda_.CfnPermission:
    """Let CloudWatch call the function with records of the control planes of this account and Region.

    One statement for all clusters, because a function's resource policy holds 20 KB. A log group of another cluster
    still needs a subscription, and records of clusters that are not ours are dropped.
    """
    groups = f"{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:{log_group_of('*')}:*"
    return lambda_.CfnPermission(
        scope,
        id_,
        action="lambda:InvokeFunction",
        function_name=function.function_arn,
        principal=iam.ServicePrincipal("logs.amazonaws.com").service,
        source_account=Aws.ACCOUNT_ID,
        source_arn=f"arn:{Aws.PARTITION}:logs:{groups}",
    )


def subscribe(
    scope: Construct, id_: str, install: str, cluster: str, function: lambda_.IFunction
) -> logs.CfnSubscriptionFilter:
    """Subscribe the function to the audit log of a cluster."""
    return logs.CfnSubscriptionFilter(
        scope,
        id_,
        log_group_name=log_group_of(cluster),
        filter_name=install,
        filter_pattern=AUDIT_PATTERN,
        destination_arn=function.function_arn,
    )
