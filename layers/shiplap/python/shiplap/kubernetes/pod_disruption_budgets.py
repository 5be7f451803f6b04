"""PodDisruptionBudgets: how many of the pods they select may go right now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import ApiObject, LabelSelector, ObjectMeta, Pod
from shiplap.kubernetes.selectors import matches


class PodDisruptionBudgetSpec(ApiObject, frozen=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class PodDisruptionBudgetStatus(ApiObject, frozen=True):
    disruptions_allowed: int = 0


class PodDisruptionBudget(ApiObject, frozen=True):
    """`status` is None where the controller has not written one, as in a manifest from a file."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return namespaced_name(self.metadata.namespace, self.metadata.name)

    def selects(self, pod: Pod) -> bool:
        """Whether the budget covers a pod. Raises ValueError for a selector with an unknown operator."""
        same = (self.metadata.namespace or "default") == (pod.metadata.namespace or "default")
        return same and matches(self.spec.selector, pod.metadata.labels)


def is_ready(pod: Pod) -> bool:
    """Whether a pod counts as healthy for a budget."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def disruptions_allowed(budget: PodDisruptionBudget, covered: Sequence[Pod]) -> int:
    """How many pods may go now, by the status that the controller wrote, else computed as it would compute it.

    Args:
        budget: the budget.
        covered: the pods it selects; those without a Ready condition count as ready.

    Raises:
        ValueError: an amount is neither a number nor a percentage.
    """
    if budget.status is not None:
        return budget.status.disruptions_allowed
    healthy = sum(1 for pod in covered if is_ready(pod) or not _reports_readiness(pod))
    if budget.spec.max_unavailable is not None:
        least = len(covered) - _amount(budget.spec.max_unavailable, len(covered))
    elif budget.spec.min_available is not None:
        least = _amount(budget.spec.min_available, len(covered))
    else:
        least = 1
    return max(healthy - max(least, 0), 0)


def never_evicted(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> bool:
    """Whether budgets forbid to evict a pod for good: one that never allows any, or more than one at all.

    The eviction API refuses a pod that several budgets cover; one that is not healthy may go where its budget says so.
    Raises ValueError for a selector with an unknown operator.
    """
    covering = [budget for budget in budgets if budget.selects(pod)]
    if len(covering) != 1:
        return len(covering) > 1
    spec = covering[0].spec
    if spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and not is_ready(pod):
        return False
    return spec.max_unavailable in (0, "0", "0%") or spec.min_available == "100%"


def pods_by_budget(budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The pods that each budget covers, by the budget's `namespace/name`. Raises ValueError as `selects`."""
    by_namespace: dict[str, list[PodDisruptionBudget]] = {}
    covered: dict[str, list[Pod]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget.metadata.namespace or "default", []).append(budget)
        covered[budget.key] = []
    for pod in pods:
        for budget in by_namespace.get(pod.metadata.namespace or "default", ()):
            if matches(budget.spec.selector, pod.metadata.labels):
                covered[budget.key].append(pod)
    return covered


def _reports_readiness(pod: Pod) -> bool:
    return any(condition.type == "Ready" for condition in pod.status.conditions)


def _amount(written: int | str, total: int) -> int:
    """A number, or a percentage of the pods rounded up, as the disruption controller does for both fields."""
    if isinstance(written, int):
        return written
    text = written.removesuffix("%")
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{written!r} is neither a number nor a percentage")
    return ceil(int(text) * total / 100) if written.endswith("%") else int(text)
