"""Size classes: pod classes that differ only in size, so that tier and domain are decided once for all of them.

How many pods of each size class go to which domain is computed in closed form. Order: pods that follow their own kind
(one domain for all), pods that keep apart, spread pods and the pods spreads count (filled level, so that the counts end
even whatever order the pods bind in), followers of others, and last the pods free to go anywhere: by load, those that
want a node each in proportion to it, so that they share nodes. Pods that may choose get the domains in which they cost
least: some zones sell few types.
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
from shiplap.scheduling.topology.topology_counts import TopologyCounts

Waiting = Sequence[tuple[PodClass, list[Pod]]]
"""Classes in placing order, each with its pods that have no place yet."""

_MOST_ROUNDS = 4
"""Times that size classes are left to be placed one by one for others that are."""

_NO_COUNTS: Ints = np.zeros(0, np.int64)


class NodeRule(msgspec.Struct, frozen=True, order=True):
    """A node that holds a pod subject to the rule holds at most `most` pods that `term` counts."""

    term: int
    most: int


class SizeClass(msgspec.Struct, eq=False):
    """Pod classes that differ only in size; then the part of them that goes to one template, and to one domain of it.

    `indexes` [classes] are their places in the waiting list, in placing order. `attempt` is the first attempt of the
    first of them, pinned once their domain is known; `selected` are the terms that count them. `templates` may take
    them; just one, once their tier is known, and from then on `counts` [classes] are their pods, `number` is how many
    there were at first, and `average` [resources] is the mean request of one pod, `weight` the same as a share of all
    requests.

    `key` is the one label other than the hostname whose domain has to be decided, empty when there is none; `spreads`,
    `affinity` and `anti` are their constraints over it. Where `needs_domain` is false, they may go to any domain.
    `domains` are the values of `key` that a node of the template can have and all of the pods fit in, the cheapest
    first, then by name. `prices` are USD per hour for an average pod there, as a part of a node; none where all domains
    cost the same. `reachable` are those in which any template allows a node for such pods, whatever limits leave.
    `quotas` is the outcome: the pods that go to each domain.

    `owns` are the rules they bring to a node. `counted_on_nodes`: some rule on nodes counts them, theirs or of others.
    """

    attempt: PlacementAttempt
    selected: frozenset[int]
    indexes: Ints
    templates: Sequence[NodeClaimTemplate]
    key: str
    needs_domain: bool
    spreads: tuple[Spread, ...]
    affinity: tuple[int, ...]
    anti: tuple[int, ...]
    owns: tuple[NodeRule, ...]
    counted_on_nodes: bool
    counts: Ints = _NO_COUNTS
    number: int = 0
    weight: float = 0.0
    average: Ints = _NO_COUNTS
    domains: tuple[str, ...] = ()
    prices: dict[str, float] = msgspec.field(default_factory=dict)
    reachable: frozenset[str] = frozenset()
    quotas: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_free(self) -> bool:
        """True if no constraint concerns these pods, neither their own nor a constraint of other pods."""
        return not self.owns and not self.selected and not self.needs_domain

    def cheapest(self, domains: Sequence[str]) -> Sequence[str]:
        """Return the domains among `domains` in which these pods cost least."""
        if not self.prices:
            return domains
        least = min(self.prices[value] for value in domains)
        return [value for value in domains if self.prices[value] <= least]

    def binds(self, terms: Terms) -> bool:
        """True if a domain of `key` may be closed to these pods; otherwise constraints merely count them there."""
        avoided = (term for term in self.selected & terms.anti if terms.all[term].key != HOSTNAME)
        return bool(self.spreads or self.affinity or self.anti or next(avoided, None) is not None)


def size_classes_of(
    waiting: Waiting, attempts: PlacementAttempts, terms: Terms, templates: Sequence[NodeClaimTemplate]
) -> list[SizeClass]:
    """The size classes that the bulk stage understands, by their first class; other classes belong to none.

    Pods that require others of their own kind are understood if all of them are in one size class. Otherwise the domain
    in which they start depends on several size classes.
    """
    alike = _alike_but_for_size(waiting)
    first = [attempts.of(waiting[indexes[0]][0])[0] for indexes in alike]
    made = (_size_class(indexes, attempt, terms, templates) for indexes, attempt in zip(alike, first, strict=True))
    understood = [size_class for size_class in made if size_class is not None]
    series = {
        term: len(size_class.indexes) for size_class in understood for term in size_class.attempt.pod_class.opening
    }
    series |= {term: 0 for pod_class, _ in waiting for term in pod_class.opening if term not in series}
    starting = frozenset(series)
    counted = Counter(term for pod_class, _ in waiting for term in pod_class.selected & starting)
    mixed = {term for term, number in series.items() if counted[term] != number}
    return _with_all_counted(
        [size_class for size_class in understood if size_class.selected.isdisjoint(mixed)], waiting
    )


def _with_all_counted(size_classes: list[SizeClass], waiting: Waiting) -> list[SizeClass]:
    """Size classes whose spreads count no pods that are placed later, unless a spread counts and binds both."""
    for _ in range(_MOST_ROUNDS):
        if not any(size_class.attempt.pod_class.constraints.spreads for size_class in size_classes):
            break
        here = {index for size_class in size_classes for index in size_class.indexes.tolist()}
        later: set[int] = set()
        unbound: set[int] = set()
        for index, (pod_class, _) in enumerate(waiting):
            if index not in here:
                later |= pod_class.selected
                unbound |= pod_class.selected.difference(spread.term for spread in pod_class.constraints.spreads)
        left = [
            size_class
            for size_class in size_classes
            if not any(
                spread.term in (unbound if spread.term in size_class.selected else later)
                for spread in size_class.attempt.pod_class.constraints.spreads
            )
        ]
        if len(left) == len(size_classes):
            break
        size_classes = left
    return size_classes


def _alike_but_for_size(waiting: Waiting) -> list[list[int]]:
    """The places of classes that differ only in size, by their first class."""
    found: dict[object, list[int]] = {}
    by_shape: dict[int, list[int]] = {}
    for index, (pod_class, _) in enumerate(waiting):
        # Comparing classes by value is not free, and most have a shape.
        shape = id(pod_class.shape or pod_class)
        alike = by_shape.get(shape)
        if alike is None:
            alike = by_shape[shape] = found.setdefault(_identity(pod_class), [])
        alike.append(index)
    return list(found.values())


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


def _size_class(
    indexes: list[int],
    attempt: PlacementAttempt,
    terms: Terms,
    templates: Sequence[NodeClaimTemplate],
) -> SizeClass | None:
    """None: pods with preferences, that follow others onto one node, or that bind several labels at once."""
    pod_class = attempt.pod_class
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
        attempt=attempt,
        selected=pod_class.selected,
        indexes=np.array(indexes, np.int64),
        templates=templates,
        key=next(iter(keys), ""),
        needs_domain=bool(keys),
        spreads=tuple(spread for spread in demands.spreads if spread.key != HOSTNAME),
        affinity=demands.affinity,
        anti=tuple(term for term in demands.anti if terms.all[term].key != HOSTNAME),
        owns=tuple(sorted(owns)),
        counted_on_nodes=bool(terms.over(HOSTNAME, pod_class.selected)),
    )


class DomainQuotas:
    """Decides for all size classes of one key, which come in placing order; each is of one template."""

    def __init__(self, key: str, size_classes: Sequence[SizeClass], topology_counts: TopologyCounts) -> None:
        self._key = key
        self._size_classes = size_classes
        self._topology_counts = topology_counts
        self._base: dict[tuple[int, bool], dict[str, int]] = {}
        self._certain: dict[int, dict[str, int]] = {}
        self._added: dict[tuple[int, bool], dict[str, int]] = {}
        self._load: dict[str, float] = {}
        self._spread_terms = {spread.term for size_class in size_classes for spread in size_class.spreads}

    def run(self) -> list[SizeClass]:
        """The size classes whose pods all got a domain; `pack` places the others one by one."""
        settled = []
        for _, size_class in sorted(enumerate(self._size_classes), key=lambda pair: (*self._rank(pair[1]), pair[0])):
            quotas = self._quotas(size_class)
            if sum(quotas.values()) == size_class.number:
                size_class.quotas = quotas
                self._record(size_class, 1)
                settled.append(size_class)
        return self._kept(settled)

    def _rank(self, size_class: SizeClass) -> tuple[int, int, int]:
        if not size_class.needs_domain:
            order = 6 if any(rule.term in size_class.selected for rule in size_class.owns) else 5
        elif any(term not in size_class.selected for term in size_class.affinity):
            order = 4
        elif size_class.affinity:
            order = 0
        elif size_class.anti or size_class.selected & self._topology_counts.terms.anti:
            order = 1
        else:
            order = 2 if size_class.spreads else 3
        return (order, len(size_class.domains), -size_class.number)

    def _quotas(self, size_class: SizeClass) -> dict[str, int]:
        number = size_class.number
        allowed: Sequence[str] = size_class.domains
        if size_class.anti or not size_class.selected.isdisjoint(self._topology_counts.terms.anti):
            allowed = [value for value in allowed if not self._closed(size_class, value)]
        for term in size_class.affinity:
            if term not in size_class.selected or self._has_any(term):
                allowed = [value for value in allowed if self._certain_count(term, value)]
        if not allowed:
            return {}
        if any(term in size_class.selected for term in size_class.anti):
            starting = any(term in size_class.selected and not self._has_any(term) for term in size_class.affinity)
            return dict.fromkeys(allowed[: 1 if starting else number], 1)  # others may only join the first
        level = sorted(size_class.selected & self._spread_terms)
        if not level and not size_class.spreads:
            allowed = size_class.cheapest(allowed)
        if size_class.affinity:
            one = min(allowed, key=lambda value: (self._load.get(value, 0.0), value))
            return {one: number}
        if level:
            base = [sum(self._count(term, value) for term in level) for value in allowed]
            return _positive(allowed, water_fill(base, number))
        return self._by_load(size_class, allowed)

    def _by_load(self, size_class: SizeClass, allowed: Sequence[str]) -> dict[str, int]:
        """Quotas of pods that no spread counts."""
        loads = [self._load.get(value, 0.0) for value in allowed]
        spreads = size_class.spreads
        if spreads and not any(self._topology_counts.terms.all[term].key == self._key for term in size_class.selected):
            # They keep every balance wherever it allows them, and together they need fewer nodes.
            counts = [sum(self._count(spread.term, value) for spread in spreads) for value in allowed]
            best = min(range(len(allowed)), key=lambda index: (counts[index], -loads[index], allowed[index]))
            return {allowed[best]: size_class.number}
        if self._rank(size_class)[0] == 6 and sum(loads) > 0:
            return _positive(allowed, in_proportion(loads, size_class.number))
        each = max(size_class.weight, 1e-12)
        return _positive(allowed, water_fill([round(load / each) for load in loads], size_class.number))

    def _closed(self, size_class: SizeClass, value: str) -> bool:
        """True if anti-affinity, of these pods or of other pods, keeps these pods out of a domain."""
        avoided = size_class.selected & self._topology_counts.terms.anti
        return any(self._count(term, value) for term in size_class.anti) or any(
            self._count(term, value, keeping=True)
            for term in avoided
            if self._topology_counts.terms.all[term].key == self._key
        )

    def _has_any(self, term: int) -> bool:
        """True if pods that a term counts are anywhere. Then no other pod may be the first that the term counts."""
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

    def _record(self, size_class: SizeClass, sign: int) -> None:
        for keys, keeping in ((size_class.selected, False), (size_class.anti, True)):
            for term in keys:
                added = self._added.setdefault((term, keeping), {})
                for value, number in size_class.quotas.items():
                    added[value] = added.get(value, 0) + sign * number
        for value, number in size_class.quotas.items():
            self._load[value] = self._load.get(value, 0.0) + sign * number * size_class.weight

    def _kept(self, settled: list[SizeClass]) -> list[SizeClass]:
        """The size classes whose spread constraints and affinity the outcome keeps."""
        while True:
            lost = [
                size_class
                for size_class in settled
                if not self._keeps_company(size_class)
                or not all(self._keeps_spread(size_class, s, settled) for s in size_class.spreads)
            ]
            if not lost:
                return settled
            for size_class in lost:
                self._record(size_class, -1)
            dropped = set(map(id, lost))
            settled = [size_class for size_class in settled if id(size_class) not in dropped]

    def _keeps_company(self, size_class: SizeClass) -> bool:
        """True if the pods that these follow are still in the domain chosen for these."""
        followed = [term for term in size_class.affinity if term not in size_class.selected]
        return all(self._certain_count(term, value) for term in followed for value in size_class.quotas)

    def _keeps_spread(self, size_class: SizeClass, spread: Spread, settled: Sequence[SizeClass]) -> bool:
        if not self._comparable(size_class, spread, settled):
            return False
        counts: dict[str, int] = {}
        domains = set(size_class.reachable)
        if self._topology_counts.base.nodes or self._topology_counts.expected:
            standing, present = self._topology_counts.spread(size_class.attempt.pod_class, spread)
            values = self._topology_counts.values(self._key)
            counts = dict(zip(values, standing.tolist(), strict=True))
            domains |= {value for value, has in zip(values, present.tolist(), strict=True) if has}
        added = self._added.get((spread.term, False), {})
        final = {value: counts.get(value, 0) + added.get(value, 0) for value in domains}
        lowest = min(final.values(), default=0) if len(final) >= spread.min_domains else 0
        return all(final.get(value, 0) - lowest <= spread.max_skew for value in size_class.quotas)

    def _comparable(self, size_class: SizeClass, spread: Spread, settled: Sequence[SizeClass]) -> bool:
        """True if the constraint counts all nodes of each domain chosen for its pods, or no node."""
        mine = size_class.attempt.pod_class
        narrow = spread.honor_affinity and any(set(term) - {self._key} for term in mine.own_terms)
        if not narrow and not spread.honor_taints:
            return True
        others = [other.attempt.pod_class for other in settled if spread.term in other.selected]
        return all(
            (not narrow or other.own_terms == mine.own_terms)
            and (not spread.honor_taints or other.tolerations == mine.tolerations)
            for other in others
        )


def water_fill(base: Sequence[int], number: int) -> list[int]:
    """Return each level's part when `number` is poured over `base`; the first lowest levels get the remainder."""
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
        quotas: per size class, how many pods each of its problems gets.
        counts: per size class, the pods of each of its classes [classes], in placing order.

    Returns:
        Per size class, [classes, problems].
    """
    both = list(zip(quotas, counts, strict=True))
    mixed = [turn for turn, (shares, sizes) in enumerate(both) if min(len(shares), len(sizes)) > 1]
    split = [sizes[:, None].copy() if len(shares) == 1 else np.array([shares], np.int64) for shares, sizes in both]
    parts = _mixes(mixed, [quotas[turn] for turn in mixed], [counts[turn] for turn in mixed])
    for turn, part in zip(mixed, parts, strict=True):
        split[turn] = part
    return split


def _mixes(turns: Sequence[int], quotas: Sequence[Sequence[int]], counts: Sequence[Ints]) -> list[Ints]:
    """As `split_by_quotas`, for size classes at `turns` that have several classes and several problems."""
    if not turns:
        return []
    widths = np.array(list(map(len, quotas)), np.int64)
    numbers = np.array([number for shares in quotas for number in shares], np.int64)
    pods = np.add.reduceat(numbers, np.cumsum(widths) - widths)
    size_class = np.repeat(np.arange(len(turns)), pods)
    width = widths[size_class]
    problem = np.repeat(np.arange(len(numbers)), numbers)
    column = problem - np.repeat(np.cumsum(widths) - widths, pods)
    rank = np.arange(len(problem)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    # The pods of each problem stand at even distances; problems take turns in being first.
    where = (rank + 0.5 + 1e-3 * ((column + np.array(turns)[size_class]) % width)) / numbers[problem]
    sequence = column[np.lexsort((where, size_class))]
    sizes = np.array(list(map(len, counts)), np.int64)
    cells = sizes * widths
    owner = np.repeat(np.arange(sizes.sum()), np.concatenate(counts)) - np.repeat(np.cumsum(sizes) - sizes, pods)
    flat = np.bincount(np.repeat(np.cumsum(cells) - cells, pods) + owner * width + sequence, minlength=cells.sum())
    parts = np.split(flat.astype(np.int64), np.cumsum(cells)[:-1])
    return [part.reshape(len(some), -1) for part, some in zip(parts, counts, strict=True)]


def fits_front(sizes: Ints, front: Ints) -> Bools:
    """Return a mask of the sizes [sizes, resources] that some row of a front [rows, resources] holds."""
    return np.array((front[None, :, :] >= sizes[:, None, :]).all(axis=2).any(axis=1), np.bool_)
