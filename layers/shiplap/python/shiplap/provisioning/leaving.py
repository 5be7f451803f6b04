"""Which pods of a node that is being emptied leave now: order, protection and the clock, as pure functions.

The order is upstream's: ordinary pods before those of DaemonSets, both before critical ones, and critical ones of
DaemonSets last; each group waits until the one before it is gone. What protects a pod, and what it waits for, ends at
the last moment from which its grace period still fits before the node's deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.pods import do_not_disrupt, goes_with_its_node, owner_kind

HEAD_START_S = 10.0
"""How long pods of a leaving node are left alone at first, so that a decision about them is made, in seconds."""

MARGIN_S = 10.0
"""How long before the deadline the last pod should have ended, in seconds: rounds and evictions take time."""

_STUCK_S = 60.0
"""A pod that outlives its deletion by this many seconds is not going to end; upstream does not wait for it either."""

_CRITICAL = ("system-cluster-critical", "system-node-critical")
_GRACE_S = 30


def must_leave(pod: Pod, now: float) -> bool:
    """Whether a node is not empty while it holds this pod: it can be evicted, would be missed, and will end."""
    if goes_with_its_node(pod):
        return False
    deleted = pod.metadata.deletion_timestamp
    return not deleted or now < epoch(deleted) + _STUCK_S


def group(pod: Pod) -> int:
    """The place of a pod in the order: 0 ordinary, 1 of a DaemonSet, 2 critical, 3 both."""
    return 2 * (pod.spec.priority_class_name in _CRITICAL) + (owner_kind(pod) == "DaemonSet")


def grace_s(pod: Pod) -> int:
    """The seconds a pod is given to end."""
    given = pod.spec.termination_grace_period_seconds
    return _GRACE_S if given is None else given


def last_moment(pod: Pod, deadline_at: float) -> float:
    """The epoch second at which a pod has to leave, whatever stands against it; never without a deadline (0)."""
    return (deadline_at or inf) - grace_s(pod) - MARGIN_S


def may_leave(
    pods: Sequence[Pod], promised: Collection[str], now: float, *, started_at: float, deadline_at: float
) -> list[Pod]:
    """The pods to evict in this round, in order.

    Args:
        pods: those that must leave.
        promised: uids of pods for which a node is on its way; they stay until it is ready.
        now: epoch seconds, as are `started_at` and `deadline_at`, which is 0 when nothing presses.
    """
    turn = min((group(pod) for pod in pods), default=0)

    def leaves(pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp:
            return False
        if now >= last_moment(pod, deadline_at):
            return True
        if group(pod) != turn or do_not_disrupt(pod, now):
            return False
        return now >= started_at + HEAD_START_S and pod.metadata.uid not in promised

    return sorted((pod for pod in pods if leaves(pod)), key=lambda pod: (group(pod), pod.key))


def overstays(pod: Pod, deadline_at: float) -> bool:
    """Whether a pod that is ending has been given more time than its node has."""
    deleted = pod.metadata.deletion_timestamp
    return bool(deadline_at and deleted and epoch(deleted) > deadline_at)
