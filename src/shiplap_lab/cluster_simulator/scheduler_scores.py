"""kube-scheduler's default scores: which of the nodes that fit it prefers.

LeastAllocated and BalancedAllocation spread pods over the emptiest nodes; preferred node affinity and PreferNoSchedule
taints weigh in. The weights are the defaults of its profile.

Ranks are kept per shape of pod from step to step, and only changed nodes are ranked again. The choice is the same as if
every node were scored for every pod, but fast enough for thousands of nodes.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from math import sqrt

from msgspec.structs import replace

from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.kubernetes.selectors import term_matches
from shiplap.kubernetes.taints import tolerates
from shiplap_lab.cluster_simulator.scheduler_filters import NodeInfo, PodInfo, refusals

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
