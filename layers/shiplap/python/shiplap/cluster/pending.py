"""Which pods wait for a node that does not exist yet, as far as a pod itself tells."""

from __future__ import annotations

from shiplap.kubernetes.objects import Pod


def is_unschedulable(pod: Pod) -> bool:
    """Whether kube-scheduler has looked for a node for this pod and found none.

    Karpenter's rule: unbound, condition PodScheduled False with reason Unschedulable, not nominated to a node (it
    preempts there, or its node is on the way), and not a pod that belongs to a node anyway (of a DaemonSet, or static).
    Pods held by scheduling gates have another reason; pods that end need no node.
    """
    if pod.spec.node_name or pod.status.nominated_node_name or pod.metadata.deletion_timestamp:
        return False
    if pod.status.phase in ("Succeeded", "Failed"):
        return False
    if any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references):
        return False
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )
