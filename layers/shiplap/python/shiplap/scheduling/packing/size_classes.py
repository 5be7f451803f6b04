"""Size classes: pod classes that differ only in size, so that tier and domain are decided once for all of them.

How many pods of each size class go to which domain is computed in closed form. Order: pods that follow their own kind
(one domain for all), pods that keep apart, spread pods and the pods spreads count (filled level, so that the counts end
even whatever order the pods bind in), followers of others, and last the pods free to go anywhere: by load, those that
want a node each in proportion to it, so that they share nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.preferences import NO_PREFERENCES
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.topology_constraints import Spread, Terms
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.followers import starts_series
from shiplap.scheduling.topology.topology_counts import TopologyCounts

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


class TierDemand(msgspec.Struct, eq=False):
    """The part of a size class that one template takes.

    `counts` [classes] are the pods of the classes at `indexes` [classes] in the waiting list. `domains` are the values
    of `key` that a node of the template can have and all of the pods fit in. `weight` is the mean request of one pod,
    as a share of all requests. `reachable` are the domains in which any template can launch a node for such pods.
    `quotas` is the outcome.
    """

    size_class: SizeClass
    template: NodeClaimTemplate
    key: str
    indexes: Ints
    counts: Ints
    domains: tuple[str, ...]
    reachable: frozenset[str]
    weight: float
    quotas: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def number(self) -> int:
        """How many pods there are."""
        return int(self.counts.sum())

    @property
    def needs_domain(self) -> bool:
        """Whether the domain of these pods matters; other pods may go to any domain."""
        return bool(self.size_class.key)


class DomainQuotas:
    """Decides for all demands of one key; `demands` come in placing order."""

    def __init__(self, key: str, demands: Sequence[TierDemand], topology_counts: TopologyCounts) -> None:
        self._key = key
        self._tier_demands = demands
        self._topology_counts = topology_counts
        self._base: dict[tuple[int, bool], dict[str, int]] = {}
        self._certain: dict[int, dict[str, int]] = {}
        self._added: dict[tuple[int, bool], dict[str, int]] = {}
        self._load: dict[str, float] = {}
        self._spread_terms = {spread.term for demand in demands for spread in demand.size_class.spreads}

    def run(self) -> list[TierDemand]:
        """The demands whose pods all got a domain; `pack` places the others one by one."""
        settled = []
        for _, demand in sorted(enumerate(self._tier_demands), key=lambda pair: (*self._rank(pair[1]), pair[0])):
            quotas = self._quotas(demand)
            if sum(quotas.values()) == demand.number:
                demand.quotas = quotas
                self._record(demand, 1)
                settled.append(demand)
        return self._without_uneven(settled)

    def _rank(self, demand: TierDemand) -> tuple[int, int, int]:
        size_class = demand.size_class
        follows = [term for term in size_class.affinity if term not in size_class.selected]
        if not demand.needs_domain:
            order = 6 if any(rule.term in size_class.selected for rule in size_class.owns) else 5
        elif follows:
            order = 4
        elif size_class.affinity:
            order = 0
        elif size_class.anti or size_class.selected & self._topology_counts.terms.anti:
            order = 1
        else:
            order = 2 if size_class.spreads else 3
        return (order, len(demand.domains), -demand.number)

    def _quotas(self, demand: TierDemand) -> dict[str, int]:
        size_class, number = demand.size_class, demand.number
        allowed = [value for value in demand.domains if not self._closed(demand, value)]
        for term in size_class.affinity:
            if term not in size_class.selected or self._has_any(term):
                allowed = [value for value in allowed if self._certain_count(term, value)]
        if not allowed:
            return {}
        if any(term in size_class.selected for term in size_class.anti):
            return dict.fromkeys(allowed[:number], 1)
        if size_class.affinity:
            one = min(allowed, key=lambda value: (self._load.get(value, 0.0), value))
            return {one: number}
        level = sorted(size_class.selected & self._spread_terms)
        if level:
            base = [sum(self._count(term, value) for term in level) for value in allowed]
            return _positive(allowed, water_fill(base, number))
        return self._by_load(demand, allowed)

    def _by_load(self, demand: TierDemand, allowed: Sequence[str]) -> dict[str, int]:
        """Quotas of pods that no spread counts."""
        loads = [self._load.get(value, 0.0) for value in allowed]
        spreads = demand.size_class.spreads
        if spreads and not any(
            self._topology_counts.terms.all[term].key == self._key for term in demand.size_class.selected
        ):
            # They keep every balance wherever it allows them, and together they need fewer nodes.
            counts = [sum(self._count(spread.term, value) for spread in spreads) for value in allowed]
            best = min(range(len(allowed)), key=lambda index: (counts[index], -loads[index], allowed[index]))
            return {allowed[best]: demand.number}
        if self._rank(demand)[0] == 6 and sum(loads) > 0:
            return _positive(allowed, in_proportion(loads, demand.number))
        each = max(demand.weight, 1e-12)
        return _positive(allowed, water_fill([round(load / each) for load in loads], demand.number))

    def _closed(self, demand: TierDemand, value: str) -> bool:
        """Whether anti-affinity, of these pods or of others, keeps them out of a domain."""
        avoided = demand.size_class.selected & self._topology_counts.terms.anti
        return any(self._count(term, value) for term in demand.size_class.anti) or any(
            self._count(term, value, keeping=True)
            for term in avoided
            if self._topology_counts.terms.all[term].key == self._key
        )

    def _has_any(self, term: int) -> bool:
        """Whether pods that a term counts are anywhere: then no other pod may be the first of them."""
        given = self._added.get((term, False), {})
        return any(given.values()) or self._topology_counts.begun(term)

    def _certain_count(self, term: int, value: str) -> int:
        """The pods that a term counts and that are certain to be in a domain."""
        known = self._certain.get(term)
        if known is None:
            known = self._certain[term] = self._base_count(term, certain=True)
        return known.get(value, 0) + self._added.get((term, False), {}).get(value, 0)

    def _count(self, term: int, value: str, *, keeping: bool = False) -> int:
        key = (term, keeping)
        known = self._base.get(key)
        if known is None:
            known = self._base[key] = self._base_count(term, keeping=keeping)
            self._added.setdefault(key, {})
        return known.get(value, 0) + self._added[key].get(value, 0)

    def _base_count(self, term: int, *, keeping: bool = False, certain: bool = False) -> dict[str, int]:
        if not self._topology_counts.base.nodes:
            return {}
        totals = self._topology_counts.totals(term, self._key, keeping=keeping, certain=certain).tolist()
        return dict(zip(self._topology_counts.values(self._key), totals, strict=True))

    def _record(self, demand: TierDemand, sign: int) -> None:
        for keys, keeping in ((demand.size_class.selected, False), (demand.size_class.anti, True)):
            for term in keys:
                added = self._added.setdefault((term, keeping), {})
                for value, number in demand.quotas.items():
                    added[value] = added.get(value, 0) + sign * number
        for value, number in demand.quotas.items():
            self._load[value] = self._load.get(value, 0.0) + sign * number * demand.weight

    def _without_uneven(self, settled: list[TierDemand]) -> list[TierDemand]:
        """The demands whose spread constraints the outcome keeps."""
        while True:
            uneven = [
                demand
                for demand in settled
                if not all(self._keeps_spread(demand, s, settled) for s in demand.size_class.spreads)
            ]
            if not uneven:
                return settled
            for demand in uneven:
                self._record(demand, -1)
            dropped = set(map(id, uneven))
            settled = [demand for demand in settled if id(demand) not in dropped]

    def _keeps_spread(self, demand: TierDemand, spread: Spread, settled: Sequence[TierDemand]) -> bool:
        if not self._comparable(demand, spread, settled):
            return False
        counts: dict[str, int] = {}
        domains = set(demand.reachable)
        if self._topology_counts.base.nodes:
            standing, present = self._topology_counts.spread(demand.size_class.attempt.pod_class, spread)
            values = self._topology_counts.values(self._key)
            counts = dict(zip(values, standing.tolist(), strict=True))
            domains |= {value for value, has in zip(values, present.tolist(), strict=True) if has}
        added = self._added.get((spread.term, False), {})
        final = {value: counts.get(value, 0) + added.get(value, 0) for value in domains}
        lowest = min(final.values(), default=0) if len(final) >= spread.min_domains else 0
        return all(final.get(value, 0) - lowest <= spread.max_skew for value in demand.quotas)

    def _comparable(self, demand: TierDemand, spread: Spread, settled: Sequence[TierDemand]) -> bool:
        """Whether the constraint counts all nodes of each domain chosen for its pods, or none."""
        mine = demand.size_class.attempt.pod_class
        narrow = spread.honor_affinity and any(set(term) - {self._key} for term in mine.own_terms)
        if not narrow and not spread.honor_taints:
            return True
        others = [other.size_class.attempt.pod_class for other in settled if spread.term in other.size_class.selected]
        return all(
            (not narrow or other.own_terms == mine.own_terms)
            and (not spread.honor_taints or other.tolerations == mine.tolerations)
            for other in others
        )


def water_fill(base: Sequence[int], number: int) -> list[int]:
    """How much each level gets when `number` is poured over `base`; the remainder goes to the first lowest levels."""
    order = sorted(range(len(base)), key=lambda index: (base[index], index))
    added = [0] * len(base)
    wet, level = 0, base[order[0]]
    left = number
    while left:
        while wet < len(order) and base[order[wet]] <= level:
            wet += 1
        rise = base[order[wet]] - level if wet < len(order) else left
        rise = min(rise, left // wet)
        if rise == 0:
            for index in sorted(order[:wet])[:left]:
                added[index] += 1
            break
        for index in order[:wet]:
            added[index] += rise
        level += rise
        left -= rise * wet
    return added


def in_proportion(loads: Sequence[float], number: int) -> list[int]:
    """Whole shares of `number` in proportion to loads, by largest remainder; ties go to the first."""
    total = sum(loads)
    exact = [number * load / total for load in loads]
    shares = [int(share) for share in exact]
    order = sorted(range(len(loads)), key=lambda index: (shares[index] - exact[index], index))
    for index in order[: number - sum(shares)]:
        shares[index] += 1
    return shares


def _positive(values: Sequence[str], numbers: Sequence[int]) -> dict[str, int]:
    return {value: number for value, number in zip(values, numbers, strict=True) if number}


def split_by_quotas(quotas: Sequence[Sequence[int]], counts: Sequence[Ints]) -> list[Ints]:
    """Classes split between problems so that each problem gets an even mix of sizes.

    Args:
        quotas: per demand, how many pods each of its problems gets.
        counts: per demand, the pods of each of its classes [classes], in placing order.

    Returns:
        Per demand, [classes, problems].
    """
    result: list[Ints] = []
    for turn, (shares, sizes) in enumerate(zip(quotas, counts, strict=True)):
        if len(shares) == 1:
            result.append(sizes[:, None].copy())
            continue
        numbers = np.array(shares, np.int64)
        width = len(numbers)
        column = np.repeat(np.arange(width), numbers)
        rank = np.arange(len(column)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        where = (rank + 0.5 + 1e-3 * ((column + turn) % width)) / numbers[column]
        sequence = column[np.argsort(where, kind="stable")]
        owner = np.repeat(np.arange(len(sizes)), sizes)
        flat = np.bincount(owner * width + sequence, minlength=len(sizes) * width)
        result.append(flat.reshape(len(sizes), width).astype(np.int64))
    return result


def fits_front(sizes: Ints, front: Ints) -> Bools:
    """Which sizes [sizes, resources] some row of a front [rows, resources] holds."""
    return np.array((front[None, :, :] >= sizes[:, None, :]).all(axis=2).any(axis=1), np.bool_)
