"""kube-scheduler's default scores: which of the nodes that fit it prefers.

LeastAllocated and BalancedAllocation spread pods over the emptiest nodes; preferred node affinity and PreferNoSchedule
taints weigh in. The weights are the defaults of its profile.
"""

from __future__ import annotations

from math import sqrt

from shiplap.kubernetes.affinity import term_matches
from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.kubernetes.taints import tolerates
from shiplap.local.kube.fit import NodeState, PodNeeds

_MAX = 100
_WEIGHT_TAINTS = 3
_WEIGHT_AFFINITY = 2


def best(needs: PodNeeds, fitting: list[NodeState]) -> NodeState:
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


def least_allocated(needs: PodNeeds, state: NodeState) -> int:
    """0 to 100: the mean share of cpu and memory that stays free."""
    shares = []
    for resource in (CPU, MEMORY):
        allocatable = state.allocatable.get(resource, 0)
        if allocatable:
            free = allocatable - state.scored.get(resource, 0) - needs.scored[resource]
            shares.append(max(0, free) * _MAX // allocatable)
    return sum(shares) // len(shares) if shares else 0


def balanced_allocation(needs: PodNeeds, state: NodeState) -> int:
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


def _preferred_affinity(needs: PodNeeds, state: NodeState) -> int:
    affinity = needs.pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return 0
    return sum(term.weight for term in affinity.node_affinity.preferred if term_matches(term.preference, state.node))


def _intolerable_preferences(needs: PodNeeds, state: NodeState) -> int:
    return sum(
        taint.effect == "PreferNoSchedule" and not any(tolerates(known, taint) for known in needs.pod.spec.tolerations)
        for taint in state.node.spec.taints
    )
