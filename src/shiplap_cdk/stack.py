"""The stack: one construct per concern, wired together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Annotations, CfnOutput, NestedStack, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from shiplap_cdk.artifacts.layers import Artifacts
from shiplap_cdk.constructs import lambda_functions as specifications
from shiplap_cdk.constructs.alarms import Alarms
from shiplap_cdk.constructs.audit_subscription import let_deliver
from shiplap_cdk.constructs.cluster_stack import ClusterStack, needs_stack
from shiplap_cdk.constructs.dashboard import Dashboard
from shiplap_cdk.constructs.events import Events, WorkQueue, inspect_on_demand
from shiplap_cdk.constructs.function_roles import FunctionRoles
from shiplap_cdk.constructs.lambda_functions import LambdaFunctions, Layers, QueueTrigger
from shiplap_cdk.constructs.network_group import Common, NetworkGroup
from shiplap_cdk.constructs.schedules import Schedules
from shiplap_cdk.constructs.storage import InstallStorage
from shiplap_cdk.install_document import InstallConfig, in_group
from shiplap_cdk.region_differences import left_out


class Shiplap(Construct):
    """All of Shiplap for the clusters of one account and Region, for use in anybody's stack.

    `functions` and `queues` are by name; those of a network group with a name end in it, as `schedule-blue`. `fed` are
    the names in Lambda of functions that a queue feeds.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: InstallConfig,
        artifacts: Artifacts | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to every function's own. Without `artifacts`, layers that are missing are built.

        Raises ShiplapError when a layer cannot be built.
        """
        super().__init__(scope, id_)
        document = install.document
        for feature, line in left_out(document.region):
            # Not a warning: `cdk deploy --strict` would fail for what cannot be helped.
            Annotations.of(self).add_info_v2(f"shiplap:{feature.name}", line)
        self.storage = InstallStorage(self, "Storage", record_retention_days=document.record_retention_days)
        self.events = Events(
            self, "Events", name=document.name, interruption_timeout_s=specifications.INTERRUPT.timeout_s
        )
        if document.permissions_boundary:
            iam.PermissionsBoundary.of(self).apply(_policy(self, document.permissions_boundary))
        common = Common(
            document,
            self.storage,
            self.events,
            Layers(self, "Layers", artifacts or Artifacts.built(install.settings())).versions,
            scheduler.CfnScheduleGroup(self, "ScheduleGroup", name=document.name),
            environment or {},
        )
        self.networks = {name: self._network(name, install, common) for name in install.networks}
        self.queues: dict[str, WorkQueue] = {"interruption": self.events.interruption}
        self.functions: dict[str, lambda_.Function] = {}
        self.fed: set[str] = set()
        for name, group in self.networks.items():
            self.queues |= {in_group(queue, name): work for queue, work in group.queues._asdict().items()}
            self.functions |= {in_group(function, name): made for function, made in group.functions.items()}
            self.fed |= group.fed
        live = self._functions_of_install(install, common)
        Schedules(self, "Schedules", group=common.schedule_group).refresh(live["catalog"])
        has_live_manifests = any(cluster.document.reads_cluster for cluster in install.clusters)
        if has_live_manifests:
            inspect_on_demand(self, "InspectionDue", bus=self.events.bus, catalog=live["catalog"])
        self._clusters(install, live.get("audit"))
        # Whoever looks at the dashboard sees that the widget fails; nobody has to be called.
        watched = {name: function for name, function in self.functions.items() if name != specifications.WIDGET.name}
        self.dashboard = None
        if document.dashboard:
            self.dashboard = Dashboard(
                self,
                "Dashboard",
                install=document.name,
                functions=watched,
                widget=live["widget"],
                queues=self.queues,
                has_ceilings=any("ceilings" in cluster.settings.policies_on for cluster in install.clusters),
            ).dashboard
        self.alarms = Alarms(
            self,
            "Alarms",
            install=document.name,
            functions=watched,
            queues=self.queues,
            topic_arn=document.alarm_topic,
            has_live_manifests=has_live_manifests,
            has_sleep=any("sleep" in cluster.settings.policies_on for cluster in install.clusters),
        )

    def _network(self, name: str, install: InstallConfig, common: Common) -> NetworkGroup:
        """The group without a name is part of the stack, each other one a nested stack."""
        scope = NestedStack(self, f"Network-{name}", description=f"Shiplap: network {name}") if name else self
        only = len(install.networks) == 1
        return NetworkGroup(scope, "Network", name=name, clusters=install.networks[name], common=common, only=only)

    def _functions_of_install(self, install: InstallConfig, common: Common) -> Mapping[str, lambda_.Alias]:
        """Make the functions outside of all networks; the aliases of their versions in service, by name."""
        document = install.document
        wanted = [*specifications.OF_INSTALL, *([specifications.AUDIT] if install.audited else [])]
        deployed = [specification.name for specification in wanted]
        lifecycles = {name: group.queues.lifecycle.queue for name, group in self.networks.items()}
        urls = Stack.of(self).to_json_string({name: queue.queue_url for name, queue in lifecycles.items()})
        environment = {name: {**common.resource_names(), **common.environment} for name in deployed}
        environment["interrupt"]["SHIPLAP_LIFECYCLE_QUEUE_URLS"] = urls
        made = LambdaFunctions(
            self,
            "Functions",
            install=document.name,
            specifications=wanted,
            roles=FunctionRoles(
                self,
                "Roles",
                targets=common.targets(
                    install.clusters,
                    timers=[queue.queue_arn for queue in lifecycles.values()],
                    feeds={"interrupt": self.events.interruption},
                ),
                functions=deployed,
                in_network=False,
                tracing=document.tracing,
            ).roles,
            layer_versions=common.layer_versions,
            environment=environment,
            feeds={"interrupt": QueueTrigger(self.events.interruption, batch_size=10, window_s=0, most_at_once=10)},
            running=common.running(),
        )
        self.functions |= made.functions
        self.fed |= made.fed
        return made.live

    def _clusters(self, install: InstallConfig, audit: lambda_.Alias | None) -> None:
        delivery = let_deliver(self, "AuditDelivery", audit) if audit is not None else None
        for cluster in install.clusters:
            if needs_stack(cluster):
                roles: Mapping[str, iam.Role] = self.networks[cluster.settings.network].roles
                ClusterStack(
                    self, f"Cluster-{cluster.name}", cluster=cluster, roles=roles, audit=audit, delivery=delivery
                )


class ShiplapStack(Stack):
    """Shiplap as a stack of its own, with the names of its resources as outputs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: InstallConfig,
        artifacts: Artifacts | None = None,
        environment: Mapping[str, str] | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, description="Shiplap: nodes for pending pods", **stack)
        self.shiplap = Shiplap(self, "Shiplap", install=install, artifacts=artifacts, environment=environment)
        Tags.of(self).add("app.kubernetes.io/part-of", install.document.name)
        made = self.shiplap
        outputs = {
            "Bus": made.events.bus.event_bus_name,
            "StateTable": made.storage.state.table_name,
            "CapacityTable": made.storage.capacity.table_name,
            "Bucket": made.storage.bucket.bucket_name,
        }
        for name, work in made.queues.items():
            outputs[f"{_title(name)}QueueUrl"] = work.queue.queue_url
            outputs[f"{_title(name)}DeadLettersUrl"] = work.dead_letters.queue_url
        outputs |= {f"{_title(name)}Function": function.function_name for name, function in made.functions.items()}
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def _policy(scope: Construct, named: str) -> iam.IManagedPolicy:
    """A policy of the account by its name, or any by its ARN."""
    if named.startswith("arn:"):
        return iam.ManagedPolicy.from_managed_policy_arn(scope, "Boundary", named)
    return iam.ManagedPolicy.from_managed_policy_name(scope, "Boundary", named)


def _title(name: str) -> str:
    """`schedule-blue` as ScheduleBlue."""
    return "".join(part.capitalize() for part in name.split("-"))
