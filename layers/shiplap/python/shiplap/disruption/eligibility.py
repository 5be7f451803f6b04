"""What keeps a node from being removed for money: its pool's policy, its own state, and pods that have just changed.

Drift and expiration do not ask: they are about what a node is, not about what it costs.
"""

from __future__ import annotations

from shiplap.api.durations import seconds_or_never
from shiplap.disruption.candidates import Candidate
from shiplap.disruption.market import Market
from shiplap.disruption.snapshot import NodeHistory
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import epoch

UNSTARTED_S = 900.0
"""How long pods that have not started keep their node from being consolidated, in seconds since its pods changed."""


def unconsolidatable(item: Candidate, market: Market, now: float, settle_s: float) -> str:  # noqa: PLR0911 - a list of reasons
    """Why a node cannot be removed for money, or nothing."""
    disruption, marks, pool = item.pool.spec.disruption, item.node.metadata.labels, item.pool.metadata.name
    if item.pool.spec.replicas is not None:
        return f"NodePool {pool} is static"
    after_s = seconds_or_never(disruption.consolidate_after)
    if after_s is None:
        return f"NodePool {pool} has consolidation disabled"
    if item.history.said_to_stay:
        return "its NodeClaim says that it is not consolidatable"
    since = now - quiet_since(item.history)
    if since < after_s:
        return f"its pods changed {since:.0f} s ago, consolidateAfter is {disruption.consolidate_after}"
    if item.empty:
        return ""
    if disruption.consolidation_policy == "WhenEmpty":
        return f"NodePool {pool} has policy WhenEmpty but the node is not empty"
    for key in (labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE):
        if key not in marks:
            return f"the node lacks the label {key}"
    if market.type_of(pool, marks[labels.INSTANCE_TYPE]) is None:
        return f"instance type {marks[labels.INSTANCE_TYPE]} not found in the catalogue of NodePool {pool}"
    if settle_s and now - item.history.moved_in_at < settle_s:
        return f"its pods were moved here {now - item.history.moved_in_at:.0f} s ago and stay for {settle_s:.0f} s"
    if starting := next((pod for pod in item.pods if _is_starting(pod, item.history, now)), None):
        return f"pod {starting.key} has not started on it yet"
    return ""


def _is_starting(pod: Pod, history: NodeHistory, now: float) -> bool:
    """Whether a pod has not run yet and still may: one that cannot start at all must not keep its node."""
    if pod.status.phase != "Pending":
        return False
    since = quiet_since(history) or (epoch(pod.status.start_time) if pod.status.start_time else 0.0)
    return not since or now - since < UNSTARTED_S


def quiet_since(history: NodeHistory) -> float:
    """Epoch seconds since when a node has been initialised and its pods have not changed; 0 where nothing is known."""
    return max(history.initialized_at, history.last_pod_event_at)
