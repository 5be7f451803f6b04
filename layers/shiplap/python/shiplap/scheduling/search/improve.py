"""The cost search: fills parcels again, cheaper, and keeps what it got where it finds nothing better."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.scheduling.parcels import Filling, Parcel
from shiplap.scheduling.resources import Floats
from shiplap.scheduling.search.columns import Generation, Pool, size_values, totals_bound
from shiplap.scheduling.search.deal import deal
from shiplap.scheduling.search.dive import dive
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.mix import mix
from shiplap.scheduling.search.problem import Problem, of_kinds, problems_of, shape_of
from shiplap.scheduling.search.realise import realise

_NEGLIGIBLE = 5e-4
"""The search stops when a filling costs at most this part more than the bound."""

_MANY_KINDS = 160
"""Column generation is for so few kinds; beyond, pods are dealt out."""

_FINE = 8.0
"""Pods are dealt out when nodes of the cheapest mixture hold at least so many."""

_SLACKS = (0.0, 0.001, 0.002, 0.004)
_ROUNDS = 60
_TOGETHER = 0.4
"""The part of a family's effort spent on patterns for all its parcels."""


def improve(parcels: Sequence[Parcel], fillings: Sequence[Filling], effort: Effort) -> tuple[Filling, ...]:
    """Fillings of the same parcels that are never dearer; the effort goes where most can be saved.

    Args:
        parcels: what is to be filled, independent of each other.
        fillings: a valid filling of each.
        effort: what the search may spend on all of them; used up as it goes.
    """
    result = list(fillings)
    families = _families(parcels, fillings, effort)
    families.sort(key=lambda family: (family.gap, family.works[0].place))
    for done, family in enumerate(families):
        rest = sum(other.gap for other in families[done:])
        if family.gap <= 0 or effort.spent:
            continue
        part = effort.share(family.gap / rest)
        for place, filling in family.search(part):
            result[place] = filling
        effort.give_back(part)
    return tuple(result)


def _families(parcels: Sequence[Parcel], fillings: Sequence[Filling], effort: Effort) -> list[_Family]:
    shapes = [shape_of(parcel, len(filling.rows)) for parcel, filling in zip(parcels, fillings, strict=True)]
    places: dict[object, list[int]] = {}
    for place, shape in enumerate(shapes):
        if shape.parcel.counts.any():
            places.setdefault(shape.family, []).append(place)
    families = []
    for members in places.values():
        joint, problems = problems_of([shapes[place] for place in members])
        works = [
            _Work.of(place, parcels[place], fillings[place], problem, effort)
            for place, problem in zip(members, problems, strict=True)
        ]
        families.append(_Family(joint, works))
    return families


class _Work(msgspec.Struct, frozen=True, eq=False):
    """One parcel being worked on.

    `bound` is what no filling undercuts, `values` [kinds] what a pod is worth by its size then, and `fine` whether
    nodes hold many pods.
    """

    place: int
    parcel: Parcel
    filling: Filling
    problem: Problem
    bound: float
    values: Floats
    fine: bool

    @classmethod
    def of(cls, place: int, parcel: Parcel, filling: Filling, problem: Problem, effort: Effort) -> _Work:
        hard = problem.hard()
        bound, units, used = totals_bound(hard, effort)
        fine = float(problem.demand.sum()) >= _FINE * float(used.sum())
        return cls(place, parcel, filling, problem, bound, size_values(hard, units), fine)

    @property
    def cost(self) -> float:
        """USD per hour of the filling there is."""
        return self.filling.hourly(self.parcel)

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most; 0 when that is negligible."""
        return self.cost - self.bound if self.cost > self.bound * (1 + _NEGLIGIBLE) else 0.0

    def given(self) -> Floats:
        """The patterns [nodes, kinds] of the filling there is."""
        patterns = np.zeros((len(self.filling.rows), len(self.problem.sizes)))
        np.add.at(patterns, (self.filling.node, self.problem.kind_of[self.filling.item]), self.filling.number)
        return patterns

    def realised(self, candidates: Sequence[Floats], effort: Effort) -> Filling:
        """The filling of the cheapest patterns, if it is cheaper than the one there is."""
        best = min(candidates, key=self.problem.cost, default=None)
        if best is None or self.problem.cost(best) >= self.cost - 1e-9:
            return self.filling
        found = realise(self.parcel, self.problem, best, effort)
        return found if found is not None and found.hourly(self.parcel) < self.cost - 1e-9 else self.filling


class _Family(msgspec.Struct, frozen=True, eq=False):
    """Parcels whose nodes are interchangeable, so that patterns found for one serve the others; `joint` is all pods."""

    joint: Problem
    works: list[_Work]

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most."""
        return sum(work.gap for work in self.works)

    def search(self, effort: Effort) -> list[tuple[int, Filling]]:
        """The places of parcels and the cheapest fillings found for them."""
        works = sorted((work for work in self.works if work.gap > 0), key=lambda work: (work.gap, work.place))
        dealt = {work.place: mixed(work.problem, work.values, effort) if work.fine else [] for work in works}
        pool, values = self._together(works, dealt, effort)
        result = []
        for done, work in enumerate(works):
            part = effort.share(work.gap / sum(other.gap for other in works[done:]))
            candidates = dealt[work.place]
            cost = min(map(work.problem.cost, candidates), default=work.cost)
            if pool is not None and cost > work.bound * (1 + _NEGLIGIBLE):
                candidates = [*candidates, dive(work.problem, pool, work.problem.demand, values, part)]
            result.append((work.place, work.realised(candidates, part)))
            effort.give_back(part)
        return result

    def _together(
        self, works: Sequence[_Work], dealt: dict[int, list[Floats]], effort: Effort
    ) -> tuple[Pool | None, Floats]:
        """Patterns for all parcels and what a pod is worth [kinds] with them; none if there are too many kinds."""
        if len(self.joint.sizes) > _MANY_KINDS:
            return None, works[0].values
        pool = Pool(self.joint)
        known = [work.given() for work in works] + [some for found in dealt.values() for some in found]
        pool.add(np.unique(np.concatenate(known), axis=0))
        part = effort.share(_TOGETHER)
        generation = Generation(self.joint, pool, self.joint.demand, works[0].values, part)
        generation.run(_ROUNDS)
        effort.give_back(part)
        return pool, generation.best_values


def mixed(problem: Problem, worth: Floats, effort: Effort) -> list[Floats]:
    """Patterns [nodes, kinds] from dealing pods out to a few whole mixtures of nodes, one list for each."""
    found: list[Floats] = []
    for slack in _SLACKS:
        rows = mix(problem, slack, effort)
        if not len(rows) or effort.spent:
            break
        counts, left, fullest = deal(problem, rows, effort)
        if not np.isfinite(fullest):
            continue
        some = np.flatnonzero(left)
        if len(some):
            rest = of_kinds(problem, some, left[some])
            more = np.zeros((0, len(left)))
            nodes = dive(rest, Pool(rest), rest.demand, worth[some], effort)
            more = np.zeros((len(nodes), len(left)))
            more[:, some] = nodes
            counts = np.concatenate([counts, more])
        found.append(counts[counts.any(axis=1)])
        if not len(some):
            break
    return found
