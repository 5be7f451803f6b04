"""Protection of pods and thereby of their nodes: the annotation do-not-disrupt and PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget, disruptions_allowed, is_ready, pods_by_budget
from shiplap.scheduling.model.planned_pods import do_not_disrupt, ends_with_its_node


class PdbLimits(msgspec.Struct, frozen=True, eq=False):
    """The PodDisruptionBudgets of a cluster, looked up by pod: `namespace/name` of the pod to its budgets.

    `exhausted` names the budgets that allow no disruption now, with the reason where one cannot be read.
    """

    by_pod: Mapping[str, tuple[PodDisruptionBudget, ...]]
    exhausted: Mapping[str, str]


def pdb_limits_of(budgets: Sequence[PodDisruptionBudget], pods: Sequence[Pod]) -> PdbLimits:
    """Evaluate all budgets over all pods of the cluster; one that cannot be read allows nothing."""
    by_pod: dict[str, tuple[PodDisruptionBudget, ...]] = {}
    exhausted: dict[str, str] = {}
    for budget in sorted(budgets, key=lambda item: item.key):
        try:
            covered = [
                pod for pod in pods_by_budget((budget,), pods)[budget.key] if pod.status.phase not in TERMINAL_PHASES
            ]
            if disruptions_allowed(budget, covered) < 1:
                exhausted[budget.key] = ""
        except ValueError as error:
            covered = [pod for pod in pods if (pod.metadata.namespace or "default") == budget.metadata.namespace]
            exhausted[budget.key] = f": {error}"
        for pod in covered:
            by_pod[pod.key] = (*by_pod.get(pod.key, ()), budget)
    return PdbLimits(by_pod, exhausted)


def protected_by(pod: Pod, pdb_limits: PdbLimits, now: float) -> str:
    """Why this pod must not be evicted now, or nothing. Finished and terminating pods are never protected."""
    if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp:
        return ""
    if do_not_disrupt(pod, now):
        value = pod.metadata.annotations[labels.DO_NOT_DISRUPT]
        return f"pod {pod.key} has the annotation {labels.DO_NOT_DISRUPT}={value}"
    if ends_with_its_node(pod):
        return ""
    budgets = pdb_limits.by_pod.get(pod.key, ())
    if len(budgets) > 1:
        names = ", ".join(budget.key for budget in budgets)
        return f"pod {pod.key} has several PodDisruptionBudgets ({names}), which evictions do not support"
    for budget in budgets:
        if budget.key in pdb_limits.exhausted and not _exempt(budget, pod):
            return f"pdb {budget.key} prevents the eviction of pod {pod.key}{pdb_limits.exhausted[budget.key]}"
    return ""


def _exempt(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and not is_ready(pod)
