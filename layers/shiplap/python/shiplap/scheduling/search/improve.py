"""The cost search: fills parcels again, cheaper, and keeps what it got where it finds nothing better.

Nodes that cost much more than their pods are worth are taken apart together and packed anew.

A search is made once for the same question: a warm function comes to it again with its next decision.

Disruption looks a second time at what it proposes, and anew now and then at what has not changed, so most of what it
searches it has searched before. The search is a pure function of its arguments, so nothing but time is saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from threading import Lock

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.columns import Generation, PatternPool, size_values, totals_bound
from shiplap.scheduling.search.deal import deal
from shiplap.scheduling.search.dive import CAREFUL, QUICK, Care, dive
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.grow import grow_nodes
from shiplap.scheduling.search.mix import mix
from shiplap.scheduling.search.pattern_pricing import FillStrategies, values_of
from shiplap.scheduling.search.problem import ReducedProblem, reduce_problems, restricted_to_kinds, with_rules
from shiplap.scheduling.search.realise import realise

_NODES = (3, 4, 6, 9, 14)
"""How many of the most wasteful nodes are packed anew at a time."""

_LEAST_MICROS = 50_000.0
_LEAST_SAVING = 1e-9


def repack_wasteful(problem: ReducedProblem, patterns: Floats, values: Floats, effort: Effort) -> Floats:
    """Patterns [nodes, kinds] of the same pods, never dearer; `values` [kinds] says what a pod is worth."""
    for number in _NODES:
        if effort.left < _LEAST_MICROS:
            break
        price = problem.price[problem.cheapest(patterns)]
        waste = np.round(price - values_of(patterns, values), 9)
        order = np.argsort(-waste, kind="stable")
        some, others = patterns[order[:number]], patterns[order[number:]]
        demand = some.sum(axis=0)
        kinds = np.flatnonzero(demand)
        rest = restricted_to_kinds(problem, kinds, demand[kinds])
        pool = PatternPool(rest)
        pool.add(some[:, kinds])
        packed = dive(rest, pool, rest.demand, values[kinds], effort, None, CAREFUL)
        found = np.zeros((len(packed), len(demand)))
        found[:, kinds] = packed
        if problem.cost(found) < problem.cost(some) - _LEAST_SAVING:
            patterns = np.concatenate([others, found])
    return patterns


_NEGLIGIBLE = 5e-4
"""The search stops when a filling costs at most this part more than the bound."""

_MANY_KINDS = 160
"""Column generation is for so few kinds; beyond, pods are dealt out."""

_FINE = 8.0
"""Pods are dealt out when nodes of the cheapest mixture hold at least so many."""

_SLACKS = (0.0, 0.001, 0.002, 0.004)
_EACH_POD, _MANY_PODS, _FEW_PODS = 1000.0, 100, 25
"""Microseconds of effort that a pod is worth, in batches of which size on; before, all pods are worth that of few."""

_VALUES = ((0.4, 0.6), (0.55, 0.45), (0.7, 0.3), (0.2, 0.8))
"""What all of the largest node's first and second resource are worth to each other: what "large" means."""

_TOLERANCE = 1e-9
_ROUNDS = 60
_TOGETHER = 0.4
"""The part of a family's effort spent on patterns for all its parcels."""


def improve(parcels: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort) -> tuple[Filling, ...]:
    """Fillings of the same parcels that are never dearer; the effort goes where most can be saved.

    Args:
        parcels: what is to be filled, independent of each other.
        fillings: a valid filling of each.
        effort: what the search may spend on all of them; used up as it goes.
    """
    result = list(fillings)
    if effort.spent:
        return tuple(result)
    given, effort = effort, Effort(min(effort.left, effort_worth(parcels)))
    granted = effort.left
    families = _families(parcels, fillings, effort)
    families.sort(key=lambda family: (family.gap, family.works[0].place))
    for done, family in enumerate(families):
        rest = sum(other.gap for other in families[done:])
        if family.gap <= 0:
            continue
        part = effort.share(family.gap / rest)
        for place, filling in family.search(part):
            result[place] = filling
        effort.give_back(part)
    given.left -= granted - effort.left
    return tuple(result)


