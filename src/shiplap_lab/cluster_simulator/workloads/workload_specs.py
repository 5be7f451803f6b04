"""Specs of workloads, as their controllers read them. The API server has set every default."""

from __future__ import annotations

import msgspec

from shiplap.kubernetes.objects import LabelSelector
from shiplap.kubernetes.related_objects import UpdateStrategy

NO_SELECTOR = LabelSelector()


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class DeploymentSpec(_Fields, frozen=True):
    """How many pods of which kind there are, and how old ones give way to new ones."""

    replicas: int = 1
    selector: LabelSelector = NO_SELECTOR
    strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0
    """How long a pod has to be Ready to count as available."""
    revision_history_limit: int = 10
    """How many old ReplicaSets are kept, for `kubectl rollout undo`."""
    progress_deadline_seconds: int = 600
    """How long a rollout may stand still until it counts as failed."""
    paused: bool = False


class ReplicaSetSpec(_Fields, frozen=True):
    replicas: int = 1
    selector: LabelSelector = NO_SELECTOR
    min_ready_seconds: int = 0


class ReplicationControllerSpec(_Fields, frozen=True):
    """Fields of a ReplicationController; its selector is labels that a pod must have."""

    replicas: int = 1
    selector: dict[str, str] = {}
    min_ready_seconds: int = 0


class Ordinals(_Fields, frozen=True):
    start: int = 0


class StatefulSetSpec(_Fields, frozen=True):
    replicas: int = 1
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0
    ordinals: Ordinals = Ordinals()


class DaemonSetRolloutSpec(_Fields, frozen=True):
    update_strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0


class JobSpec(_Fields, frozen=True):
    """How many pods have to succeed, and how many may run or fail until then."""

    parallelism: int = 1
    completions: int | None = None
    """None: the Job is done when any of its pods has succeeded."""
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    """How many pods may fail."""
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    """How long an ended Job stays; None: for ever."""
    suspend: bool = False
    managed_by: str = "kubernetes.io/job-controller"

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"


class CronJobSpec(_Fields, frozen=True):
    """When Jobs begin, what happens to one that still runs then, and how many ended ones are kept."""

    schedule: str
    time_zone: str = ""
    concurrency_policy: str = "Allow"
    starting_deadline_seconds: int | None = None
    """How late a Job may begin; None: however late."""
    suspend: bool = False
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1
