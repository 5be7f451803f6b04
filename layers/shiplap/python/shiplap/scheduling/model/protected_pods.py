"""Pods that must not be evicted now: by the annotation do-not-disrupt, or by their PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import has_no_object, stands_for
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.kubernetes.pod_disruption_budgets import (
    EvictionRefusal,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    counts_of,
    covered_pods,
    eviction_refusal,
    is_unhealthy,
)
from shiplap.scheduling.model.planned_pods import do_not_disrupt, ends_with_its_node


class PdbLimits(msgspec.Struct, frozen=True, eq=False):
    """The PodDisruptionBudgets of a cluster, looked up by pod: `namespace/name` of the pod to its budgets.

    `counts` has the counts of each budget by `namespace/name`; `unreadable` says of others why they have none. `kept`
    says of pods, by `namespace/name`, why a policy keeps them.
    """

    by_pod: Mapping[str, tuple[PodDisruptionBudget, ...]]
    counts: Mapping[str, PodDisruptionBudgetStatus]
    unreadable: Mapping[str, str] = {}
    kept: Mapping[str, str] = {}


def pdb_limits_of(budgets: Sequence[PodDisruptionBudget], pods: Sequence[Pod]) -> PdbLimits:
    """Evaluate all budgets over all pods of the cluster; one that cannot be read allows nothing."""
    covered = covered_pods(budgets, [pod for pod in pods if pod.status.phase not in TERMINAL_PHASES])
    by_pod: dict[str, list[PodDisruptionBudget]] = {}
    counts: dict[str, PodDisruptionBudgetStatus] = {}
    unreadable = dict(covered.unreadable)
    for budget in sorted(budgets, key=lambda item: item.key):
        nothing = PodDisruptionBudgetStatus(observed_generation=budget.metadata.generation)
        mine = covered.by_budget[budget.key]
        try:
            counts[budget.key] = nothing if budget.key in unreadable else counts_of(budget, mine)
        except ValueError as error:
            counts[budget.key] = nothing
            unreadable[budget.key] = str(error)
            mine = covered.by_namespace.get(budget.metadata.namespace or "default", [])
        for pod in mine:
            by_pod.setdefault(pod.key, []).append(budget)
    return PdbLimits({key: tuple(found) for key, found in by_pod.items()}, counts, unreadable)


def first_protection(pods: Iterable[Pod], pdb_limits: PdbLimits, now: float) -> str:
    """Return why some pod, the first by namespace and name, must not be evicted now, or nothing."""
    for pod in sorted(pods, key=lambda item: item.key):
        if reason := protected_by(pod, pdb_limits, now):
            return reason
    return ""


def _why_kept(pod: Pod) -> str:
    if has_no_object(pod.metadata.name):
        return f"keeps room for {stands_for(pod.metadata.namespace, pod.metadata.name)}"
    return f"pod {pod.key} has the annotation {labels.DO_NOT_DISRUPT}={pod.metadata.annotations[labels.DO_NOT_DISRUPT]}"


def protected_by(pod: Pod, pdb_limits: PdbLimits, now: float) -> str:
    """Return why this pod must not be evicted now, or nothing. Finished and terminating pods are never protected."""
    if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp:
        return ""
    if has_no_object(pod.metadata.name) or do_not_disrupt(pod, now):
        return _why_kept(pod)
    if ends_with_its_node(pod):
        return ""
    budgets = pdb_limits.by_pod.get(pod.key, ())
    refusal = eviction_refusal(pod, budgets, pdb_limits.counts, unhealthy=is_unhealthy(pod))
    if refusal is None:
        why = pdb_limits.kept.get(pod.key, "")
        return f"pod {pod.key} stays: {why}" if why else ""
    names = ", ".join(budget.key for budget in budgets)
    if refusal is EvictionRefusal.SEVERAL:
        return f"pod {pod.key} has several PodDisruptionBudgets ({names}), which evictions do not support"
    why = pdb_limits.kept.get(pod.key) or pdb_limits.unreadable.get(
        names, "" if refusal is EvictionRefusal.EXHAUSTED else refusal.value
    )
    return f"pdb {names} prevents the eviction of pod {pod.key}{': ' if why else ''}{why}"
