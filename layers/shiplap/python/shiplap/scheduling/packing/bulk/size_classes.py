"""Shapes: classes that differ in nothing but their size, so that tier and domain are decided once for all of them."""

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
from shiplap.scheduling.topology.followers import starts

Waiting = Sequence[tuple[PodClass, list[Pod]]]
"""Classes in placing order, each with those of its pods that have no place yet."""


class NodeRule(msgspec.Struct, frozen=True, order=True):
    """A node that holds a pod subject to the rule holds at most `most` pods that `term` counts."""

    term: int
    most: int


class SizeClass(msgspec.Struct, eq=False):
    """Classes alike but for their size, by their places in the waiting list, in placing order.

    `attempt` is the first attempt of the first of them. `key` is the one label other than the hostname whose domain has
    to be settled for them, empty when there is none; `spreads`, `affinity` and `anti` are their constraints over it.
    `owns` are the rules they bring to a node.
    """

    attempt: PlacementAttempt
    key: str
    spreads: tuple[Spread, ...]
    affinity: tuple[int, ...]
    anti: tuple[int, ...]
    owns: tuple[NodeRule, ...]
    places: list[int] = msgspec.field(default_factory=list)

    @property
    def selected(self) -> frozenset[int]:
        """The terms that count these pods."""
        return self.attempt.pod_class.selected

    def binds(self, terms: Terms) -> bool:
        """Whether a domain of `key` may be closed to these pods; otherwise they are merely counted there."""
        avoided = (term for term in self.selected & terms.anti if terms.all[term].key != HOSTNAME)
        return bool(self.spreads or self.affinity or self.anti or next(avoided, None) is not None)


def size_classes_of(waiting: Waiting, attempts: PlacementAttempts, terms: Terms) -> list[SizeClass]:
    """The shapes the bulk stage understands, by their first class; other classes belong to none.

    A series of pods that require their own kind is understood if it is one shape: where there are others, it depends on
    all of them where it starts.
    """
    known: dict[object, SizeClass | None] = {}
    quick: dict[tuple[int, ...], SizeClass | None] = {}
    for place, (item, _) in enumerate(waiting):
        # Classes made of one pod specification share these objects, and comparing them by value is not free.
        same = (
            id(item.terms),
            id(item.own_terms),
            id(item.tolerations),
            id(item.ports),
            id(item.constraints),
            id(item.preferences),
            id(item.selected),
            id(item.volumes),
            item.missed,
        )
        if same in quick:
            shape = quick[same]
        else:
            identity = _identity(item)
            if identity not in known:
                known[identity] = _size_class(item, attempts, terms)
            shape = quick[same] = known[identity]
        if shape is not None:
            shape.places.append(place)
    understood = [shape for shape in known.values() if shape is not None]
    series = {
        term: len(shape.places) for shape in understood if starts(shape.attempt.pod_class) for term in shape.affinity
    }
    series |= {
        term: 0 for item, _ in waiting if starts(item) for term in item.constraints.affinity if term not in series
    }
    counted = Counter(term for item, _ in waiting for term in item.selected & series.keys()) if series else {}
    mixed = {term for term, alike in series.items() if counted[term] != alike}
    return [shape for shape in understood if shape.selected.isdisjoint(mixed)]


def _identity(item: PodClass) -> object:
    return (
        item.terms,
        item.own_terms,
        item.tolerations,
        item.ports,
        item.constraints,
        item.preferences,
        item.selected,
        item.volumes.private,
        item.volumes.shared,
        item.missed,
    )


def _size_class(item: PodClass, attempts: PlacementAttempts, terms: Terms) -> SizeClass | None:
    """None: pods with preferences, that follow others on one node, or that bind several labels at once."""
    if item.preferences != NO_PREFERENCES:
        return None
    demands = item.constraints
    keys = {terms.all[term].key for term in (*item.selected, *demands.affinity, *demands.anti)}
    keys |= {spread.key for spread in demands.spreads}
    keys.discard(HOSTNAME)
    if len(keys) > 1 or any(terms.all[term].key == HOSTNAME for term in demands.affinity):
        return None
    owns = {NodeRule(spread.term, spread.max_skew) for spread in demands.spreads if spread.key == HOSTNAME}
    owns |= {NodeRule(term, int(term in item.selected)) for term in demands.anti if terms.all[term].key == HOSTNAME}
    return SizeClass(
        attempts.of(item)[0],
        next(iter(keys), ""),
        tuple(spread for spread in demands.spreads if spread.key != HOSTNAME),
        demands.affinity,
        tuple(term for term in demands.anti if terms.all[term].key != HOSTNAME),
        tuple(sorted(owns)),
    )
