"""Decides what is done about one pod that may leave its node: evict it, restart its Deployment, or wait.

The state is in the objects alone: the template of a restarted Deployment names the NodeClaims that it was restarted
for, and a pod of an older template leaves with the rollout that is under way. So a function that dies anywhere has
nothing to remember, one restart serves all nodes that leave, and no node has a Deployment restarted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod
from shiplap.kubernetes.pod_disruption_budgets import (
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    computed_counts,
    eviction_refusal,
)
from shiplap.kubernetes.related_objects import REVISION, SCALABLE_PLURALS, RolledWorkload, surge_and_unavailable
from shiplap.kubernetes.selectors import matches
from shiplap.kubernetes.timestamps import epoch, rfc3339

RESTARTED_FOR = "shiplap.dev/restarted-for"
"""Annotation of pod templates: the NodeClaims whose nodes were left by restarts, the newest last."""

RESTARTED_AT = "shiplap.dev/restarted-at"
"""Annotation of pod templates: the time of the last restart, in the form of RFC 3339."""

_CAME_BACK = "it was restarted for this node, and its pods came back"
_MOST_CLAIMS = 20
"""NodeClaims that the annotation names: of a Deployment whose pods tolerate everything so many nodes leave at once."""


class RolloutStep(StrEnum):
    """The next step about a pod."""

    EVICT = "evict"
    """It is not the last one: it leaves as without the feature."""
    RESTART = "restart"
    """Its Deployment is restarted now."""
    LEAVES = "leaves"
    """It leaves with a rollout that is under way."""
    WAIT = "wait"
    """Its Deployment is restarted once that is possible without a missing pod."""
    STUCK = "stuck"
    """Its Deployment cannot be restarted as it is."""
    UNABLE = "unable"
    """Nothing that has its pod can be restarted."""


class StepTaken(msgspec.Struct, frozen=True):
    """A step, and the reason in words."""

    step: RolloutStep
    why: str = ""


class PodOwners(msgspec.Struct, frozen=True):
    """The controller of a pod, and the Deployment above it; None where there is none.

    `problem` says why they cannot be read.
    """

    reference: OwnerReference | None = None
    workload: RolledWorkload | None = None
    deployment: RolledWorkload | None = None
    problem: str = ""

    @property
    def whole(self) -> RolledWorkload | None:
        """The workload that counts the pods: the Deployment, else the controller."""
        return self.deployment or self.workload

    @property
    def title(self) -> str:
        """The workload in words."""
        if self.deployment is not None:
            return _title("Deployment", self.deployment.metadata)
        return (
            _title(self.reference.kind, self.workload.metadata) if self.reference and self.workload else "no workload"
        )


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the owner that controls an object."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def is_readable(owner: OwnerReference | None) -> bool:
    """True if an owner is of a kind that has pods and may be read."""
    return owner is not None and owner.kind in SCALABLE_PLURALS


def step_of(
    pod: Pod,
    owners: PodOwners,
    claim: str,
    *,
    budgets: Sequence[PodDisruptionBudget],
    going: int,
) -> StepTaken:
    """Return the step about a pod that is Ready and may leave.

    Args:
        pod: the pod, on a node that leaves.
        owners: its controller and Deployment, as they are now.
        claim: the name of the node's NodeClaim.
        budgets: those that cover it.
        going: how many available pods of its workload leave with it, itself included.
    """
    if owners.problem:
        return StepTaken(RolloutStep.STUCK, owners.problem)
    deployment, whole = owners.deployment, owners.whole
    if whole is None or deployment is None or not covers(whole, pod):
        return _step_without(pod, owners, budgets, going)
    outdated = _is_outdated(owners)
    if not outdated and not _is_exposed(pod, whole, budgets, going):
        return StepTaken(RolloutStep.EVICT)
    came_back = not outdated and claim in restarted_for(deployment)
    if why := _obstacle(deployment) or (_CAME_BACK if came_back else ""):
        return StepTaken(RolloutStep.STUCK, why)
    if outdated:
        return StepTaken(RolloutStep.LEAVES)
    why = _under_way(deployment)
    return StepTaken(RolloutStep.WAIT, why) if why else StepTaken(RolloutStep.RESTART)


def _step_without(pod: Pod, owners: PodOwners, budgets: Sequence[PodDisruptionBudget], going: int) -> StepTaken:
    """The step about a pod that no Deployment has."""
    whole = owners.whole
    if whole is None and is_readable(owners.reference):
        return StepTaken(RolloutStep.EVICT)  # the garbage collector ends it: its owner is gone
    if whole is None:
        return StepTaken(RolloutStep.UNABLE, "no Deployment has it")
    if not covers(whole, pod):
        return StepTaken(RolloutStep.UNABLE, f"{owners.title} does not select it")
    if not _is_exposed(pod, whole, budgets, going):
        return StepTaken(RolloutStep.EVICT)
    return StepTaken(RolloutStep.UNABLE, f"{owners.title} has no surge")


def covers(workload: RolledWorkload, pod: Pod) -> bool:
    """True if a workload selects a pod of its namespace. A selector that cannot be read selects nothing."""
    try:
        same = workload.metadata.namespace == pod.metadata.namespace
        return same and matches(workload.spec.selector, pod.metadata.labels)
    except ValueError:
        return False


def restarted_for(deployment: RolledWorkload) -> list[str]:
    """Return the names of the NodeClaims that a Deployment was last restarted for."""
    return deployment.spec.template.metadata.annotations.get(RESTARTED_FOR, "").split()[-_MOST_CLAIMS:]


def restarted_at(deployment: RolledWorkload) -> float:
    """Return when a Deployment was last restarted for a node, in epoch seconds; 0 for never, or at no readable time."""
    try:
        return epoch(deployment.spec.template.metadata.annotations.get(RESTARTED_AT, "")) or 0.0
    except ValueError:
        return 0.0


def restart_annotations(deployment: RolledWorkload, claim: str, now: float) -> dict[str, str]:
    """Return what changes in the template of a Deployment that is restarted for a NodeClaim."""
    claims = [*restarted_for(deployment), claim][-_MOST_CLAIMS:]
    return {RESTARTED_FOR: " ".join(claims), RESTARTED_AT: rfc3339(now)}


def _is_exposed(pod: Pod, whole: RolledWorkload, budgets: Sequence[PodDisruptionBudget], going: int) -> bool:
    """True if no pod would be left without this one, or a budget keeps it."""
    if whole.status.available_replicas - going < 1:
        return True
    try:
        counts = {budget.key: _counts_of(budget, whole) for budget in budgets}
    except ValueError:
        return True  # the eviction API cannot count what it allows either
    return eviction_refusal(pod, budgets, counts, unhealthy=False) is not None


def _counts_of(budget: PodDisruptionBudget, whole: RolledWorkload) -> PodDisruptionBudgetStatus:
    """The status of a budget, or as its controller will write it. Raises ValueError: an amount cannot be read."""
    return budget.status or computed_counts(budget, whole.spec.replicas, whole.status.available_replicas)


def _is_outdated(owners: PodOwners) -> bool:
    """True if a pod is not of the current template of its Deployment: a rollout replaces it."""
    deployment, replica_set = owners.deployment, owners.workload
    if deployment is None or replica_set is None:
        return False
    if deployment.metadata.generation > deployment.status.observed_generation:
        return True
    revision = deployment.metadata.annotations.get(REVISION)
    return replica_set.metadata.annotations.get(REVISION) != revision


def _obstacle(deployment: RolledWorkload) -> str:
    """Return why a Deployment cannot be restarted without a missing pod, or nothing."""
    spec = deployment.spec
    if spec.paused:
        return "it is paused"
    if spec.strategy.type != "RollingUpdate":
        return f"its strategy is {spec.strategy.type}"
    try:
        surge, unavailable = surge_and_unavailable(spec.strategy.rolling, spec.replicas)
    except ValueError as error:
        return f"its strategy cannot be read: {error}"
    if surge < 1:
        return "its maxSurge is 0"
    if unavailable >= spec.replicas:
        return f"its maxUnavailable allows that none of its {spec.replicas} pods is available"
    stands_still = any(item.type == "Progressing" and item.status == "False" for item in deployment.status.conditions)
    return "its rollout does not progress" if stands_still else ""


def _under_way(deployment: RolledWorkload) -> str:
    """Return why a Deployment is not restarted yet, or nothing."""
    wanted, status = deployment.spec.replicas, deployment.status
    if status.updated_replicas < wanted or status.replicas > status.updated_replicas:
        return "another rollout is under way"
    if status.available_replicas < wanted:
        return f"{status.available_replicas} of its {wanted} pods are available"
    return ""


def _title(kind: str, metadata: ObjectMeta) -> str:
    return f"{kind} {metadata.namespace}/{metadata.name}"
