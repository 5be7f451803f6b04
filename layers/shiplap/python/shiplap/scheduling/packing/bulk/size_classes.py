"""Size classes: pod classes that differ only in size, so that tier and domain are decided once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.preferences import NO_PREFERENCES
from shiplap.scheduling.model.topology_constraints import Spread, Terms
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.topology.followers import starts_series

Waiting = Sequence[tuple[PodClass, list[Pod]]]
"""Classes in placing order, each with its pods that have no place yet."""


class NodeRule(msgspec.Struct, frozen=True, order=True):
    """A node that holds a pod subject to the rule holds at most `most` pods that `term` counts."""

    term: int
    most: int


class SizeClass(msgspec.Struct, eq=False):
    """Pod classes that differ only in size, by their indexes in the waiting list, in placing order.

    `attempt` is the first attempt of the first of them. `key` is the one label other than the hostname whose domain has
    to be decided for them, empty when there is none; `spreads`, `affinity` and `anti` are their constraints over it.
    `owns` are the rules they bring to a node.
    """

    attempt: PlacementAttempt
    key: str
    spreads: tuple[Spread, ...]
    affinity: tuple[int, ...]
    anti: tuple[int, ...]
    owns: tuple[NodeRule, ...]
    indexes: list[int] = msgspec.field(default_factory=list)

    @property
    def selected(self) -> frozenset[int]:
        """The terms that count these pods."""
        return self.attempt.pod_class.selected

    def binds(self, terms: Terms) -> bool:
        """Whether a domain of `key` may be closed to these pods; otherwise they are merely counted there."""
        avoided = (term for term in self.selected & terms.anti if terms.all[term].key != HOSTNAME)
        return bool(self.spreads or self.affinity or self.anti or next(avoided, None) is not None)


def size_classes_of(waiting: Waiting, attempts: PlacementAttempts, terms: Terms) -> list[SizeClass]:
    """The size classes that the bulk stage understands, by their first class; other classes belong to none.

    Pods that require others of their own kind are understood if all of them are in one size class. Otherwise the domain
    in which they start depends on several size classes.
    """
    known: dict[object, SizeClass | None] = {}
    quick: dict[tuple[int, ...], SizeClass | None] = {}
    for index, (pod_class, _) in enumerate(waiting):
        # Classes made of one pod specification share these objects, and comparing them by value is not free.
        same = (
            id(pod_class.terms),
            id(pod_class.own_terms),
            id(pod_class.tolerations),
            id(pod_class.ports),
            id(pod_class.constraints),
            id(pod_class.preferences),
            id(pod_class.selected),
            id(pod_class.volumes),
            pod_class.missed,
        )
        if same in quick:
            size_class = quick[same]
        else:
            identity = _identity(pod_class)
            if identity not in known:
                known[identity] = _size_class(pod_class, attempts, terms)
            size_class = quick[same] = known[identity]
        if size_class is not None:
            size_class.indexes.append(index)
    understood = [size_class for size_class in known.values() if size_class is not None]
    series = {
        term: len(size_class.indexes)
        for size_class in understood
        if starts_series(size_class.attempt.pod_class)
        for term in size_class.affinity
    }
    series |= {
        term: 0
        for pod_class, _ in waiting
        if starts_series(pod_class)
        for term in pod_class.constraints.affinity
        if term not in series
    }
    starting = frozenset(series)
    counted = Counter(term for pod_class, _ in waiting for term in pod_class.selected & starting)
    mixed = {term for term, alike in series.items() if counted[term] != alike}
    return [size_class for size_class in understood if size_class.selected.isdisjoint(mixed)]


def _identity(pod_class: PodClass) -> object:
    return (
        pod_class.terms,
        pod_class.own_terms,
        pod_class.tolerations,
        pod_class.ports,
        pod_class.constraints,
        pod_class.preferences,
        pod_class.selected,
        pod_class.volumes.private,
        pod_class.volumes.shared,
        pod_class.missed,
    )


def _size_class(pod_class: PodClass, attempts: PlacementAttempts, terms: Terms) -> SizeClass | None:
    """None: pods with preferences, that follow others onto one node, or that bind several labels at once."""
    if pod_class.preferences != NO_PREFERENCES:
        return None
    demands = pod_class.constraints
    keys = {terms.all[term].key for term in (*pod_class.selected, *demands.affinity, *demands.anti)}
    keys |= {spread.key for spread in demands.spreads}
    keys.discard(HOSTNAME)
    if len(keys) > 1 or any(terms.all[term].key == HOSTNAME for term in demands.affinity):
        return None
    owns = {NodeRule(spread.term, spread.max_skew) for spread in demands.spreads if spread.key == HOSTNAME}
    owns |= {
        NodeRule(term, int(term in pod_class.selected)) for term in demands.anti if terms.all[term].key == HOSTNAME
    }
    return SizeClass(
        attempts.of(pod_class)[0],
        next(iter(keys), ""),
        tuple(spread for spread in demands.spreads if spread.key != HOSTNAME),
        demands.affinity,
        tuple(term for term in demands.anti if terms.all[term].key != HOSTNAME),
        tuple(sorted(owns)),
    )
