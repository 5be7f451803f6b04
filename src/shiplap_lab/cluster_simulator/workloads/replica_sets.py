"""The controllers of ReplicaSets and ReplicationControllers: as many pods as one wants, neither more nor fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from shiplap.kubernetes.labels import DELETION_COST
from shiplap.kubernetes.objects import LabelSelector, Pod, is_ready
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.condition_lists import renewed
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, is_active
from shiplap_lab.cluster_simulator.workloads.templated_pods import pod_from
from shiplap_lab.cluster_simulator.workloads.workload_specs import ReplicaSetSpec, ReplicationControllerSpec

PLURAL, CONTROLLERS = "replicasets", "replicationcontrollers"


def reconcile_replica_set(client: ControllerClient, item: Object) -> None:
    """Create the pods that are missing, delete those that are too many, and report."""
    _reconcile(client, PLURAL, item, client.spec(item, ReplicaSetSpec))


def reconcile_replication_controller(client: ControllerClient, item: Object) -> None:
    """Do the same for a ReplicationController, the older kind."""
    spec = client.spec(item, ReplicationControllerSpec)
    selector = LabelSelector(match_labels=spec.selector)
    _reconcile(client, CONTROLLERS, item, ReplicaSetSpec(spec.replicas, selector, spec.min_ready_seconds))


def _reconcile(client: ControllerClient, plural: str, item: Object, spec: ReplicaSetSpec) -> None:
    active = [pod for pod in client.claimed_pods(item, spec.selector) if is_active(pod)]
    missing, refused = spec.replicas - len(active), ""
    if item["metadata"].get("deletionTimestamp"):
        missing = 0
    if missing > 0:
        refused = client.create_pods(item, repeat(pod_from(item)), missing)
    elif missing < 0:
        client.delete_pods(dispensable(active)[:-missing])
    client.set_status(plural, item, _status(client, item, spec, active, refused))


def dispensable(pods: Sequence[Pod]) -> list[Pod]:
    """Pods in the order in which they go: without a node, not Ready, cheap to delete, many on their node, young."""
    on_node = Counter(pod.spec.node_name for pod in pods)

    def rank(pod: Pod) -> tuple[bool, bool, int, int]:
        return bool(pod.spec.node_name), is_ready(pod.status), _deletion_cost(pod), -on_node[pod.spec.node_name]

    newest = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name), reverse=True)
    return sorted(newest, key=rank)


def _deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _status(
    client: ControllerClient, item: Object, spec: ReplicaSetSpec, active: Sequence[Pod], refused: str
) -> dict[str, Any]:
    labels = (item["spec"]["template"].get("metadata") or {}).get("labels") or {}
    conditions = []
    if refused:
        client.event(item, "FailedCreate", f"Error creating: {refused}", "Warning")
        conditions = [renewed(item, "ReplicaFailure", "True", "FailedCreate", refused, client.now)]
    return {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels.items() <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": sum(is_ready(pod.status) for pod in active),
        "availableReplicas": sum(client.is_available(pod, spec.min_ready_seconds) for pod in active),
        "observedGeneration": item["metadata"].get("generation", 0),
        "conditions": conditions,
    }
