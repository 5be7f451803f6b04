"""Starts work by time: the sweep that makes every lost message harmless, fresh catalogues, and watches without end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from shiplap_cdk.constructs.spread import spread
from shiplap_cdk.install_document import ServedCluster

SWEEP = "rate(1 minute)"
CATALOG = "rate(1 hour)"
# EC2NodeClasses depend on what changes by people's hands, who then wait for it to be seen.
INSPECTION = "rate(5 minutes)"
# A watch lives for up to 14 minutes of its function's 15: its successor starts before it ends.
WATCH = "rate(13 minutes)"
WATCHED_TOGETHER = 48
"""Clusters that one invocation watches: the memory that a function has at least then keeps 20,000 pods of them."""

# Commands take a step each minute; a proposal is acted on when it stands a minute later.
DISRUPTION = "rate(1 minute)"


class Schedules(Construct):
    """Schedules of an install's group, with a role that may start their targets and nothing else."""

    def __init__(self, scope: Construct, id_: str, *, group: scheduler.CfnScheduleGroup) -> None:
        super().__init__(scope, id_)
        self._group = group
        self._role = iam.Role(
            self,
            "Role",
            description="Starts what time starts in Shiplap",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                # The group's own ARN: EventBridge Scheduler refuses a role whose trust names schedules or a prefix.
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID, "aws:SourceArn": group.attr_arn}},
            ),
        )

    def refresh(self, catalog: lambda_.IFunction) -> None:
        """Keep the catalogue fresh, and what is known of the EC2NodeClasses."""
        self._may("Invoke", "lambda:InvokeFunction", catalog.function_arn)
        self._schedule("Catalog", CATALOG, catalog.function_arn, {}, retries=2)
        self._schedule("Inspection", INSPECTION, catalog.function_arn, {"kind": "inspect"}, retries=0)

    def look_after(
        self,
        clusters: Sequence[ServedCluster],
        *,
        provisioning: sqs.Queue,
        watch: lambda_.IFunction,
        disrupt: lambda_.IFunction,
    ) -> None:
        """Sweep, disrupt and, unless switched off, watch the clusters of a network group.

        Neither sweep nor disruption names a cluster: they are for all that the function serves.
        """
        self._may("Sweep", "sqs:SendMessage", provisioning.queue_arn)
        self._may("Invoke", "lambda:InvokeFunction", watch.function_arn, disrupt.function_arn)
        self._schedule("Sweep", SWEEP, provisioning.queue_arn, {"kind": "sweep"}, retries=0)
        self._schedule("Disruption", DISRUPTION, disrupt.function_arn, {}, retries=0)
        watched = [cluster.name for cluster in clusters if cluster.document.watch]
        for bucket, names in spread(watched, lambda some: len(some) <= WATCHED_TOGETHER).items():
            self._schedule(f"Watch{bucket}", WATCH, watch.function_arn, {"clusters": list(names)}, retries=2)

    def _may(self, sid: str, action: str, *resources: str) -> None:
        self._role.add_to_policy(iam.PolicyStatement(sid=sid, actions=[action], resources=list(resources)))

    def _schedule(self, id_: str, rate: str, target_arn: str, message: Mapping[str, Any], *, retries: int) -> None:
        schedule = scheduler.CfnSchedule(
            self,
            id_,
            group_name=self._group.ref,
            schedule_expression=rate,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=target_arn,
                role_arn=self._role.role_arn,
                input=json.dumps(message),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=retries
                ),
            ),
        )
        # The first invocation may come at once; before the policy is attached it would be refused.
        schedule.node.add_dependency(self._role)
