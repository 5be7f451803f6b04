"""All controllers of workloads in one cluster, stepped together."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.workloads import (
    daemon_set_rollouts,
    deployments,
    replica_sets,
    stateful_sets,
)
from shiplap_lab.cluster_simulator.workloads.batch import cron_jobs, jobs
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient
from shiplap_lab.cluster_simulator.workloads.garbage_collector import OWNERS, GarbageCollector
from shiplap_lab.cluster_simulator.workloads.templated_pods import template_hash
from shiplap_lab.cluster_simulator.workloads.workload_labels import REVISION_HASH

_CONTROLLERS: dict[str, Callable[[ControllerClient, Object], None]] = {
    deployments.PLURAL: deployments.reconcile_deployment,
    replica_sets.PLURAL: replica_sets.reconcile_replica_set,
    replica_sets.CONTROLLERS: replica_sets.reconcile_replication_controller,
    stateful_sets.PLURAL: stateful_sets.reconcile_stateful_set,
    cron_jobs.PLURAL: cron_jobs.reconcile_cron_job,
    jobs.PLURAL: jobs.reconcile_job,
    daemon_set_rollouts.PLURAL: daemon_set_rollouts.reconcile_daemon_set,
}
"""In the order in which one gives the next its work."""


def daemon_pod_labels(daemon_set: Object) -> dict[str, str]:
    """The labels by which a DaemonSet's pods show which template they have."""
    return {REVISION_HASH: template_hash(daemon_set["spec"]["template"])}


class WorkloadControllers:
    """The garbage collector and the controllers of stored workloads. A step costs nothing while nothing changes."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._collector = GarbageCollector(server)
        self._seen_version = ""
        self._wake_at = inf

    @property
    def is_settled(self) -> bool:
        """True if nothing has changed since a step that did nothing, and no deadline has passed."""
        return self._server.resource_version == self._seen_version and self._server.now < self._wake_at

    def has_had(self, uid: str) -> bool:
        """True if a workload with this uid is stored here, or was."""
        return uid in self._collector.seen

    def step(self) -> None:
        """Take each workload one step further. Its own writes are looked at in the next one."""
        if self.is_settled:
            return
        with self._server.at_once():
            self._seen_version, self._wake_at = self._server.resource_version, inf
            self._collector.step()
            if not any(self._server.list(plural, limit=1).items for plural in OWNERS):
                return
            client = ControllerClient(self._server)
            for plural, reconcile in _CONTROLLERS.items():
                for item in self._server.list(plural).items:
                    reconcile(client, item)
            self._collector.look()
            self._wake_at = client.wake_at
