"""Which node a kube-scheduler prefers for pods of one shape, kept from step to step: only nodes that changed are judged
again. It chooses what looking at every node for every pod would choose, in time that thousands of nodes allow."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from msgspec.structs import replace

from shiplap.local.kube.fit import NodeState, PodNeeds, refusals
from shiplap.local.kube.score import balanced_allocation, least_allocated

_MOST_SHAPES = 2000
_LONGEST_LOG = 200_000


class Rankings:
    """The nodes of a cluster as pods of each shape see them. `nodes` is shared; who changes one says so."""

    def __init__(self, nodes: dict[str, NodeState]) -> None:
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

    def of(self, needs: PodNeeds) -> tuple[NodeState | None, Counter[str]]:
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

    def __init__(self, needs: PodNeeds) -> None:
        pod = needs.pod
        self.read = 0
        self.reasons: Counter[str] = Counter()
        # Nobody in particular: the room a pod of this shape is promised somewhere is no room for its like.
        self._needs = replace(needs, pod=replace(pod, metadata=replace(pod.metadata, uid="")))
        self._refused: dict[str, list[str]] = {}
        self._rank: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def judge(self, names: dict[str, NodeState] | dict[str, None], nodes: dict[str, NodeState]) -> None:
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

    def best(self, nodes: dict[str, NodeState]) -> NodeState | None:
        while self._heap:
            rank, name = self._heap[0]
            if self._rank.get(name) == rank:
                return nodes[name]
            heappop(self._heap)
        return None
