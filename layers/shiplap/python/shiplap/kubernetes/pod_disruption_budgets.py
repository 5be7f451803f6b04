"""PodDisruptionBudgets: how many of the pods they select may go right now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import ceil

import msgspec

from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import TERMINAL_PHASES, ApiObject, LabelSelector, ObjectMeta, Pod, Whole, is_ready
from shiplap.kubernetes.selectors import matcher, matches

_UNGUARDED_PHASES = ("Pending", *TERMINAL_PHASES)

_MOST_UNCONFIRMED = 2000
"""`MaxDisruptedPodSize` of the eviction API."""


class PodDisruptionBudgetSpec(ApiObject, frozen=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class PodDisruptionBudgetStatus(ApiObject, frozen=True):
    """Counts of healthy pods, as the disruption controller writes them; they are of the spec of `observed_generation`.

    `disrupted_pods` are those whose eviction was allowed and that the controller has not seen deleted yet.
    """

    disruptions_allowed: Whole = 0
    current_healthy: Whole = 0
    desired_healthy: Whole = 0
    observed_generation: Whole = 0
    disrupted_pods: dict[str, str | None] = msgspec.field(default_factory=dict)


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
        """True if the budget covers a pod. Raises ValueError for a selector with an unknown operator."""
        same = (self.metadata.namespace or "default") == (pod.metadata.namespace or "default")
        return same and matches(self.spec.selector, pod.metadata.labels)


def is_unhealthy(pod: Pod) -> bool:
    """True if a pod reports that it is not ready. A pod from a manifest reports nothing."""
    return _reports_readiness(pod) and not is_ready(pod.status)


def goes_without_budget(pod: Pod) -> bool:
    """True if evicting a pod needs no budget: the pod has not started, has ended or is ending."""
    return pod.status.phase in _UNGUARDED_PHASES or bool(pod.metadata.deletion_timestamp)


def counts_of(budget: PodDisruptionBudget, covered: Sequence[Pod]) -> PodDisruptionBudgetStatus:
    """The status that the controller wrote, else as it would write it.

    Args:
        budget: the budget.
        covered: the pods it selects; those without a Ready condition count as ready.

    Raises:
        ValueError: an amount is neither a number nor a percentage.
    """
    if budget.status is not None:
        return budget.status
    healthy = sum(not is_unhealthy(pod) and not pod.metadata.deletion_timestamp for pod in covered)
    return computed_counts(budget, len(covered), healthy)


def computed_counts(budget: PodDisruptionBudget, number: int, healthy: int) -> PodDisruptionBudgetStatus:
    """The counts for so many covered pods, as the disruption controller computes them.

    A spec without an amount allows nothing. The controller takes percentages of the replicas that the owners of the
    pods want. Here that is the number of covered pods.

    Raises:
        ValueError: an amount is neither a number nor a percentage.
    """
    least, allowed = 0, 0
    if budget.spec.max_unavailable is not None:
        least = max(number - _amount(budget.spec.max_unavailable, number), 0)
    elif budget.spec.min_available is not None:
        least = _amount(budget.spec.min_available, number)
    if budget.spec.max_unavailable is not None or budget.spec.min_available is not None:
        allowed = max(healthy - least, 0)
    return PodDisruptionBudgetStatus(allowed, healthy, least, budget.metadata.generation)


class EvictionRefusal(StrEnum):
    """The reasons why the eviction API refuses to evict a pod now, in the order in which the API checks them."""

    SEVERAL = "several budgets cover it, which evictions do not support"
    STALE = "the budget's status is older than its spec"
    NEGATIVE = "the budget's status allows less than no disruption"
    UNCONFIRMED = "too many evictions are not confirmed by the disruption controller"
    EXHAUSTED = "the budget allows no disruption now"


def eviction_refusal(
    pod: Pod,
    budgets: Sequence[PodDisruptionBudget],
    counts: Mapping[str, PodDisruptionBudgetStatus],
    *,
    unhealthy: bool,
) -> EvictionRefusal | None:
    """Return why a pod cannot be evicted now, by the rules of the eviction API.

    The rules are in registry/core/pod/storage/eviction.go.

    Args:
        pod: the pod.
        budgets: those that cover it.
        counts: of these budgets, by `namespace/name`.
        unhealthy: whether the pod is not ready.
    """
    if not budgets or goes_without_budget(pod):
        return None
    if len(budgets) > 1:
        return EvictionRefusal.SEVERAL
    (budget,) = budgets
    now = counts[budget.key]
    if unhealthy and goes_uncounted(budget, now):
        return None
    return _refusal_by_counts(budget, now)


def _refusal_by_counts(budget: PodDisruptionBudget, counts: PodDisruptionBudgetStatus) -> EvictionRefusal | None:
    if counts.observed_generation < budget.metadata.generation:
        return EvictionRefusal.STALE
    if counts.disruptions_allowed < 0:
        return EvictionRefusal.NEGATIVE
    if len(counts.disrupted_pods) > _MOST_UNCONFIRMED:
        return EvictionRefusal.UNCONFIRMED
    return EvictionRefusal.EXHAUSTED if counts.disruptions_allowed == 0 else None


def goes_uncounted(budget: PodDisruptionBudget, counts: PodDisruptionBudgetStatus) -> bool:
    """True if pods that are not ready may go without using up the budget.

    They may go always, or while the budget is met without them.
    """
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return counts.current_healthy >= counts.desired_healthy > 0


def never_evicted(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> bool:
    """True if budgets forbid to evict a pod for good: a budget that allows no eviction ever, or more than one budget.

    The spec decides: a status that allows more is older.

    Raises ValueError for a selector with an unknown operator.
    """
    covering = [budget for budget in budgets if budget.selects(pod)]
    counts = {budget.key: _exhausted(budget) for budget in covering}
    refusal = eviction_refusal(pod, covering, counts, unhealthy=is_unhealthy(pod))
    return refusal is EvictionRefusal.SEVERAL or (refusal is not None and all(map(_allows_none, covering)))


def _exhausted(budget: PodDisruptionBudget) -> PodDisruptionBudgetStatus:
    """The status of a budget once its controller has seen that it allows nothing."""
    status = budget.status or PodDisruptionBudgetStatus()
    return msgspec.structs.replace(status, disruptions_allowed=0, observed_generation=budget.metadata.generation)


def _allows_none(budget: PodDisruptionBudget) -> bool:
    return budget.spec.max_unavailable in (0, "0", "0%") or budget.spec.min_available == "100%"


MOST_COMPARISONS = 5_000_000
"""Of labels of pods with selectors of budgets, in one namespace; they take about a second."""


class CoveredPods(msgspec.Struct, frozen=True):
    """The pods that each budget covers, by the budget's `namespace/name`; `unreadable` says why it covers all there.

    `by_namespace` has all pods.
    """

    by_budget: dict[str, list[Pod]]
    unreadable: dict[str, str]
    by_namespace: dict[str, list[Pod]]


def covered_pods(budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> CoveredPods:
    """The pods that each budget covers, all of its namespace where its selector cannot be read or costs too much.

    What budgets of one namespace cost takes nothing from those of another.
    """
    namespaces: dict[str, _Namespace] = {}
    for pod in pods:
        name = pod.metadata.namespace or "default"
        known = namespaces.get(name)
        if known is None:
            known = namespaces[name] = _Namespace()
        known.pods.append(pod)
    found = CoveredPods({}, {}, {name: known.pods for name, known in namespaces.items()})
    for budget in sorted(budgets, key=lambda item: (_parts(item.spec.selector), item.key)):
        there = namespaces.get(budget.metadata.namespace or "default", _EMPTY)
        try:
            found.by_budget[budget.key] = there.selected(budget.spec.selector)
        except ValueError as error:
            found.by_budget[budget.key] = there.pods
            found.unreadable[budget.key] = str(error)
    return found


class _Namespace:
    """The pods of one namespace, and the comparisons that are left to its budgets."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self._left = MOST_COMPARISONS
        self._by_label: dict[str, dict[str, list[Pod]]] = {}

    def selected(self, selector: LabelSelector | None) -> list[Pod]:
        """The pods that a selector selects. Raises ValueError: it is malformed, or too few comparisons are left."""
        if selector is None:
            return []
        label = min(selector.match_labels.items(), default=None)
        candidates = self.pods if label is None else self._with(*label)
        self._spend(len(candidates) * (1 + _parts(selector)))
        selects = matcher(selector)
        return [pod for pod in candidates if selects(pod.metadata.labels)]

    def _with(self, key: str, value: str) -> list[Pod]:
        known = self._by_label.get(key)
        if known is None:
            self._spend(len(self.pods))
            known = self._by_label[key] = {}
            for pod in self.pods:
                if (own := pod.metadata.labels.get(key)) is not None:
                    known.setdefault(own, []).append(pod)
        return known.get(value, [])

    def _spend(self, comparisons: int) -> None:
        if comparisons > self._left:
            raise ValueError("the PodDisruptionBudgets of its namespace select by too many labels of too many pods")
        self._left -= comparisons


_EMPTY = _Namespace()


def _parts(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + len(selector.match_expressions)


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
