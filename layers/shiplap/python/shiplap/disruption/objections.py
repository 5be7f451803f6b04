"""What speaks against removing a node although a command to do so has begun.

Until the taint is on the node, pods may still come to it, and people may protect pods and nodes at any time. Once it is
emptied there is no way back, and a pod that must not be disrupted would hold a closed node for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.disruption.candidates import eviction_cost, moves
from shiplap.disruption.commands import Reason
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.pods import TERMINAL, do_not_disrupt

_OVERDUE = (Reason.DRIFTED, Reason.EXPIRED)


def objection(reason: Reason, node: Node, pods: Sequence[Pod], now: float, *, has_deadline: bool) -> str:
    """Why a node must not go after all, or nothing.

    PodDisruptionBudgets are no objection: they come and go with the pods they count, and evictions wait for them.

    Args:
        reason: of the command.
        node: as it is now.
        pods: those on it now.
        now: epoch seconds.
        has_deadline: whether the node has a terminationGracePeriod, so that protected pods are waited for in vain.
    """
    name = node.metadata.name
    if reason is Reason.SCALED_DOWN:
        return ""
    if node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return f"node {name} has the annotation {labels.DO_NOT_DISRUPT}=true"
    for pod in sorted(pods, key=lambda item: item.key):
        if pod.status.phase in TERMINAL or pod.metadata.deletion_timestamp:
            continue
        if do_not_disrupt(pod, now) and not (has_deadline and reason in _OVERDUE):
            return f"pod {pod.key} on node {name} has the annotation {labels.DO_NOT_DISRUPT}"
        if reason is Reason.EMPTY and moves(pod) and eviction_cost(pod) > 0:
            return f"pod {pod.key} has come to node {name}"
    return ""
