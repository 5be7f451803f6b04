"""A kube-scheduler: binds pods that fit on a node, makes room for important ones and marks the others Unschedulable.

Each step considers the whole cluster and does nothing while nothing changes.

Each step begins at the front of its queue. Pods of the same shape that fit nowhere are skipped together, so that the
time of a step depends on the pods it tries, not on those that wait.

The filters judge resources, node selector and affinity, taints, cordons and host ports; topology spread, pod affinity
and volumes of pods that have any (`topology_filters.py`, `volume_binder.py`), for which every node is looked at anew.

A pod that fits nowhere may preempt pods of lower priority: they are deleted, and the pod is nominated to their node.

The scores are kube-scheduler's defaults. LeastAllocated and BalancedAllocation spread pods over the emptiest nodes;
preferred node affinity and PreferNoSchedule taints weigh in. Ranks are kept per shape of pod from step to step, and
only changed nodes are ranked again. The choice is the same as if every node were scored for every pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from heapq import heapify, heappop, heappush
from math import sqrt

import msgspec
from msgspec.structs import replace

from shiplap.errors import ObjectConflict, ObjectNotFound, TooManyRequests
from shiplap.kubernetes.objects import TERMINAL_PHASES, ContainerPort, Node, Pod, PodSpec, Taint
from shiplap.kubernetes.pod_requests import is_resize_infeasible, pod_requests
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS, parse_resources
from shiplap.kubernetes.selectors import node_affinity_allows, term_matches
from shiplap.kubernetes.taints import tolerates, untolerated
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.server import ApiServer, ListOptions
from shiplap_lab.api_server.stored_pods import check_eviction, condition
from shiplap_lab.cluster_simulator.informer import Informer, Kept
from shiplap_lab.cluster_simulator.topology_filters import TopologyFilter, has_topology_rules, keeps_others_off
from shiplap_lab.cluster_simulator.volume_binder import VolumeBinder, claims_of

_DEFAULT_CPU_MILLICORES = 100
_DEFAULT_MEMORY = 200 * 2**20
"""What scoring assumes of a pod that requests none (kube-scheduler's GetNonzeroRequests)."""

Port = tuple[str, int, str]
"""Protocol, host port, host address."""


class PodInfo(msgspec.Struct, frozen=True):
    """The needs of one pod on a node. Equal `shape` means that the filters treat two pods alike.

    `looks_around`: other pods and volumes decide where it may be.
    """

    pod: Pod
    requests: dict[str, int]
    scored: dict[str, int]
    ports: tuple[Port, ...]
    shape: bytes
    looks_around: bool = False

    @classmethod
    def of(cls, pod: Pod, before: PodInfo | None = None) -> PodInfo:
        """From the pod, and what was known of it before. Raises ValueError when a quantity is malformed."""
        if before is not None and before.pod.spec is pod.spec and _held(before.pod) == _held(pod):
            return cls(pod, before.requests, before.scored, before.ports, before.shape, before.looks_around)
        requests = pod_requests(pod)
        spec = pod.spec
        scored = {
            CPU: requests.get(CPU, _DEFAULT_CPU_MILLICORES),
            MEMORY: requests.get(MEMORY, _DEFAULT_MEMORY),
        }
        ports = tuple(
            (port.protocol, number, port.host_ip)
            for container in spec.containers
            for port in container.ports
            if (number := _host_port(spec, port))
        )
        shape = msgspec.msgpack.encode(
            (sorted(requests.items()), spec.node_selector, spec.affinity, spec.tolerations, ports, spec.priority)
        )
        return cls(pod, requests, scored, ports, shape, has_topology_rules(pod) or bool(claims_of(pod)))


Refusals = Callable[["NodeInfo"], list[str]]
"""Further reasons, beside resources and labels, why a node does not take a pod."""


class NodeInfo(msgspec.Struct):
    """A node and what its pods hold; `add` counts a pod in as soon as it is bound."""

    node: Node
    allocatable: dict[str, int]
    used: dict[str, int] = {}
    scored: dict[str, int] = {}
    ports: list[Port] = []
    pods: list[PodInfo] = []
    nominated: list[PodInfo] = []

    @classmethod
    def of(cls, node: Node) -> NodeInfo:
        """An empty node. Raises ValueError when a quantity is malformed."""
        return cls(node, parse_resources(node.status.allocatable))

    def add(self, needs: PodInfo) -> None:
        """Count a bound pod in."""
        for resource, amount in needs.requests.items():
            self.used[resource] = self.used.get(resource, 0) + amount
        for resource, amount in needs.scored.items():
            self.scored[resource] = self.scored.get(resource, 0) + amount
        self.ports.extend(needs.ports)
        self.pods.append(needs)


_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
"""By tolerating this taint a pod is let onto a cordoned node (plugins/nodeunschedulable)."""


def refusals(needs: PodInfo, state: NodeInfo) -> list[str]:
    """Return why the filters keep the pod off the node, in kube-scheduler's words; empty when they do not."""
    spec, node = needs.pod.spec, state.node
    if node.spec.unschedulable and not any(tolerates(item, _UNSCHEDULABLE) for item in spec.tolerations):
        return ["node(s) were unschedulable"]
    taint = untolerated(node.spec.taints, spec.tolerations, ignore_preferences=True)
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not node_affinity_allows(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if any(_collide(wanted, taken) for wanted in needs.ports for taken in state.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    return _shortages(needs, state)


def _shortages(needs: PodInfo, state: NodeInfo) -> list[str]:
    """Resources that are short, pods nominated to the node with at least this pod's priority counted as there."""
    ahead = [
        other
        for other in state.nominated
        if other.pod.metadata.uid != needs.pod.metadata.uid and other.pod.spec.priority >= needs.pod.spec.priority
    ]
    short = []
    for resource, amount in needs.requests.items():
        taken = state.used.get(resource, 0) + sum(other.requests.get(resource, 0) for other in ahead)
        if taken + amount > state.allocatable.get(resource, 0):
            short.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
    return short


def _held(pod: Pod) -> tuple[object, ...]:
    """Return the parts of a status that change the pod's requests."""
    status = pod.status
    held = (status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources)
    return (*held, is_resize_infeasible(status))


def _host_port(spec: PodSpec, port: ContainerPort) -> int:
    """The port taken on the node, 0 for none; on the host's network every port is the node's."""
    return port.host_port or (port.container_port if spec.host_network else 0)


def _collide(wanted: Port, taken: Port) -> bool:
    anywhere = ("", "0.0.0.0")  # noqa: S104 - compared, not bound
    same_address = wanted[2] == taken[2] or wanted[2] in anywhere or taken[2] in anywhere
    return wanted[:2] == taken[:2] and same_address


_MAX = 100
_WEIGHT_TAINTS = 3
_WEIGHT_AFFINITY = 2


def best(needs: PodInfo, fitting: list[NodeInfo]) -> NodeInfo:
    """The node with the highest score; the first by name among equals."""
    preferred = [_preferred_affinity(needs, state) for state in fitting]
    disliked = [_intolerable_preferences(needs, state) for state in fitting]
    most_preferred, most_disliked = max(preferred), max(disliked)

    def rank(index: int) -> tuple[int, str]:
        state = fitting[index]
        score = least_allocated(needs, state) + balanced_allocation(needs, state)
        if most_preferred:
            score += _WEIGHT_AFFINITY * (preferred[index] * _MAX // most_preferred)
        if most_disliked:
            score += _WEIGHT_TAINTS * (_MAX - disliked[index] * _MAX // most_disliked)
        return -score, state.node.metadata.name

    return fitting[min(range(len(fitting)), key=rank)]


def least_allocated(needs: PodInfo, state: NodeInfo) -> int:
    """0 to 100: the mean share of cpu and memory that stays free."""
    shares = []
    for resource in (CPU, MEMORY):
        allocatable = state.allocatable.get(resource, 0)
        if allocatable:
            free = allocatable - state.scored.get(resource, 0) - needs.scored[resource]
            shares.append(max(0, free) * _MAX // allocatable)
    return sum(shares) // len(shares) if shares else 0


def balanced_allocation(needs: PodInfo, state: NodeInfo) -> int:
    """0 to 100: 100 less the standard deviation of the used shares of cpu and memory."""
    shares = []
    for resource in (CPU, MEMORY):
        allocatable = state.allocatable.get(resource, 0)
        if allocatable:
            used = state.used.get(resource, 0) + needs.requests.get(resource, 0)
            shares.append(min(1.0, used / allocatable))
    if not shares:
        return 0
    mean = sum(shares) / len(shares)
    deviation = sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
    return int((1 - deviation) * _MAX)


def _preferred_affinity(needs: PodInfo, state: NodeInfo) -> int:
    affinity = needs.pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return 0
    return sum(term.weight for term in affinity.node_affinity.preferred if term_matches(term.preference, state.node))


def _intolerable_preferences(needs: PodInfo, state: NodeInfo) -> int:
    return sum(
        taint.effect == "PreferNoSchedule" and not any(tolerates(known, taint) for known in needs.pod.spec.tolerations)
        for taint in state.node.spec.taints
    )


_MOST_SHAPES = 2000
_LONGEST_LOG = 200_000


class Rankings:
    """The nodes of a cluster as pods of each shape see them. `nodes` is shared; call `changed` after each change."""

    def __init__(self, nodes: dict[str, NodeInfo]) -> None:
        self._nodes = nodes
        self._shapes: dict[bytes, _Ranking] = {}
        self._log: list[str] = []

    def changed(self, node: str) -> None:
        """A node is new, gone or differs from what it was."""
        if len(self._log) > _LONGEST_LOG:
            self._log.clear()
            self._shapes.clear()
        if self._shapes:
            self._log.append(node)

    def of(self, needs: PodInfo) -> tuple[NodeInfo | None, Counter[str]]:
        """The best node for a pod that is nominated nowhere and prefers none, or None; and why others refuse it."""
        known = self._shapes.get(needs.shape)
        if known is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            known = self._shapes[needs.shape] = _Ranking(needs)
            known.judge(self._nodes, self._nodes)
        else:
            known.judge(dict.fromkeys(self._log[known.read :]), self._nodes)
        known.read = len(self._log)
        return known.best(self._nodes), known.reasons


class _Ranking:
    """One shape's view. `read` is how far it has followed the log of changes."""

    def __init__(self, needs: PodInfo) -> None:
        pod = needs.pod
        self.read = 0
        self.reasons: Counter[str] = Counter()
        # Nobody in particular: the room a pod of this shape is promised somewhere is no room for its like.
        self._needs = replace(needs, pod=replace(pod, metadata=replace(pod.metadata, uid="")))
        self._refused: dict[str, list[str]] = {}
        self._rank: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def judge(self, names: dict[str, NodeInfo] | dict[str, None], nodes: dict[str, NodeInfo]) -> None:
        for name in names:
            self.reasons.subtract(self._refused.pop(name, ()))
            self._rank.pop(name, None)
            state = nodes.get(name)
            if state is None:
                continue
            refused = refusals(self._needs, state)
            if refused:
                self._refused[name] = refused
                self.reasons.update(refused)
            else:
                rank = -least_allocated(self._needs, state) - balanced_allocation(self._needs, state)
                self._rank[name] = rank
                heappush(self._heap, (rank, name))
        self.reasons += Counter()  # drops those that are down to nothing

    def best(self, nodes: dict[str, NodeInfo]) -> NodeInfo | None:
        while self._heap:
            rank, name = self._heap[0]
            if self._rank.get(name) == rank:
                return nodes[name]
            heappop(self._heap)
        return None


NAME = "default-scheduler"


class Scheduler:
    """Schedules the pods of one cluster that ask for the default scheduler.

    `most` is how many pods a step tries, 0 for all. Those that were tried longest ago come first then, and one that
    nothing fits is tried again when something does, as QueueingHints have it; what is said of it stays what it was.
    `events` says whether the reasons are also written as events, for people to read.

    Attributes:
        kept_off: how often a node refused a pod because of other pods or of volumes, by the words for it.
        preempted: how many pods had to go for more important ones.
    """

    def __init__(self, server: ApiServer, *, most: int = 0, events: bool = True) -> None:
        self.kept_off: Counter[str] = Counter()
        self.preempted = 0
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
        self._volumes = VolumeBinder(server)
        self._keeping_off: set[str] = set()
        self._priorities: Counter[int] = Counter()
        self._made_room_for: set[str] = set()
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
                    tries += 1
                    continue
                self._preempt(needs)
                if self._is_first_try(needs.pod, now):
                    self._mark_unschedulable(needs.pod, message, now)
                    self._waiting.put(key, needs, self._tried.get(needs.pod.metadata.uid, 0.0))
                else:
                    if not self._has_further_rules(needs):
                        self._waiting.pass_over(needs)
                    continue
                tries += 1
        return bound

    def _decide(self, needs: PodInfo, hopeless: dict[bytes, str]) -> tuple[NodeInfo | None, str]:
        """Nodes only fill up during a step, so a pod like one that did not fit will not fit either.

        A nominated pod is not like others, for the room it is promised is denied to them. Where other pods decide, one
        that is bound may open a node to the next.
        """
        if needs.pod.status.nominated_node_name or self._has_further_rules(needs):
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
                self._made_room_for.discard(before.metadata.uid)
        if isinstance(after, Pod) and after.status.phase not in TERMINAL_PHASES:
            self._put_in(key, after, known)

    def _take_out(self, key: str, pod: Pod) -> PodInfo | None:
        known = self._waiting.drop(key)
        for kept, node in ((self._there, pod.spec.node_name), (self._nominated, pod.status.nominated_node_name)):
            if node and (there := kept.get(node, {}).pop(key, None)) is not None:
                known = there
                self._stale.add(node)
                if kept is self._there:
                    self._forget_bound(key, pod)
        return known

    def _forget_bound(self, key: str, pod: Pod) -> None:
        self._keeping_off.discard(key)
        self._priorities[pod.spec.priority] -= 1
        if not self._priorities[pod.spec.priority]:
            del self._priorities[pod.spec.priority]

    def _put_in(self, key: str, pod: Pod, known: PodInfo | None) -> None:
        needs = PodInfo.of(pod, known)
        spec = pod.spec
        if spec.node_name:
            self._there.setdefault(spec.node_name, {})[key] = needs
            self._stale.add(spec.node_name)
            self._priorities[spec.priority] += 1
            if keeps_others_off(pod):
                self._keeping_off.add(key)
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
        if self._has_further_rules(needs):
            return choose(needs, self._nodes, self._further_refusals(needs))
        if self._disliked or _prefers(needs.pod):
            return choose(needs, self._nodes)
        nominated = self._nodes.get(needs.pod.status.nominated_node_name)
        if nominated is not None and not refusals(needs, nominated):
            return nominated, ""
        chosen, reasons = self._rankings.of(needs)
        return (chosen, "") if chosen is not None else (None, worded(reasons, len(self._nodes)))

    def _has_further_rules(self, needs: PodInfo) -> bool:
        """True if it matters for the pod where other pods are, or volumes."""
        return needs.looks_around or bool(self._keeping_off)

    def _further_refusals(self, needs: PodInfo) -> Refusals:
        """Return the refusals of nodes because of the pods that are there, or because of the pod's volumes."""
        placed = [(state.node, [other.pod for other in state.pods]) for state in self._nodes.values()]
        topology = TopologyFilter(needs.pod, placed, self._namespaces() if needs.looks_around else {})
        volumes = self._volumes.filter(needs.pod)

        def refused(state: NodeInfo) -> list[str]:
            said = topology.refusals(state.node) or volumes.refusals(state.node)
            self.kept_off.update(said)
            return said

        return refused

    def _namespaces(self) -> dict[str, dict[str, str]]:
        listed = self._server.list("namespaces").items
        return {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in listed}

    def _preempt(self, needs: PodInfo) -> None:
        """Make room for a pod where pods of lower priority have to go for it, and nominate it there.

        A nomination that came of this before, and where the pod does not fit after all, is taken back.
        """
        priority = needs.pod.spec.priority
        if not any(other < priority for other in self._priorities) or self._is_waiting_for_room(needs):
            return
        try:
            found = self._victims(needs)
            if found is not None:
                self._make_room(needs, *found)
            elif needs.pod.metadata.uid in self._made_room_for:
                self._made_room_for.discard(needs.pod.metadata.uid)
                self._nominate(needs.pod, None)
        except (ObjectConflict, ObjectNotFound):
            return  # somebody else changed one of them while this step ran; the next one sees that

    def _victims(self, needs: PodInfo) -> tuple[NodeInfo, list[PodInfo]] | None:
        metadata = needs.pod.metadata
        stored = self._server.get("pods", metadata.name, metadata.namespace)
        if stored["spec"].get("preemptionPolicy") == "Never":
            return None
        known: dict[str, bool] = {}

        def violates(pod: Pod) -> bool:
            if pod.key not in known:
                known[pod.key] = self._violates_budget(pod)
            return known[pod.key]

        return victims(needs, self._nodes, violates, self._further_refusals(needs))

    def _make_room(self, needs: PodInfo, state: NodeInfo, leaving: list[PodInfo]) -> None:
        for victim in leaving:
            metadata = victim.pod.metadata
            if not metadata.deletion_timestamp:
                self._server.delete("pods", metadata.name, metadata.namespace)
                self.preempted += 1
        staying = [other for other in state.nominated if other.pod.spec.priority >= needs.pod.spec.priority]
        for other in state.nominated:
            if other not in staying:
                self._nominate(other.pod, None)
        self._nominate(needs.pod, state.node.metadata.name)
        self._made_room_for.add(needs.pod.metadata.uid)
        state.nominated = [*staying, needs]
        self._rankings.changed(state.node.metadata.name)

    def _is_waiting_for_room(self, needs: PodInfo) -> bool:
        """True if pods of lower priority are ending on the node that the pod is nominated to."""
        state = self._nodes.get(needs.pod.status.nominated_node_name)
        return state is not None and any(
            other.pod.metadata.deletion_timestamp and other.pod.spec.priority < needs.pod.spec.priority
            for other in state.pods
        )

    def _violates_budget(self, pod: Pod) -> bool:
        around = ListOptions(namespace=pod.metadata.namespace)
        budgets = self._server.list("poddisruptionbudgets", around).items
        if not budgets:
            return False
        stored = self._server.get("pods", pod.metadata.name, pod.metadata.namespace)
        try:
            check_eviction(stored, self._server.list("pods", around).items, budgets)
        except TooManyRequests:
            return True
        return False

    def _nominate(self, pod: Pod, node: str | None) -> None:
        metadata = pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "status": {"nominatedNodeName": node}}
        self._server.patch("pods", metadata.name, patch, metadata.namespace, subresource="status")

    def _bind(self, needs: PodInfo, state: NodeInfo) -> bool:
        metadata = needs.pod.metadata
        try:
            self._volumes.bind(needs.pod, state.node)
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
                "firstTimestamp": moment,
                "lastTimestamp": moment,
            },
        )


def choose(needs: PodInfo, nodes: dict[str, NodeInfo], further: Refusals = lambda _: []) -> tuple[NodeInfo | None, str]:
    """The node to bind to when each is looked at, or none and the reason as kube-scheduler words it."""
    nominated = nodes.get(needs.pod.status.nominated_node_name)
    if nominated is not None and not refusals(needs, nominated) and not further(nominated):
        return nominated, ""
    reasons: Counter[str] = Counter()
    fitting = []
    for state in nodes.values():
        refused = refusals(needs, state) or further(state)
        reasons.update(refused)
        if not refused:
            fitting.append(state)
    return (best(needs, fitting), "") if fitting else (None, worded(reasons, len(nodes)))


def victims(
    needs: PodInfo, nodes: dict[str, NodeInfo], violates: Callable[[Pod], bool], further: Refusals = lambda _: []
) -> tuple[NodeInfo, list[PodInfo]] | None:
    """The node on which a pod fits once some of lower priority are gone, and these; None if there is none.

    Of several nodes that whose pods break the fewest budgets, then whose most important one matters least, then whose
    priorities are the least together, then the one with the fewest.
    """
    found = []
    for name, state in sorted(nodes.items()):
        pods = _victims_on(needs, state, violates)
        if pods and not further(state):
            priorities = [victim.pod.spec.priority for victim in pods]
            broken = sum(violates(victim.pod) for victim in pods)
            found.append(((broken, max(priorities), sum(priorities), len(pods), name), state, pods))
    if not found:
        return None
    _, state, pods = min(found, key=lambda item: item[0])
    return state, pods


def _victims_on(needs: PodInfo, state: NodeInfo, violates: Callable[[Pod], bool]) -> list[PodInfo]:
    """Without which pods of lower priority the pod would fit; none if it would not, even without all of them.

    All go at first. Then as many as possible stay, those first that a budget protects or that matter more.
    """
    priority = needs.pod.spec.priority
    lower = [other for other in state.pods if other.pod.spec.priority < priority]
    staying = [other for other in state.pods if other.pod.spec.priority >= priority]
    if not lower or refusals(needs, _with_pods(state, staying)):
        return []
    leaving = []
    for other in sorted(lower, key=lambda item: (not violates(item.pod), -item.pod.spec.priority, item.pod.key)):
        if refusals(needs, _with_pods(state, [*staying, other])):
            leaving.append(other)
        else:
            staying.append(other)
    return leaving


def _with_pods(state: NodeInfo, pods: list[PodInfo]) -> NodeInfo:
    other = NodeInfo(state.node, state.allocatable, nominated=state.nominated)
    for pod in pods:
        other.add(pod)
    return other


def worded(reasons: Counter[str], nodes: int) -> str:
    """Return why none of so many nodes takes a pod; `reasons` counts the nodes by reason."""
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
