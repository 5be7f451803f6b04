"""The functions that talk to the Kubernetes API, with their queues and schedules, for the clusters of one network.

Lambda puts a function into one VPC. So clusters in another VPC, or with public endpoints, have functions of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aws_cdk import Aws
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from shiplap.aws.instance_profiles import identity_path
from shiplap.disruption.repair.repair_policies import REBOOT
from shiplap_cdk.constructs import lambda_functions as specifications
from shiplap_cdk.constructs import permissions
from shiplap_cdk.constructs.cluster_stack import node_roles
from shiplap_cdk.constructs.events import ClusterEvents, Events, Queues, WorkQueue, hand_on_disruption
from shiplap_cdk.constructs.function_roles import FunctionRoles
from shiplap_cdk.constructs.lambda_functions import LambdaFunctions, QueueTrigger, RuntimeSettings
from shiplap_cdk.constructs.schedules import Schedules
from shiplap_cdk.constructs.storage import InstallStorage
from shiplap_cdk.install_document import ServedCluster, in_group
from shiplap_cdk.install_keys import InstallDocument, keys_of_install
from shiplap_cdk.region_differences import ec2_principals

# A burst of a thousand events is one invocation; Lambda cuts a batch where its payload would pass 6 MB.
_LARGEST_BATCH = 1000
# Lambda allows from 2 to 1,000. Decisions of one cluster are serialised by its epoch anyway.
_LEAST_CONCURRENCY, _MOST_CONCURRENCY = 2, 1000
_LIFECYCLE_CONCURRENCY = 10


class Common(NamedTuple):
    """The parts that all functions of an install share. `environment` holds variables that each of them is given."""

    document: InstallDocument
    storage: InstallStorage
    events: Events
    layer_versions: Sequence[lambda_.LayerVersion]
    schedule_group: scheduler.CfnScheduleGroup
    environment: Mapping[str, str]

    def resource_names(self) -> dict[str, str]:
        """The environment variables of `shiplap.settings.ResourceNames` that are the same everywhere."""
        return {
            "SHIPLAP_STATE_TABLE": self.storage.state.table_name,
            "SHIPLAP_CAPACITY_TABLE": self.storage.capacity.table_name,
            "SHIPLAP_BUCKET": self.storage.bucket.bucket_name,
            "SHIPLAP_BUS": self.events.bus.event_bus_name,
            "SHIPLAP_INSTALL": self.document.name,
        }

    def running(self) -> RuntimeSettings:
        """Return the settings of functions outside of all networks."""
        own = self.document
        return RuntimeSettings(
            own.region, None, own.log_retention_days, own.snap_start, own.tracing, own.watch_memory_mib
        )

    def targets(
        self, clusters: Sequence[ServedCluster], *, timers: Sequence[str], feeds: Mapping[str, WorkQueue]
    ) -> permissions.PolicyTargets:
        """Return targets for policies of functions that serve these clusters; `timers` are ARNs of lifecycle queues."""
        own_path = identity_path(self.document.name, self.document.region)
        own_roles = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role{own_path}*"
        return permissions.PolicyTargets(
            storage=self.storage,
            timers=tuple(timers),
            feeds=feeds,
            bus_arn=self.events.bus.event_bus_arn,
            install=self.document.name,
            identity_path=own_path,
            own_node_roles=own_roles if any(cluster.has_own_node_role for cluster in clusters) else "",
            clusters=tuple(cluster.name for cluster in clusters if cluster.asks_eks),
            shifting=tuple(cluster.name for cluster in clusters if cluster.document.zonal_shift),
            node_roles=_sorted(role for cluster in clusters for role in node_roles(cluster)),
            image_parameters=_sorted(name for cluster in clusters for name in cluster.image_parameters),
            volume_keys=_sorted(key for cluster in clusters for key in cluster.volume_keys),
            kubeconfig_secrets=_sorted(cluster.document.kubeconfig_secret for cluster in clusters),
            metrics_secret=self.document.otlp.headers_secret if self.document.otlp else "",
            has_live_manifests=any(cluster.document.reads_cluster for cluster in clusters),
            of_install=keys_of_install(self.document),
            policies=_sorted(name for cluster in clusters for name in cluster.settings.policies_on),
            ec2_principals=ec2_principals(self.document.region),
            reboots=any(policy.action == REBOOT for cluster in clusters for policy in cluster.document.repair_policies),
        )


class NetworkGroup(Construct):
    """A network group. `only` says that there is no other, so that its queues get the events of all clusters."""

    def __init__(
        self, scope: Construct, id_: str, *, name: str, clusters: Sequence[ServedCluster], common: Common, only: bool
    ) -> None:
        super().__init__(scope, id_)
        document, network = common.document, clusters[0].document.vpc
        self.queues = ClusterEvents(
            self,
            "Events",
            bus=common.events.bus,
            queue_name=lambda queue: f"{document.name}-{in_group(queue, name)}",
            clusters=None if only else [cluster.name for cluster in clusters],
            provisioning_timeout_s=specifications.SCHEDULE.timeout_s,
            lifecycle_timeout_s=specifications.LIFECYCLE.timeout_s,
        ).queues
        lifecycle = self.queues.lifecycle.queue
        own = {"SHIPLAP_LIFECYCLE_QUEUE_URL": lifecycle.queue_url} | ({"SHIPLAP_NETWORK": name} if name else {})
        deployed = [specification.name for specification in specifications.OF_NETWORK]
        self.roles = FunctionRoles(
            self,
            "Roles",
            targets=common.targets(
                clusters,
                timers=[lifecycle.queue_arn],
                feeds={"schedule": self.queues.provisioning, "lifecycle": self.queues.lifecycle},
            ),
            functions=deployed,
            in_network=network is not None,
            tracing=document.tracing,
            group=name,
        ).roles
        made = LambdaFunctions(
            self,
            "Functions",
            install=document.name,
            specifications=specifications.OF_NETWORK,
            roles=self.roles,
            layer_versions=common.layer_versions,
            environment={function: {**common.resource_names(), **own, **common.environment} for function in deployed},
            feeds=_feeds(self.queues, len(clusters)),
            running=common.running()._replace(network=network, group=name),
        )
        self.functions, self.fed = made.functions, made.fed
        bus, disrupt = common.events.bus, made.live["disrupt"]
        hand_on_disruption(self, "DisruptionDue", bus=bus, network=name, disrupt=disrupt)
        Schedules(self, "Schedules", group=common.schedule_group).look_after(
            clusters,
            provisioning=self.queues.provisioning.queue,
            watch=made.live["watch"],
            disrupt=disrupt,
        )


def _feeds(queues: Queues, clusters: int) -> dict[str, QueueTrigger]:
    at_once = min(max(_LEAST_CONCURRENCY, clusters), _MOST_CONCURRENCY)
    return {
        "schedule": QueueTrigger(queues.provisioning, batch_size=_LARGEST_BATCH, window_s=1, most_at_once=at_once),
        "lifecycle": QueueTrigger(queues.lifecycle, batch_size=10, window_s=0, most_at_once=_LIFECYCLE_CONCURRENCY),
    }


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names) - {""}))
