"""A typed view of workloads as far as a rollout concerns them: how many pods, how they are replaced, how far it is."""

from __future__ import annotations

from math import ceil

from shiplap.kubernetes.objects import ApiObject, Few, LabelSelector, ObjectMeta, Whole

REVISION = "deployment.kubernetes.io/revision"
"""Annotation of a Deployment and its ReplicaSets: those of the current template have the Deployment's."""

IntOrPercent = Whole | str


class RollingUpdate(ApiObject, frozen=True):
    """How many pods a rollout may add and lack. `partition` is of StatefulSets."""

    max_surge: IntOrPercent = "25%"
    max_unavailable: IntOrPercent = "25%"
    partition: Whole = 0


class UpdateStrategy(ApiObject, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None

    @property
    def rolling(self) -> RollingUpdate:
        return self.rolling_update or RollingUpdate()


class AnnotatedTemplate(ApiObject, frozen=True):
    """The metadata of a pod template. Its spec is not read."""

    metadata: ObjectMeta = ObjectMeta()


class RolledSpec(ApiObject, frozen=True):
    replicas: Whole = 1
    paused: bool = False
    selector: LabelSelector | None = None
    strategy: UpdateStrategy = UpdateStrategy()
    template: AnnotatedTemplate = AnnotatedTemplate()


class RolloutCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""


class RolloutStatus(ApiObject, frozen=True):
    """The counts that a workload's controller has written, for the spec of `observed_generation`."""

    observed_generation: Whole = 0
    replicas: Whole = 0
    updated_replicas: Whole = 0
    available_replicas: Whole = 0
    conditions: Few[RolloutCondition] = ()


class RolledWorkload(ApiObject, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RolledSpec = RolledSpec()
    status: RolloutStatus = RolloutStatus()


def amount_of(written: IntOrPercent, replicas: int, *, up: bool) -> int:
    """A number of pods, or a percentage of the replicas, rounded up or down. Raises ValueError: it is neither."""
    if isinstance(written, int):
        return written
    share = int(written.removesuffix("%")) * replicas / 100
    return ceil(share) if up else int(share)


def surge_and_unavailable(rolling: RollingUpdate, replicas: int) -> tuple[int, int]:
    """How many pods a rollout may add and lack; one of both is at least one, or it would never move.

    Raises ValueError: an amount is neither a number nor a percentage.
    """
    surge = amount_of(rolling.max_surge, replicas, up=True)
    unavailable = amount_of(rolling.max_unavailable, replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)
