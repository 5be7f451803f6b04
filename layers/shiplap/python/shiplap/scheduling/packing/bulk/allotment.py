"""Allotment: how many pods of each shape go to which domain, settled in closed form.

Order: pods that follow their own kind (one domain for all), pods that keep apart, spread pods and the pods spreads
count (filled level, so that the counts end even whatever order the pods bind in), followers of others, and last the
pods free to go anywhere: by load, those that want a node each in proportion to it, so that they share nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.packing.bulk.size_classes import SizeClass
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class TierDemand(msgspec.Struct, eq=False):
    """The part of a shape that one template takes.

    `places` and `counts` [places] are classes and their pods. `domains` are the values of `key` that a node of the
    template can have and all of the pods fit in; `weight` is what one pod asks for on average, as a share of
    everything. `reachable` are the domains in which a node for such pods can be launched by any template. `quotas` is
    the outcome.
    """

    shape: SizeClass
    template: NodeClaimTemplate
    key: str
    places: Ints
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
        """Whether these pods need their domain settled; others just go along."""
        return bool(self.shape.key)


class Allotment:
    """Decides for all units of one key; `units` come in placing order."""

    def __init__(self, key: str, units: Sequence[TierDemand], topology_counts: TopologyCounts) -> None:
        self._key = key
        self._units = units
        self._topology_counts = topology_counts
        self._standing: dict[tuple[int, bool], dict[str, int]] = {}
        self._certain: dict[int, dict[str, int]] = {}
        self._added: dict[tuple[int, bool], dict[str, int]] = {}
        self._load: dict[str, float] = {}
        self._spread_terms = {spread.term for unit in units for spread in unit.shape.spreads}

    def run(self) -> list[TierDemand]:
        """The units whose pods all got a domain; the others are left to whoever places them one by one."""
        settled = []
        for _, unit in sorted(enumerate(self._units), key=lambda pair: (*self._rank(pair[1]), pair[0])):
            quotas = self._quotas(unit)
            if sum(quotas.values()) == unit.number:
                unit.quotas = quotas
                self._record(unit, 1)
                settled.append(unit)
        return self._even(settled)

    def _rank(self, unit: TierDemand) -> tuple[int, int, int]:
        shape = unit.shape
        follows = [term for term in shape.affinity if term not in shape.selected]
        if not unit.needs_domain:
            order = 6 if any(rule.term in shape.selected for rule in shape.owns) else 5
        elif follows:
            order = 4
        elif shape.affinity:
            order = 0
        elif shape.anti or shape.selected & self._topology_counts.terms.anti:
            order = 1
        else:
            order = 2 if shape.spreads else 3
        return (order, len(unit.domains), -unit.number)

    def _quotas(self, unit: TierDemand) -> dict[str, int]:
        shape, number = unit.shape, unit.number
        allowed = [value for value in unit.domains if not self._closed(unit, value)]
        for term in shape.affinity:
            if term not in shape.selected or self._begun(term):
                allowed = [value for value in allowed if self._company(term, value)]
        if not allowed:
            return {}
        if any(term in shape.selected for term in shape.anti):
            return dict.fromkeys(allowed[:number], 1)
        if shape.affinity:
            one = min(allowed, key=lambda value: (self._load.get(value, 0.0), value))
            return {one: number}
        level = sorted(shape.selected & self._spread_terms)
        if level:
            base = [sum(self._count(term, value) for term in level) for value in allowed]
            return _positive(allowed, water_fill(base, number))
        return self._by_load(unit, allowed)

    def _by_load(self, unit: TierDemand, allowed: Sequence[str]) -> dict[str, int]:
        """Quotas of pods that no spread counts."""
        loads = [self._load.get(value, 0.0) for value in allowed]
        spreads = unit.shape.spreads
        if spreads and not any(self._topology_counts.terms.all[term].key == self._key for term in unit.shape.selected):
            # They keep every balance wherever it allows them, and together they need fewer nodes.
            counts = [sum(self._count(spread.term, value) for spread in spreads) for value in allowed]
            best = min(range(len(allowed)), key=lambda place: (counts[place], -loads[place], allowed[place]))
            return {allowed[best]: unit.number}
        if self._rank(unit)[0] == 6 and sum(loads) > 0:
            return _positive(allowed, in_proportion(loads, unit.number))
        each = max(unit.weight, 1e-12)
        return _positive(allowed, water_fill([round(load / each) for load in loads], unit.number))

    def _closed(self, unit: TierDemand, value: str) -> bool:
        """Whether anti-affinity, of these pods or of others, keeps them out of a domain."""
        avoided = unit.shape.selected & self._topology_counts.terms.anti
        return any(self._count(term, value) for term in unit.shape.anti) or any(
            self._count(term, value, keeping=True)
            for term in avoided
            if self._topology_counts.terms.all[term].key == self._key
        )

    def _begun(self, term: int) -> bool:
        """Whether pods that a term counts are anywhere, so that no pod may be the first of them."""
        given = self._added.get((term, False), {})
        return any(given.values()) or self._topology_counts.begun(term)

    def _company(self, term: int, value: str) -> int:
        """The pods that a term counts and that are certain to be in a domain."""
        known = self._certain.get(term)
        if known is None:
            known = self._certain[term] = self._stand(term, certain=True)
        return known.get(value, 0) + self._added.get((term, False), {}).get(value, 0)

    def _count(self, term: int, value: str, *, keeping: bool = False) -> int:
        key = (term, keeping)
        known = self._standing.get(key)
        if known is None:
            known = self._standing[key] = self._stand(term, keeping=keeping)
            self._added.setdefault(key, {})
        return known.get(value, 0) + self._added[key].get(value, 0)

    def _stand(self, term: int, *, keeping: bool = False, certain: bool = False) -> dict[str, int]:
        if not self._topology_counts.base.nodes:
            return {}
        totals = self._topology_counts.totals(term, self._key, keeping=keeping, certain=certain).tolist()
        return dict(zip(self._topology_counts.values(self._key), totals, strict=True))

    def _record(self, unit: TierDemand, sign: int) -> None:
        for keys, keeping in ((unit.shape.selected, False), (unit.shape.anti, True)):
            for term in keys:
                added = self._added.setdefault((term, keeping), {})
                for value, number in unit.quotas.items():
                    added[value] = added.get(value, 0) + sign * number
        for value, number in unit.quotas.items():
            self._load[value] = self._load.get(value, 0.0) + sign * number * unit.weight

    def _even(self, settled: list[TierDemand]) -> list[TierDemand]:
        """Without the units whose spread constraints the outcome does not keep."""
        while True:
            uneven = [unit for unit in settled if not all(self._keeps(unit, s, settled) for s in unit.shape.spreads)]
            if not uneven:
                return settled
            for unit in uneven:
                self._record(unit, -1)
            dropped = set(map(id, uneven))
            settled = [unit for unit in settled if id(unit) not in dropped]

    def _keeps(self, unit: TierDemand, spread: Spread, settled: Sequence[TierDemand]) -> bool:
        if not self._comparable(unit, spread, settled):
            return False
        counts: dict[str, int] = {}
        domains = set(unit.reachable)
        if self._topology_counts.base.nodes:
            standing, present = self._topology_counts.spread(unit.shape.attempt.pod_class, spread)
            values = self._topology_counts.values(self._key)
            counts = dict(zip(values, standing.tolist(), strict=True))
            domains |= {value for value, has in zip(values, present.tolist(), strict=True) if has}
        added = self._added.get((spread.term, False), {})
        final = {value: counts.get(value, 0) + added.get(value, 0) for value in domains}
        lowest = min(final.values(), default=0) if len(final) >= spread.min_domains else 0
        return all(final.get(value, 0) - lowest <= spread.max_skew for value in unit.quotas)

    def _comparable(self, unit: TierDemand, spread: Spread, settled: Sequence[TierDemand]) -> bool:
        """Whether the constraint looks at every node that its pods were allotted to, or at none in a domain."""
        mine = unit.shape.attempt.pod_class
        narrow = spread.honor_affinity and any(set(term) - {self._key} for term in mine.own_terms)
        if not narrow and not spread.honor_taints:
            return True
        others = [other.shape.attempt.pod_class for other in settled if spread.term in other.shape.selected]
        return all(
            (not narrow or other.own_terms == mine.own_terms)
            and (not spread.honor_taints or other.tolerations == mine.tolerations)
            for other in others
        )


def water_fill(base: Sequence[int], number: int) -> list[int]:
    """How much each level gets when `number` is poured over `base`; what does not divide goes to the first lowest."""
    order = sorted(range(len(base)), key=lambda place: (base[place], place))
    added = [0] * len(base)
    wet, level = 0, base[order[0]]
    left = number
    while left:
        while wet < len(order) and base[order[wet]] <= level:
            wet += 1
        rise = base[order[wet]] - level if wet < len(order) else left
        rise = min(rise, left // wet)
        if rise == 0:
            for place in sorted(order[:wet])[:left]:
                added[place] += 1
            break
        for place in order[:wet]:
            added[place] += rise
        level += rise
        left -= rise * wet
    return added


def in_proportion(loads: Sequence[float], number: int) -> list[int]:
    """Whole shares of `number` in proportion to loads, by largest remainder; ties go to the first."""
    total = sum(loads)
    exact = [number * load / total for load in loads]
    shares = [int(share) for share in exact]
    order = sorted(range(len(loads)), key=lambda place: (shares[place] - exact[place], place))
    for place in order[: number - sum(shares)]:
        shares[place] += 1
    return shares


def _positive(values: Sequence[str], numbers: Sequence[int]) -> dict[str, int]:
    return {value: number for value, number in zip(values, numbers, strict=True) if number}


def split_by_quotas(quotas: Sequence[Sequence[int]], counts: Sequence[Ints]) -> list[Ints]:
    """Classes dealt to parcels so that each parcel gets an even mix of sizes.

    Args:
        quotas: per unit, how many pods each of its parcels gets.
        counts: per unit, the pods of each of its classes [classes], in placing order.

    Returns:
        Per unit, [classes, parcels].
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
