"""What DaemonSets report, and how their pods get a new template. Creating missing ones is DaemonSetController's."""

from __future__ import annotations

from shiplap.kubernetes.objects import DaemonSet, Node, Pod, is_ready
from shiplap.kubernetes.related_objects import amount_of
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.controllers import belongs, wanted_node
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, is_active
from shiplap_lab.cluster_simulator.workloads.template_revisions import keep_history, revision_name
from shiplap_lab.cluster_simulator.workloads.workload_labels import REVISION_HASH
from shiplap_lab.cluster_simulator.workloads.workload_specs import DaemonSetRolloutSpec

PLURAL = "daemonsets"


def reconcile_daemon_set(client: ControllerClient, item: Object) -> None:
    """Delete pods that do not belong on their node, and some of those with an older template; report."""
    spec = client.spec(item, DaemonSetRolloutSpec)
    if item["metadata"].get("deletionTimestamp"):
        return
    typed = client.server.typed(item, DaemonSet)
    nodes = {
        node.metadata.name
        for node in (client.server.typed(each, Node) for each in client.server.list("nodes").items)
        if belongs(typed, node)
    }
    pods = {_node_of(pod): pod for pod in client.pods_of(item) if is_active(pod)}
    hashes = {node: pod.metadata.labels.get(REVISION_HASH, "") for node, pod in pods.items()}
    name = revision_name(item)
    keep_history(client, item, {f"{item['metadata']['name']}-{each}" for each in hashes.values()})
    updated = {node for node in nodes & pods.keys() if hashes[node] == name.rpartition("-")[2]}
    available = {node for node in nodes & pods.keys() if client.is_available(pods[node], spec.min_ready_seconds)}
    client.delete_pods([pods[node] for node in sorted(pods.keys() - nodes) if node])
    if spec.update_strategy.type == "RollingUpdate":
        most = max(amount_of(spec.update_strategy.rolling.max_unavailable, len(nodes), up=True), 1)
        old = sorted((nodes & pods.keys()) - updated, key=lambda node: (node in available, node))
        client.delete_pods([pods[node] for node in old[: max(most - len(nodes - available), 0)]])
    status = {
        "currentNumberScheduled": len(nodes & pods.keys()),
        "desiredNumberScheduled": len(nodes),
        "numberMisscheduled": len(pods.keys() - nodes),
        "numberReady": sum(is_ready(pods[node].status) for node in nodes & pods.keys()),
        "numberAvailable": len(available),
        "numberUnavailable": len(nodes - available),
        "updatedNumberScheduled": len(updated),
        "observedGeneration": item["metadata"].get("generation", 0),
    }
    client.set_status(PLURAL, item, status)


def _node_of(pod: Pod) -> str:
    return wanted_node(pod.spec.affinity) or pod.spec.node_name
