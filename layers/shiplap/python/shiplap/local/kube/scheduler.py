"""A kube-scheduler: binds pods that fit somewhere and marks the others Unschedulable.

It looks at the whole cluster in every step and does nothing while nothing changes. Preemption is left out.
"""

from __future__ import annotations

from collections import Counter

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.local.kube.fit import NodeState, PodNeeds, refusals
from shiplap.local.kube.informer import Informer
from shiplap.local.kube.score import best
from shiplap.twins.kube.pods import condition
from shiplap.twins.kube.server import ApiServer

NAME = "default-scheduler"
_FINISHED = ("Succeeded", "Failed")


class Scheduler:
    """Schedules the pods of one cluster that ask for the default scheduler."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._informer = Informer(server)
        self._needs: dict[str, tuple[str, PodNeeds]] = {}

    def step(self, now: float) -> int:
        """Try every pod that waits, the most important and oldest first; returns how many were bound."""
        if not self._informer.refresh():
            return 0
        self._forget_deleted()
        nodes = self._nodes()
        bound = 0
        hopeless: dict[bytes, str] = {}
        for needs in self._waiting():
            # Nodes only fill up during a step, so a pod like one that did not fit will not fit either; a nominated
            # pod is not like others, for the room it is promised is denied to them.
            nominated = needs.pod.status.nominated_node_name
            message = "" if nominated else hopeless.get(needs.shape, "")
            if not message:
                chosen, message = _choose(needs, nodes)
                if chosen is not None:
                    bound += self._bind(needs, chosen)
                    continue
                if not nominated:
                    hopeless[needs.shape] = message
            self._mark_unschedulable(needs.pod, message, now)
        return bound

    def _forget_deleted(self) -> None:
        alive = {pod.metadata.uid for pod in self._informer.pods.values()}
        self._needs = {uid: known for uid, known in self._needs.items() if uid in alive}

    def _needs_of(self, pod: Pod) -> PodNeeds:
        known = self._needs.get(pod.metadata.uid)
        if known is None or known[0] != pod.metadata.resource_version:
            known = (pod.metadata.resource_version, PodNeeds.of(pod))
            self._needs[pod.metadata.uid] = known
        return known[1]

    def _nodes(self) -> dict[str, NodeState]:
        """The nodes by name, sorted, with the pods that are on them and those nominated to them."""
        nodes = {name: NodeState.of(node) for name, node in sorted(self._informer.nodes.items())}
        for _, pod in sorted(self._informer.pods.items()):
            if pod.status.phase in _FINISHED:
                continue
            if pod.spec.node_name in nodes:
                nodes[pod.spec.node_name].add(self._needs_of(pod))
            elif not pod.spec.node_name and pod.status.nominated_node_name in nodes:
                nodes[pod.status.nominated_node_name].nominated.append(self._needs_of(pod))
        return nodes

    def _waiting(self) -> list[PodNeeds]:
        """Pods to schedule, in queue order."""
        waiting = [
            pod
            for pod in self._informer.pods.values()
            if not pod.spec.node_name
            and not pod.metadata.deletion_timestamp
            and not pod.spec.scheduling_gates
            and pod.spec.scheduler_name == NAME
            and pod.status.phase not in _FINISHED
        ]
        waiting.sort(key=lambda pod: (-pod.spec.priority, pod.metadata.creation_timestamp or "", pod.key))
        return [self._needs_of(pod) for pod in waiting]

    def _bind(self, needs: PodNeeds, state: NodeState) -> bool:
        metadata = needs.pod.metadata
        try:
            self._server.bind(metadata.name, state.node.metadata.name, metadata.namespace)
        except (ObjectConflict, ObjectNotFound):
            return False  # it was deleted or bound while this step ran; the next one sees that
        state.add(needs)
        state.nominated = [other for other in state.nominated if other.pod.metadata.uid != metadata.uid]
        return True

    def _mark_unschedulable(self, pod: Pod, message: str, now: float) -> None:
        """Set the condition that provisioners look for, and say why in an event; nothing when both stand already."""
        known = next((item for item in pod.status.conditions if item.type == "PodScheduled"), None)
        if known is not None and (known.reason, known.message) == ("Unschedulable", message):
            return
        metadata, moment = pod.metadata, rfc3339(now)
        unscheduled = condition("PodScheduled", "False", moment, "Unschedulable", message)
        try:
            self._server.patch(
                "pods",
                metadata.name,
                {"metadata": {"uid": metadata.uid}, "status": {"conditions": [unscheduled]}},
                metadata.namespace,
                strategic=True,
                subresource="status",
            )
        except (ObjectConflict, ObjectNotFound):
            return  # deleted while this step ran
        involved = {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        self._server.create(
            "events",
            {
                "metadata": {"generateName": f"{metadata.name}.", "namespace": metadata.namespace},
                "involvedObject": involved,
                "reason": "FailedScheduling",
                "message": message,
                "type": "Warning",
                "source": {"component": NAME},
                "lastTimestamp": moment,
            },
        )


def _choose(needs: PodNeeds, nodes: dict[str, NodeState]) -> tuple[NodeState | None, str]:
    """The node to bind to, or none and the reason as kube-scheduler words it."""
    nominated = nodes.get(needs.pod.status.nominated_node_name)
    if nominated is not None and not refusals(needs, nominated):
        return nominated, ""
    reasons: Counter[str] = Counter()
    fitting = []
    for state in nodes.values():
        refused = refusals(needs, state)
        reasons.update(refused)
        if not refused:
            fitting.append(state)
    if fitting:
        return best(needs, fitting), ""
    if not nodes:
        return None, "no nodes available to schedule pods"
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return None, f"0/{len(nodes)} nodes are available: {listed}."
