"""Domains that appear once a spread has been settled: of nodes that are launched later in the plan, for other pods.

A spread compares the nodes that its policies let it see, also those that its own pods cannot use: whatever their labels
are with `nodeAffinityPolicy: Ignore`, whatever their taints are with `nodeTaintsPolicy: Ignore`, the default. An empty
node in one more zone lowers the least count, and pods that were planned before it could not be bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.topology.domains import Domains
from shiplap.scheduling.topology.topology_counts import ExpectedDomains, NodesOfSpread, TopologyCounts, nodes_of_spread


def joined(known: ExpectedDomains, late: ExpectedDomains) -> ExpectedDomains:
    """The known domains and the late ones."""
    none = frozenset[str]()
    return {key: known.get(key, none) | late.get(key, none) for key in {**known, **late}}


def late_domains(placed: Iterable[PodClass], domains: Domains, counts: TopologyCounts) -> ExpectedDomains:
    """The domains that would have changed how the spreads of these classes were settled.

    A claim whose domain is settled only at its launch brings none: it may turn out where nodes are anyway.

    Args:
        placed: classes with a pod on a node or claim.
        domains: those of the packing.
        counts: what it has placed.
    """
    found: dict[tuple[NodesOfSpread, str], set[str]] = {}
    seen: dict[tuple[NodesOfSpread, Spread], _Beside] = {}
    for pod_class in placed:
        for spread in pod_class.constraints.spreads:
            nodes = nodes_of_spread(pod_class, spread)
            if (nodes, spread) not in seen:
                seen[nodes, spread] = _beside(pod_class, spread, counts)
            beside = seen[nodes, spread]
            late = _late(pod_class, spread, beside, domains) if beside.is_uneven else frozenset[int]()
            if late:
                values = counts.values(spread.key)
                found.setdefault((nodes, spread.key), set()).update(values[code] for code in late)
    return {key: frozenset(values) for key, values in found.items()}


class _Beside(msgspec.Struct, frozen=True, eq=False):
    """The domains of a spread that are known beforehand, those that claims have brought, and the counts [values].

    `is_uneven`: with all of these domains the skew would be too large, unless those that no pod of the spread can use
    stay away.
    """

    known: frozenset[int] = frozenset()
    brought: frozenset[int] = frozenset()
    counts: Ints = np.zeros(0, np.int64)
    is_uneven: bool = False


_EVEN = _Beside()


def _beside(pod_class: PodClass, spread: Spread, counts: TopologyCounts) -> _Beside:
    if spread.key == HOSTNAME:
        return _EVEN
    known = {*counts.on_nodes(pod_class, spread), *counts.expected_codes(pod_class, spread)}
    brought = counts.on_open_claims(pod_class, spread) - known
    per_domain = counts.spread(pod_class, spread)[0]
    uneven = bool(brought) and max(per_domain.tolist()) - _least(per_domain, brought) > spread.max_skew
    return _Beside(frozenset(known), frozenset(brought), per_domain, uneven)


def _late(pod_class: PodClass, spread: Spread, beside: _Beside, domains: Domains) -> frozenset[int]:
    """The domains that a class could not have reckoned with; none if one that it did has as few pods."""
    launchable = domains.launchable(pod_class, spread.key)
    late, known = beside.brought.difference(launchable), beside.known.union(launchable)
    if not late or not known:
        return frozenset()
    return late if _least(beside.counts, late) < _least(beside.counts, known) else frozenset()


def _least(counts: Ints, domains: Iterable[int]) -> int:
    """The least count of some domains; one that was numbered after the counting has no pods."""
    return min(int(counts[code]) if code < len(counts) else 0 for code in domains)
