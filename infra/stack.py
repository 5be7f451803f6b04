"""The stack: one construct per concern, wired together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import CfnOutput, Stack, Tags
from constructs import Construct

from infra import functions as specifications
from infra.access import Access
from infra.alarms import Alarms
from infra.audit import AuditLogs
from infra.dashboard import Dashboard
from infra.events import Events
from infra.functions import Artifacts, Feed, Functions, Running
from infra.schedules import Schedules
from infra.settings import Install
from infra.storage import Storage

# A burst of a thousand events is one invocation; Lambda cuts a batch where its payload would pass 6 MB.
_LARGEST_BATCH = 1000
# Lambda allows no less than two. Decisions of one cluster are serialised by its epoch anyway.
_LEAST_CONCURRENCY = 2


class Shiplap(Construct):
    """All of Shiplap for the clusters of one account and Region, for use in anybody's stack."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: Install,
        artifacts: Artifacts,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to every function's own."""
        super().__init__(scope, id_)
        self._install = install
        document = install.document
        deployed = [*specifications.ALWAYS, *([specifications.AUDIT] if install.audited else [])]
        self.storage = Storage(self, "Storage", record_retention_days=document.record_retention_days)
        self.events = Events(
            self,
            "Events",
            name=document.name,
            provisioning_timeout_s=specifications.SCHEDULE.timeout_s,
            lifecycle_timeout_s=specifications.LIFECYCLE.timeout_s,
            interruption_timeout_s=specifications.INTERRUPT.timeout_s,
        )
        self.access = Access(
            self,
            "Access",
            install=install,
            storage=self.storage,
            events=self.events,
            functions=[specification.name for specification in deployed],
            in_network=install.network is not None,
            tracing=document.tracing,
        )
        made = Functions(
            self,
            "Functions",
            install=document.name,
            specifications=deployed,
            roles=self.access.roles,
            artifacts=artifacts,
            environment={**self._resource_names(), **(environment or {})},
            feeds={
                "schedule": Feed(
                    self.events.provisioning,
                    batch_size=_LARGEST_BATCH,
                    window_s=1,
                    most_at_once=max(_LEAST_CONCURRENCY, len(install.clusters)),
                ),
                "lifecycle": Feed(self.events.lifecycle, batch_size=10, window_s=0, most_at_once=10),
                "interrupt": Feed(self.events.interruption, batch_size=10, window_s=0, most_at_once=10),
            },
            running=Running(
                install.network,
                document.log_retention_days,
                document.snap_start,
                document.tracing,
                document.watch_memory_mib,
            ),
        )
        self.functions = made.functions
        self.schedules = Schedules(
            self,
            "Schedules",
            name=document.name,
            clusters=install.clusters,
            provisioning=self.events.provisioning.queue,
            catalog=made.live["catalog"],
            watch=made.live["watch"],
            disrupt=made.live["disrupt"],
        )
        if install.audited:
            AuditLogs(self, "AuditLogs", name=document.name, clusters=install.audited, function=made.live["audit"])
        # Whoever looks at the dashboard sees that the widget fails; nobody has to be called.
        watched = {name: function for name, function in self.functions.items() if name != specifications.WIDGET.name}
        queues = {
            "provisioning": self.events.provisioning,
            "lifecycle": self.events.lifecycle,
            "interruption": self.events.interruption,
        }
        self.dashboard = None
        if document.dashboard:
            self.dashboard = Dashboard(
                self,
                "Dashboard",
                install=document.name,
                functions=watched,
                widget=made.live["widget"],
                queues=queues,
            ).dashboard
        self.alarms = Alarms(
            self,
            "Alarms",
            install=document.name,
            functions=watched,
            queues=queues,
            topic_arn=document.alarm_topic,
        )

    def _resource_names(self) -> dict[str, str]:
        """The environment variables of `shiplap.settings.ResourceNames`."""
        return {
            "SHIPLAP_STATE_TABLE": self.storage.state.table_name,
            "SHIPLAP_CAPACITY_TABLE": self.storage.capacity.table_name,
            "SHIPLAP_BUCKET": self.storage.bucket.bucket_name,
            "SHIPLAP_BUS": self.events.bus.event_bus_name,
            "SHIPLAP_LIFECYCLE_QUEUE_URL": self.events.lifecycle.queue.queue_url,
            "SHIPLAP_LIFECYCLE_QUEUE_URLS": Stack.of(self).to_json_string({"": self.events.lifecycle.queue.queue_url}),
            "SHIPLAP_INSTALL": self._install.document.name,
        }


class ShiplapStack(Stack):
    """Shiplap as a stack of its own, with the names of its resources as outputs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: Install,
        artifacts: Artifacts,
        environment: Mapping[str, str] | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, description="Shiplap: nodes for pending pods", **stack)
        self.shiplap = Shiplap(self, "Shiplap", install=install, artifacts=artifacts, environment=environment)
        Tags.of(self).add("app.kubernetes.io/part-of", install.document.name)
        made = self.shiplap
        outputs = {
            "Bus": made.events.bus.event_bus_name,
            "ProvisioningQueueUrl": made.events.provisioning.queue.queue_url,
            "ProvisioningDeadLettersUrl": made.events.provisioning.dead_letters.queue_url,
            "LifecycleQueueUrl": made.events.lifecycle.queue.queue_url,
            "LifecycleDeadLettersUrl": made.events.lifecycle.dead_letters.queue_url,
            "InterruptionQueueUrl": made.events.interruption.queue.queue_url,
            "InterruptionDeadLettersUrl": made.events.interruption.dead_letters.queue_url,
            "StateTable": made.storage.state.table_name,
            "CapacityTable": made.storage.capacity.table_name,
            "Bucket": made.storage.bucket.bucket_name,
        }
        outputs |= {f"{name.capitalize()}Function": function.function_name for name, function in made.functions.items()}
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
