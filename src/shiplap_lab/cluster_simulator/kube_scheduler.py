"""A kube-scheduler: binds pods that fit on a node and marks the others Unschedulable.

Each step considers the whole cluster and does nothing while nothing changes. Preemption is left out.

Each step begins at the front of its queue. Pods of the same shape that fit nowhere are skipped together, so that the
time of a step depends on the pods it tries, not on those that wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import closing
from heapq import heapify, heappop, heappush

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.informer import Informer, Kept
from shiplap_lab.cluster_simulator.scheduler_filters import NodeInfo, PodInfo, refusals
from shiplap_lab.cluster_simulator.scheduler_scores import Rankings, best

NAME = "default-scheduler"


class Scheduler:
    """Schedules the pods of one cluster that ask for the default scheduler.

    `most` is how many pods a step tries, 0 for all. Those that were tried longest ago come first then, and one that
    nothing fits is tried again when something does, as QueueingHints have it; what is said of it stays what it was.
    `events` says whether the reasons are also written as events, for people to read.
    """

    def __init__(self, server: ApiServer, *, most: int = 0, events: bool = True) -> None:
        self._server = server
        self._most = most
        self._events = events
        self._informer = Informer(server, self._changed)
        self._waiting = SchedulingQueue()
        self._there: dict[str, dict[str, PodInfo]] = {}
        self._nominated: dict[str, dict[str, PodInfo]] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._rankings = Rankings(self._nodes)
        self._stale: set[str] = set()
        self._disliked: set[str] = set()
        self._tried: dict[str, float] = {}
        self._left_over = False

    def step(self, now: float) -> int:
        """Try every pod that waits, the most important and oldest first; returns how many were bound."""
        if not self._informer.refresh() and not self._left_over:
            return 0
        self._look_again()
        bound = tries = 0
        hopeless: dict[bytes, str] = {}
        self._left_over = False
        with closing(self._waiting.in_order()) as queue:
            for key, needs in queue:
                if self._most and tries >= self._most:
                    self._left_over = True
                    break
                chosen, message = self._decide(needs, hopeless)
                if chosen is not None:
                    bound += self._bind(needs, chosen)
                elif self._is_first_try(needs.pod, now):
                    self._mark_unschedulable(needs.pod, message, now)
                    self._waiting.put(key, needs, self._tried.get(needs.pod.metadata.uid, 0.0))
                else:
                    self._waiting.pass_over(needs)
                    continue
                tries += 1
        return bound

    def _decide(self, needs: PodInfo, hopeless: dict[bytes, str]) -> tuple[NodeInfo | None, str]:
        """Nodes only fill up during a step, so a pod like one that did not fit will not fit either.

        A nominated pod is not like others, for the room it is promised is denied to them.
        """
        if needs.pod.status.nominated_node_name:
            return self._choose(needs)
        message = hopeless.get(needs.shape, "")
        if message:
            return None, message
        chosen, message = self._choose(needs)
        if chosen is None:
            hopeless[needs.shape] = message
        return chosen, message

    def _is_first_try(self, pod: Pod, now: float) -> bool:
        first = pod.metadata.uid not in self._tried
        if self._most and first:
            self._tried[pod.metadata.uid] = now
        return first

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:
        if plural == "nodes":
            self._stale.add(key)
        known = None
        if isinstance(before, Pod):
            known = self._take_out(key, before)
            if after is None:
                self._tried.pop(before.metadata.uid, None)
        if isinstance(after, Pod) and after.status.phase not in TERMINAL_PHASES:
            self._put_in(key, after, known)

    def _take_out(self, key: str, pod: Pod) -> PodInfo | None:
        known = self._waiting.drop(key)
        for kept, node in ((self._there, pod.spec.node_name), (self._nominated, pod.status.nominated_node_name)):
            if node and (there := kept.get(node, {}).pop(key, None)) is not None:
                known = there
                self._stale.add(node)
        return known

    def _put_in(self, key: str, pod: Pod, known: PodInfo | None) -> None:
        needs = PodInfo.of(pod, known)
        spec = pod.spec
        if spec.node_name:
            self._there.setdefault(spec.node_name, {})[key] = needs
            self._stale.add(spec.node_name)
            return
        if pod.status.nominated_node_name:
            self._nominated.setdefault(pod.status.nominated_node_name, {})[key] = needs
            self._stale.add(pod.status.nominated_node_name)
        if not pod.metadata.deletion_timestamp and not spec.scheduling_gates and spec.scheduler_name == NAME:
            self._waiting.put(key, needs, self._tried.get(pod.metadata.uid, 0.0))

    def _look_again(self) -> None:
        """Recompute the usage of changed nodes, with the pods nominated to them."""
        for name in sorted(self._stale):
            self._rankings.changed(name)
            self._nodes.pop(name, None)
            self._disliked.discard(name)
            node = self._informer.nodes.get(name)
            if node is None:
                continue
            state = self._nodes[name] = NodeInfo.of(node)
            for needs in self._there.get(name, {}).values():
                state.add(needs)
            state.nominated.extend(self._nominated.get(name, {}).values())
            if any(taint.effect == "PreferNoSchedule" for taint in node.spec.taints):
                self._disliked.add(name)
        self._stale.clear()

    def _choose(self, needs: PodInfo) -> tuple[NodeInfo | None, str]:
        """The node to bind to, or none and the reason as kube-scheduler words it."""
        if self._disliked or _prefers(needs.pod):
            return choose(needs, self._nodes)
        nominated = self._nodes.get(needs.pod.status.nominated_node_name)
        if nominated is not None and not refusals(needs, nominated):
            return nominated, ""
        chosen, reasons = self._rankings.of(needs)
        return (chosen, "") if chosen is not None else (None, worded(reasons, len(self._nodes)))

    def _bind(self, needs: PodInfo, state: NodeInfo) -> bool:
        metadata = needs.pod.metadata
        try:
            self._server.bind(metadata.name, state.node.metadata.name, metadata.namespace)
        except (ObjectConflict, ObjectNotFound):
            return False  # it was deleted or bound while this step ran; the next one sees that
        state.add(needs)
        self._rankings.changed(state.node.metadata.name)
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
        if self._events:
            self._publish(pod, message, moment)

    def _publish(self, pod: Pod, message: str, moment: str) -> None:
        metadata = pod.metadata
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


def choose(needs: PodInfo, nodes: dict[str, NodeInfo]) -> tuple[NodeInfo | None, str]:
    """The node to bind to when each is looked at, or none and the reason as kube-scheduler words it."""
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
    return (best(needs, fitting), "") if fitting else (None, worded(reasons, len(nodes)))


def worded(reasons: Counter[str], nodes: int) -> str:
    """Why none of so many nodes takes a pod; `reasons` counts how many of them say what."""
    if not nodes:
        return "no nodes available to schedule pods"
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"0/{nodes} nodes are available: {listed}."


def _prefers(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and affinity.node_affinity is not None and bool(affinity.node_affinity.preferred)


_Order = tuple[int, float, str, str]
"""The most important first, then those tried longest ago, then the oldest; the key decides between equals."""

_NOMINATED = b""
"""The line of nominated pods; all others are in the line of their shape."""


class SchedulingQueue:
    """Pods by key, in one line per shape."""

    def __init__(self) -> None:
        self._needs: dict[str, PodInfo] = {}
        self._at: dict[str, tuple[_Order, bytes]] = {}
        self._lines: dict[bytes, list[_Order]] = {}
        self._hopeless: set[bytes] = set()

    def put(self, key: str, needs: PodInfo, tried_at: float) -> None:
        """Let a pod wait, or what is known of it now in the place of what was known before.

        Where it is put while pods are being taken counts from the next time on.
        """
        order = (-needs.pod.spec.priority, tried_at, needs.pod.metadata.creation_timestamp or "", key)
        place = order, _line_of(needs)
        self._needs[key] = needs
        if self._at.get(key) != place:
            self._at[key] = place
            heappush(self._lines.setdefault(place[1], []), order)

    def drop(self, key: str) -> PodInfo | None:
        """A pod waits no longer; its place is kept in case it comes back unchanged. Returns what was known of it."""
        return self._needs.pop(key, None)

    def pass_over(self, needs: PodInfo) -> None:
        """No node fits this shape: in this step, skip pods of the shape that were tried before."""
        if _line_of(needs) != _NOMINATED:
            self._hopeless.add(needs.shape)

    def in_order(self) -> Generator[tuple[str, PodInfo]]:
        """Each pod once; to be closed."""
        self._hopeless.clear()
        lines, self._lines = self._lines, {}
        heads = [(line[0], name) for name, line in lines.items() if line]
        heapify(heads)
        taken: list[tuple[_Order, bytes]] = []
        try:
            while heads:
                order, name = heappop(heads)
                line, key = lines[name], order[3]
                tried = order[1] > 0
                if tried and name in self._hopeless:
                    continue  # behind it there are none in this line that have not been tried
                heappop(line)
                if line:
                    heappush(heads, (line[0], name))
                if self._at.get(key) != (order, name):
                    continue
                if key in self._needs:
                    taken.append((order, name))
                    yield key, self._needs[key]
                else:
                    del self._at[key]
        finally:
            for order, name in taken:
                if self._at.get(order[3]) == (order, name):
                    heappush(lines[name], order)
            for name, fresh in self._lines.items():
                for order in fresh:
                    heappush(lines.setdefault(name, []), order)
            self._lines = lines


def _line_of(needs: PodInfo) -> bytes:
    return _NOMINATED if needs.pod.status.nominated_node_name else needs.shape
