"""Nodes that leave because all of their pods sleep, and why the others of sleeping NodePools stay.

No pod outside a sleeping scope is evicted for sleep, and none whose PodDisruptionBudget would not have it: pods that
sleep are not replaced, so a budget never recovers while they do, and a node would be emptied by half for the night.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_disruption_budgets import (
    PodDisruptionBudget,
    goes_uncounted,
    goes_without_budget,
    is_unhealthy,
)
from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.sleep.sleep_objections import awake_pod
from shiplap.policies.sleep.sleep_state import NODE_POOL, SleepState
from shiplap.policies.sleep.sleep_windows import LEAST_SLEEP_S
from shiplap.policies.sleep.sleeping_pods import SleepingPods
from shiplap.scheduling.model.protected_pods import PdbLimits


class SleepingNodes(msgspec.Struct, frozen=True):
    """`going` may leave, dearest first; `kept` says of other nodes of a sleeping NodePool why they stay.

    `waiting` would leave, too, but no budget lets them go now.
    """

    going: tuple[Candidate, ...] = ()
    kept: dict[str, str] = {}
    waiting: tuple[Candidate, ...] = ()


def find_sleeping(
    state: SleepState,
    candidates: Iterable[Candidate],
    pools: Sequence[NodePool],
    limits: PdbLimits,
    leaving: Iterable[Pod],
    now: float,
    room: Mapping[str, int] | None = None,
) -> SleepingNodes:
    """The candidates that may leave for sleep.

    Args:
        state: what sleeps.
        candidates: nodes that may be disrupted at all.
        pools: all NodePools of the cluster.
        limits: its PodDisruptionBudgets.
        leaving: pods of nodes that are on their way out already: budgets may still count them.
        now: epoch seconds.
        room: how many nodes the budgets of each NodePool let go; nodes beyond take nothing from those of other pools.
    """
    lasting = state.lasting(now + LEAST_SLEEP_S)
    sleepers = SleepingPods(lasting, pools)
    if not sleepers.any:
        return SleepingNodes()
    allowed = _Evictions(limits, leaving)
    asleep = lasting.asleep(NODE_POOL)
    going: list[Candidate] = []
    kept: dict[str, str] = {}
    waiting: list[Candidate] = []
    left = Counter(room or {})
    for item in sorted(candidates, key=lambda item: (-item.price, item.name)):
        pool = item.pool.metadata.name
        if pool not in lasting.armed:
            continue
        pods = [pod for pod in item.pods if not pod.metadata.deletion_timestamp]
        if pool not in asleep and not any(map(sleepers.reason, pods)):
            continue
        if why := awake_pod(sleepers, pods) or item.protected or allowed.refuse(pods):
            kept[item.name] = why
        elif room is not None and not left[pool]:
            waiting.append(item)
        elif len(going) >= lasting.nodes_left:
            kept[item.name] = "this sleep has taken the most nodes that shiplap.yaml allows"
        else:
            allowed.take(pods)
            left[pool] -= 1
            going.append(item)
    return SleepingNodes(tuple(going), kept, tuple(waiting))


class _Evictions:
    """Counts the pods that each PodDisruptionBudget still lets go."""

    def __init__(self, limits: PdbLimits, leaving: Iterable[Pod]) -> None:
        self._limits = limits
        self._left = {key: counts.disruptions_allowed for key, counts in limits.counts.items()}
        self._taken: Counter[str] = Counter()
        self.take(leaving)

    def take(self, pods: Iterable[Pod]) -> None:
        """Count pods that go."""
        self._taken.update(budget.key for pod in pods for budget in self._covering(pod))

    def refuse(self, pods: Iterable[Pod]) -> str:
        """Return why these pods cannot all go, or nothing."""
        wanted = Counter(budget.key for pod in pods for budget in self._covering(pod))
        for key, number in sorted(wanted.items()):
            left = max(self._left.get(key, 0) - self._taken[key], 0)
            if number > left:
                return f"pdb {key} lets {left} more pods go, and {number} of the node's sleep"
        return ""

    def _covering(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that count a pod's eviction."""
        if goes_without_budget(pod):
            return []
        return [
            budget
            for budget in self._limits.by_pod.get(pod.key, ())
            if not (is_unhealthy(pod) and goes_uncounted(budget, self._limits.counts[budget.key]))
        ]
