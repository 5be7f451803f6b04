"""Domains that appear once a spread has been settled: of nodes that are launched later in the plan, for other pods.

A spread compares the nodes that its policies let it see, also those that its own pods cannot use: whatever their labels
are with `nodeAffinityPolicy: Ignore`, whatever their taints are with `nodeTaintsPolicy: Ignore`, the default. An empty
node in one more zone lowers the least count, and pods that were planned before it could not be bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.topology.domains import Domains
from shiplap.scheduling.topology.topology_counts import ExpectedDomains, NodesOfSpread, TopologyCounts, nodes_of_spread


class LateDomains(msgspec.Struct, frozen=True):
    """The domains that spreads have to reckon with; `is_certain` unless a claim's domain is settled at its launch."""

    expected: ExpectedDomains = {}
    is_certain: bool = True

    def added_to(self, known: ExpectedDomains) -> ExpectedDomains:
        """These and those that are known."""
        none = frozenset[str]()
        return {key: known.get(key, none) | self.expected.get(key, none) for key in {**known, **self.expected}}


NO_LATE_DOMAINS = LateDomains()


def late_domains(
    placed: Iterable[tuple[PodClass, PlacementAttempt]], domains: Domains, counts: TopologyCounts
) -> LateDomains:
    """The domains that would have changed how the spreads of these classes were settled.

    Args:
        placed: classes with a pod on a node or claim, each with an attempt to place it.
        domains: those of the packing.
        counts: what it has placed.
    """
    found: dict[tuple[NodesOfSpread, str], set[str]] = {}
    is_certain = True
    for pod_class, attempt in placed:
        for spread in pod_class.constraints.spreads:
            late = _late(pod_class, attempt, spread, domains, counts) if spread.key != HOSTNAME else None
            if late is not None:
                codes, settled = late
                is_certain &= codes <= settled
                values = counts.values(spread.key)
                key = (nodes_of_spread(pod_class, spread), spread.key)
                found.setdefault(key, set()).update(values[code] for code in codes)
    return (
        LateDomains({key: frozenset(values) for key, values in found.items()}, is_certain) if found else NO_LATE_DOMAINS
    )


def _late(
    pod_class: PodClass, attempt: PlacementAttempt, spread: Spread, domains: Domains, counts: TopologyCounts
) -> tuple[set[int], set[int]] | None:
    """The late domains of one spread and those of them that are settled; None if they change nothing."""
    settled, possible = counts.on_open_claims(pod_class, spread)
    known = {
        *domains.launchable(attempt, spread.key),
        *counts.on_nodes(pod_class, spread),
        *counts.expected_codes(pod_class, spread),
    }
    late = (settled | possible) - known
    if not late or not known:
        return None
    per_domain = counts.spread(pod_class, spread)[0]
    return (late, settled) if min(per_domain[list(late)]) < min(per_domain[list(known)]) else None