def effort_worth(parcels: Sequence[BinPackingProblem]) -> float:
    """Microseconds of effort for the pods of parcels: a small batch is not held up for the sake of a cent."""
    pods = sum(int(parcel.counts.sum()) for parcel in parcels)
    return _EACH_POD * (max(_FEW_PODS, pods * min(1.0, pods / _MANY_PODS)) if pods else 0)


def _families(parcels: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort) -> list[_Family]:
    shapes = [with_rules(parcel, len(filling.rows)) for parcel, filling in zip(parcels, fillings, strict=True)]
    places: dict[object, list[int]] = {}
    for place, shape in enumerate(shapes):
        if shape.parcel.counts.any():
            places.setdefault(shape.family, []).append(place)
    families = []
    for members in places.values():
        joint, problems = reduce_problems([shapes[place] for place in members])
        works = [
            _ProblemSearch.of(place, parcels[place], fillings[place], problem, effort)
            for place, problem in zip(members, problems, strict=True)
        ]
        families.append(_Family(joint, works))
    return families


class _ProblemSearch(msgspec.Struct, frozen=True, eq=False):
    """One parcel being worked on.

    `bound` is what no filling undercuts, `values` [kinds] what a pod is worth by its size then, and `fine` whether
    nodes hold many pods.
    """

    place: int
    parcel: BinPackingProblem
    filling: Filling
    problem: ReducedProblem
    bound: float
    values: Floats
    fine: bool

    @classmethod
    def of(
        cls, place: int, parcel: BinPackingProblem, filling: Filling, problem: ReducedProblem, effort: Effort
    ) -> _ProblemSearch:
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

    def begun(self, effort: Effort) -> list[Floats]:
        """The filling there is and what is found quickly, as patterns."""
        found = [self.given()]
        if self.fine:
            found += mixture_patterns(self.problem, self.values, effort)
        if self.problem.rules:
            found += grown_patterns(self.problem, effort)
        return found

    def realised(self, patterns: Floats, effort: Effort) -> Filling:
        """The filling of these patterns, if it is cheaper than the one there is."""
        if self.problem.cost(patterns) >= self.cost - _TOLERANCE:
            return self.filling
        found = realise(self.parcel, self.problem, patterns, effort)
        return found if found is not None and found.hourly(self.parcel) < self.cost - _TOLERANCE else self.filling


