"""Spreads that count pods which were placed after those that they bind, and that these pods have made uneven.

kube-scheduler may bind any of these pods first: those of the spread bind nowhere once the others are there. Orders in
which counted pods go first leave such spreads only where classes count each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.supply.open_claims import OpenClaim
from shiplap.scheduling.topology.domains import Domains
from shiplap.scheduling.topology.topology_counts import TopologyCounts

Homes = tuple[set[int], set[int]]
"""The nodes and the claims that hold pods of a class."""


def any_crowded(
    classes: Iterable[PodClass],
    claims: Iterable[OpenClaim],
    nodes: Iterable[Sequence[Pod]],
    domains: Domains,
    counts: TopologyCounts,
) -> bool:
    """True if a spread would not let its pods bind after all others, which were placed on these claims and nodes."""
    concerned = list(_counting_others(classes))
    if not concerned:
        return False
    class_of = {id(pod): pod_class.index for pod_class, _ in concerned for pod in pod_class.members}
    homes: dict[int, Homes] = {pod_class.index: (set(), set()) for pod_class, _ in concerned}
    for place, pods in enumerate(nodes):
        for index in {class_of[id(pod)] for pod in pods if id(pod) in class_of}:
            homes[index][0].add(place)
    for place, claim in enumerate(claims):
        for pod_class, _ in claim.pods:
            if pod_class.index in homes:
                homes[pod_class.index][1].add(place)
    return any(
        _is_crowded(pod_class, spread, homes[pod_class.index], domains, counts)
        for pod_class, spread in concerned
        if any(homes[pod_class.index])
    )


def _counting_others(classes: Iterable[PodClass]) -> Iterator[tuple[PodClass, Spread]]:
    """The classes with each of their spreads that counts pods which it does not bind, or does not count its own."""
    listed = list(classes)
    bound = [{spread.term for spread in pod_class.constraints.spreads} for pod_class in listed]
    terms = set[int]().union(*bound)
    unbound: set[int] = set()
    for pod_class, own in zip(listed, bound, strict=True):
        unbound |= (pod_class.selected & terms) - own
    for pod_class in listed:
        for spread in pod_class.constraints.spreads:
            if spread.term in unbound or spread.term not in pod_class.selected:
                yield pod_class, spread


def _is_crowded(pod_class: PodClass, spread: Spread, homes: Homes, domains: Domains, counts: TopologyCounts) -> bool:
    on_nodes, on_claims = (np.array(sorted(places), np.int64) for places in homes)
    if spread.key == HOSTNAME:  # a new node is always possible, so that the lowest count is 0
        here: Ints = np.concatenate(
            [counts.on_nodes_of(spread.term)[on_nodes], counts.on_claims(spread.term)[on_claims]]
        )
        return bool((here > spread.max_skew).any())
    launchable = domains.launchable(pod_class, spread.key)
    per_domain, present = counts.spread(pod_class, spread)
    present[launchable] = True
    enough = int(present.sum()) >= max(spread.min_domains, 1)
    lowest = min(per_domain[present].tolist(), default=0) if enough else 0
    codes = np.concatenate([counts.node_codes(spread.key)[on_nodes], counts.claim_codes(spread.key)[on_claims]])
    return bool((per_domain[codes[codes >= 0]] - lowest > spread.max_skew).any())
