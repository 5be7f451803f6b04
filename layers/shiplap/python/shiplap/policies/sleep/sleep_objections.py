"""Finds why a node must not leave for sleep after all. Works without numpy, for functions that do not plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.sleep.sleep_state import NODE_POOL, SleepState
from shiplap.policies.sleep.sleeping_pods import SleepingPods
from shiplap.scheduling.model.planned_pods import is_recreated, owner_kind


def awake_pod(sleepers: SleepingPods, pods: Iterable[Pod]) -> str:
    """Return why the first of these pods that does not sleep keeps its node.

    Empty if all pods sleep, or belong to the node.
    """
    for pod in sorted(pods, key=lambda item: item.key):
        if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp or not is_recreated(pod):
            continue
        if why := sleepers.awake_because(pod):
            return why
        if not owner_kind(pod):
            return f"pod {pod.key} has no controller that would make it anew"
    return ""


def objection_to_sleep(
    state: SleepState | None, pool: str, pods: Sequence[Pod], pools: Sequence[NodePool], *, has_begun: bool = False
) -> str:
    """Return why a node that was cordoned for sleep must not be emptied after all, or nothing.

    Args:
        state: what sleeps now.
        pool: the node's NodePool.
        pods: those on it now.
        pools: all NodePools of the cluster.
        has_begun: pods that slept may have left it already, so it goes on leaving as long as anything sleeps.
    """
    if state is None or pool not in state.armed:
        return "nothing may sleep here any more"
    sleepers = SleepingPods(state, pools)
    if why := awake_pod(sleepers, pods):
        return why
    if has_begun:
        return "" if sleepers.any else "nothing sleeps any more"
    asleep = pool in state.asleep(NODE_POOL) or any(sleepers.reason(pod) for pod in pods if is_recreated(pod))
    return "" if asleep else f"NodePool {pool} is awake again"