class _Family(msgspec.Struct, frozen=True, eq=False):
    """Parcels whose nodes are interchangeable, so that patterns found for one serve the others; `joint` is all pods."""

    joint: ReducedProblem
    works: list[_ProblemSearch]

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most."""
        return sum(work.gap for work in self.works)

    def search(self, effort: Effort) -> list[tuple[int, Filling]]:
        """The places of parcels and the cheapest fillings found for them."""
        works = sorted((work for work in self.works if work.gap > 0), key=lambda work: (work.gap, work.place))
        begun = {work.place: work.begun(effort) for work in works}
        found = self._together(works, begun, effort)
        best = {work.place: min(begun[work.place], key=work.problem.cost) for work in works}
        if found is not None:
            for care in (QUICK, CAREFUL):
                self._dive(works, best, found, effort, care)
            for work in works:
                if work.problem.cost(best[work.place]) > work.bound * (1 + _NEGLIGIBLE):
                    best[work.place] = repack_wasteful(work.problem, best[work.place], work.values, effort)
        return [(work.place, work.realised(best[work.place], effort)) for work in works]

    def _dive(
        self, works: Sequence[_ProblemSearch], best: dict[int, Floats], found: Generation, effort: Effort, care: Care
    ) -> None:
        """Look for cheaper patterns for each parcel, and put them into `best`."""
        gaps = [work.problem.cost(best[work.place]) - work.bound for work in works]
        for done, (work, gap) in enumerate(zip(works, gaps, strict=True)):
            if gap <= work.bound * _NEGLIGIBLE or effort.left <= 0:
                continue
            part = effort.share(gap / sum(gaps[done:]))
            problem = work.problem
            dived = dive(
                problem, found.pool, problem.demand, found.best_values, part, _strategies_on(work, found), care
            )
            best[work.place] = min((best[work.place], dived), key=problem.cost)
            effort.give_back(part)

    def _together(
        self, works: Sequence[_ProblemSearch], begun: dict[int, list[Floats]], effort: Effort
    ) -> Generation | None:
        """Column generation for all parcels; none if there are too many kinds or no effort is left."""
        if len(self.joint.sizes) > _MANY_KINDS or effort.spent:
            return None
        pool = PatternPool(self.joint)
        pool.add(np.unique(np.concatenate([some for found in begun.values() for some in found]), axis=0))
        part = effort.share(_TOGETHER)
        generation = Generation(self.joint, pool, self.joint.demand, works[0].values, part)
        generation.run(_ROUNDS)
        effort.give_back(part)
        return generation


def _strategies_on(work: _ProblemSearch, found: Generation) -> FillStrategies | None:
    """The looks that served all parcels, as far as this one has their rows."""
    if found.strategies is None:
        return None
    place = {row: number for number, row in enumerate(work.problem.rows.tolist())}
    here = [
        (place[row], weight)
        for row, weight in zip(
            found.problem.rows[found.strategies.row].tolist(), found.strategies.weight.tolist(), strict=True
        )
        if row in place
    ]
    return (
        FillStrategies(np.array([row for row, _ in here]), np.array([weight for _, weight in here])) if here else None
    )


def grown_patterns(problem: ReducedProblem, effort: Effort) -> list[Floats]:
    """Patterns [nodes, kinds] of nodes that grow by the least price step: one way at least, more if there is effort."""
    scale = problem.net[:, :2].max(axis=0)
    weights = np.zeros((len(_VALUES), problem.net.shape[1]))
    weights[:, : len(scale)] = np.array(_VALUES)[:, : len(scale)] / scale
    found = [grow_nodes(problem, problem.leading(), weights[0], effort)]
    return found + [grow_nodes(problem, problem.leading(), each, effort) for each in weights[1:] if not effort.spent]


def mixture_patterns(problem: ReducedProblem, worth: Floats, effort: Effort) -> list[Floats]:
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
            rest = restricted_to_kinds(problem, some, left[some])
            more = np.zeros((0, len(left)))
            nodes = dive(rest, PatternPool(rest), rest.demand, worth[some], effort)
            more = np.zeros((len(nodes), len(left)))
            more[:, some] = nodes
            counts = np.concatenate([counts, more])
        found.append(counts[counts.any(axis=1)])
        if not len(some):
            break
    return found


_MOST = 256
"""Searches that are remembered, of some kilobytes each; one decision about a cluster makes a few dozen."""

_CACHE: dict[bytes, tuple[tuple[Filling | None, ...], float]] = {}
"""By digest of the question: what was found, None where nothing was better, and the effort left; the oldest first."""

_LOCK = Lock()


def improve_cached(
    parcels: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort
) -> tuple[Filling, ...]:
    """As `improve`, which uses up as much of the effort whether or not it is known what it comes to."""
    if effort.spent:
        return tuple(fillings)
    granted = min(effort.left, effort_worth(parcels))
    asked = _digest((*parcels, *fillings), granted)
    with _LOCK:
        known = _CACHE.pop(asked, None)
        if known is not None:
            _CACHE[asked] = known
    if known is None:
        part = Effort(granted)
        found = improve(parcels, fillings, part)
        better = tuple(new if new is not old else None for new, old in zip(found, fillings, strict=True))
        known = (better, part.left)
        with _LOCK:
            _CACHE[asked] = known
            while len(_CACHE) > _MOST:
                del _CACHE[next(iter(_CACHE))]
    effort.left -= granted - known[1]
    return tuple(old if new is None else new for new, old in zip(known[0], fillings, strict=True))


def clear_cache() -> None:
    """As a new process begins: for those who measure."""
    with _LOCK:
        _CACHE.clear()


def _digest(parts: Iterable[BinPackingProblem | Filling], granted: float) -> bytes:
    digest = hashlib.blake2b(repr(granted).encode(), digest_size=16)
    for part in parts:
        for field in part.__struct_fields__:
            array: np.ndarray = getattr(part, field)
            digest.update(f"{field}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
