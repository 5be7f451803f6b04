"""The cost search: fills problems again, cheaper; a filling stays where nothing cheaper is found.

Nodes that cost much more than their pods are worth are emptied together and packed again.

Results are cached: a warm function often searches the same problem with its next decision.

Disruption decides again before it acts, and regularly on an unchanged cluster, so most of its searches are repeated.
The search is a pure function of its arguments: the cache saves time and changes no result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from threading import Lock

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.column_generation import (
    CAREFUL,
    QUICK,
    Care,
    FillStrategies,
    Generation,
    PatternPool,
    dive,
    size_values,
    totals_bound,
    values_of,
)
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.grow import grow_nodes
from shiplap.scheduling.search.pod_kinds import (
    ReducedProblem,
    realise,
    reduce_problems,
    restricted_to_kinds,
)
from shiplap.scheduling.search.type_mix import deal, mix

_NODES = (3, 4, 6, 9, 14)
"""How many of the most wasteful nodes are packed again at a time."""

_LEAST_MICROS = 50_000.0
_LEAST_SAVING = 1e-9


def repack_wasteful(reduced: ReducedProblem, patterns: Floats, values: Floats, effort: Effort) -> Floats:
    """Patterns [nodes, kinds] of the same pods, never dearer; `values` [kinds] says what a pod is worth."""
    for number in _NODES:
        if effort.left < _LEAST_MICROS:
            break
        price = reduced.price[reduced.cheapest(patterns)]
        waste = np.round(price - values_of(patterns, values), 9)
        order = np.argsort(-waste, kind="stable")
        some, others = patterns[order[:number]], patterns[order[number:]]
        demand = some.sum(axis=0)
        kinds = np.flatnonzero(demand)
        rest = restricted_to_kinds(reduced, kinds, demand[kinds])
        pool = PatternPool(rest)
        pool.add(some[:, kinds])
        packed = dive(rest, pool, rest.demand, values[kinds], effort, None, CAREFUL)
        found = np.zeros((len(packed), len(demand)))
        found[:, kinds] = packed
        if reduced.cost(found) < reduced.cost(some) - _LEAST_SAVING:
            patterns = np.concatenate([others, found])
    return patterns


_NEGLIGIBLE = 5e-4
"""The search stops when a filling costs at most this part more than the bound."""

_MANY_KINDS = 160
"""Column generation is for at most so many kinds; with more kinds, pods are dealt out."""

_FINE = 8.0
"""Pods are dealt out when nodes of the cheapest mixture hold at least so many."""

_SLACKS = (0.0, 0.001, 0.002, 0.004)
_EACH_POD, _MANY_PODS, _FEW_PODS = 1000.0, 100, 25
"""Microseconds of effort per pod, the batch size from which on it applies, and the least number of pods to count."""

_VALUES = ((0.4, 0.6), (0.55, 0.45), (0.7, 0.3), (0.2, 0.8))
"""Weights of the largest node's first and second resource: they define the size of a pod."""

_TOLERANCE = 1e-9
_ROUNDS = 60
_TOGETHER = 0.4
"""The part of a family's effort spent on patterns for all its problems."""


def improve(problems: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort) -> tuple[Filling, ...]:
    """Fillings of the same problems that are never dearer; the effort goes where most can be saved.

    Args:
        problems: what is to be filled, independent of each other.
        fillings: a valid filling of each.
        effort: what the search may spend on all of them; used up as it goes.
    """
    result = list(fillings)
    if effort.spent:
        return tuple(result)
    current_patterns, effort = effort, Effort(min(effort.left, effort_worth(problems)))
    granted = effort.left
    families = _families(problems, fillings, effort)
    families.sort(key=lambda family: (family.gap, family.searches[0].place))
    for done, family in enumerate(families):
        rest = sum(other.gap for other in families[done:])
        if family.gap <= 0:
            continue
        part = effort.share(family.gap / rest)
        for place, filling in family.search(part):
            result[place] = filling
        effort.give_back(part)
    current_patterns.left -= granted - effort.left
    return tuple(result)


def effort_worth(problems: Sequence[BinPackingProblem]) -> float:
    """Microseconds of effort for the pods of problems: a small batch does not wait for a saving of a cent."""
    pods = sum(int(problem.counts.sum()) for problem in problems)
    return _EACH_POD * (max(_FEW_PODS, pods * min(1.0, pods / _MANY_PODS)) if pods else 0)


def _families(problems: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort) -> list[_Family]:
    families = []
    for members, joint, reduced_problems in reduce_problems(problems, [len(filling.rows) for filling in fillings]):
        searches = [
            _ProblemSearch.of(place, problems[place], fillings[place], reduced, effort)
            for place, reduced in zip(members, reduced_problems, strict=True)
        ]
        families.append(_Family(joint, searches))
    return families


class _ProblemSearch(msgspec.Struct, frozen=True, eq=False):
    """The search for one problem.

    `bound` is what no filling undercuts, `values` [kinds] what a pod is worth by its size then, and `fine` whether
    nodes hold many pods.
    """

    place: int
    problem: BinPackingProblem
    filling: Filling
    reduced: ReducedProblem
    bound: float
    values: Floats
    fine: bool

    @classmethod
    def of(
        cls, place: int, problem: BinPackingProblem, filling: Filling, reduced: ReducedProblem, effort: Effort
    ) -> _ProblemSearch:
        hard = reduced.hard()
        bound, units, used = totals_bound(hard, effort)
        fine = float(reduced.demand.sum()) >= _FINE * float(used.sum())
        return cls(place, problem, filling, reduced, bound, size_values(hard, units), fine)

    @property
    def cost(self) -> float:
        """USD per hour of the present filling."""
        return self.filling.hourly(self.problem)

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most; 0 when that is negligible."""
        return self.cost - self.bound if self.cost > self.bound * (1 + _NEGLIGIBLE) else 0.0

    def current_patterns(self) -> Floats:
        """The patterns [nodes, kinds] of the present filling."""
        patterns = np.zeros((len(self.filling.rows), len(self.reduced.sizes)))
        np.add.at(patterns, (self.filling.node, self.reduced.kind_of[self.filling.item]), self.filling.number)
        return patterns

    def starting_patterns(self, effort: Effort) -> list[Floats]:
        """The present filling and those that are found quickly, as patterns."""
        patterns = [self.current_patterns()]
        if self.fine:
            patterns += mixture_patterns(self.reduced, self.values, effort)
        if self.reduced.rules:
            patterns += grown_patterns(self.reduced, effort)
        return patterns

    def improved_filling(self, patterns: Floats, effort: Effort) -> Filling:
        """The filling of these patterns if it is cheaper than the present one, else the present one."""
        if self.reduced.cost(patterns) >= self.cost - _TOLERANCE:
            return self.filling
        found = realise(self.problem, self.reduced, patterns, effort)
        return found if found is not None and found.hourly(self.problem) < self.cost - _TOLERANCE else self.filling


class _Family(msgspec.Struct, frozen=True, eq=False):
    """Problems whose nodes are interchangeable, so that they share patterns; `joint` has the pods of all."""

    joint: ReducedProblem
    searches: list[_ProblemSearch]

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most."""
        return sum(search.gap for search in self.searches)

    def search(self, effort: Effort) -> list[tuple[int, Filling]]:
        """The places of problems and the cheapest fillings found for them."""
        searches = sorted(
            (search for search in self.searches if search.gap > 0), key=lambda search: (search.gap, search.place)
        )
        starting_patterns = {search.place: search.starting_patterns(effort) for search in searches}
        generation = self._together(searches, starting_patterns, effort)
        best = {search.place: min(starting_patterns[search.place], key=search.reduced.cost) for search in searches}
        if generation is not None:
            for care in (QUICK, CAREFUL):
                self._dive(searches, best, generation, effort, care)
            for search in searches:
                if search.reduced.cost(best[search.place]) > search.bound * (1 + _NEGLIGIBLE):
                    best[search.place] = repack_wasteful(search.reduced, best[search.place], search.values, effort)
        return [(search.place, search.improved_filling(best[search.place], effort)) for search in searches]

    def _dive(
        self, searches: Sequence[_ProblemSearch], best: dict[int, Floats], found: Generation, effort: Effort, care: Care
    ) -> None:
        """Look for cheaper patterns for each problem, and put them into `best`."""
        gaps = [search.reduced.cost(best[search.place]) - search.bound for search in searches]
        for done, (search, gap) in enumerate(zip(searches, gaps, strict=True)):
            if gap <= search.bound * _NEGLIGIBLE or effort.left <= 0:
                continue
            part = effort.share(gap / sum(gaps[done:]))
            reduced = search.reduced
            dived = dive(
                reduced, found.pool, reduced.demand, found.best_values, part, _strategies_on(search, found), care
            )
            best[search.place] = min((best[search.place], dived), key=reduced.cost)
            effort.give_back(part)

    def _together(
        self, searches: Sequence[_ProblemSearch], starting_patterns: dict[int, list[Floats]], effort: Effort
    ) -> Generation | None:
        """Column generation for all problems; none if there are too many kinds or no effort is left."""
        if len(self.joint.sizes) > _MANY_KINDS or effort.spent:
            return None
        pool = PatternPool(self.joint)
        pool.add(np.unique(np.concatenate([some for found in starting_patterns.values() for some in found]), axis=0))
        part = effort.share(_TOGETHER)
        generation = Generation(self.joint, pool, self.joint.demand, searches[0].values, part)
        generation.run(_ROUNDS)
        effort.give_back(part)
        return generation


def _strategies_on(search: _ProblemSearch, generation: Generation) -> FillStrategies | None:
    """The strategies of the joint problem whose rows this problem has."""
    if generation.strategies is None:
        return None
    place = {row: number for number, row in enumerate(search.reduced.rows.tolist())}
    here = [
        (place[row], weight)
        for row, weight in zip(
            generation.reduced.rows[generation.strategies.row].tolist(),
            generation.strategies.weight.tolist(),
            strict=True,
        )
        if row in place
    ]
    return (
        FillStrategies(np.array([row for row, _ in here]), np.array([weight for _, weight in here])) if here else None
    )


def grown_patterns(reduced: ReducedProblem, effort: Effort) -> list[Floats]:
    """Patterns [nodes, kinds] of nodes that grow by the least price step: one way at least, more if there is effort."""
    scale = reduced.net[:, :2].max(axis=0)
    weights = np.zeros((len(_VALUES), reduced.net.shape[1]))
    weights[:, : len(scale)] = np.array(_VALUES)[:, : len(scale)] / scale
    patterns = [grow_nodes(reduced, reduced.leading(), weights[0], effort)]
    return patterns + [grow_nodes(reduced, reduced.leading(), each, effort) for each in weights[1:] if not effort.spent]


def mixture_patterns(reduced: ReducedProblem, worth: Floats, effort: Effort) -> list[Floats]:
    """Patterns [nodes, kinds] from dealing pods out to a few whole mixtures of nodes, one list for each."""
    patterns: list[Floats] = []
    for slack in _SLACKS:
        rows = mix(reduced, slack, effort)
        if not len(rows) or effort.spent:
            break
        counts, left, fullest = deal(reduced, rows, effort)
        if not np.isfinite(fullest):
            continue
        some = np.flatnonzero(left)
        if len(some):
            rest = restricted_to_kinds(reduced, some, left[some])
            more = np.zeros((0, len(left)))
            nodes = dive(rest, PatternPool(rest), rest.demand, worth[some], effort)
            more = np.zeros((len(nodes), len(left)))
            more[:, some] = nodes
            counts = np.concatenate([counts, more])
        patterns.append(counts[counts.any(axis=1)])
        if not len(some):
            break
    return patterns


_MOST_REMEMBERED = 256
"""Searches that are remembered, of some kilobytes each; one decision about a cluster makes a few dozen."""

_CACHE: dict[bytes, tuple[tuple[Filling | None, ...], float]] = {}
"""By digest of the input: the fillings, None where nothing was cheaper, and the effort left. The oldest come first."""

_LOCK = Lock()


def improve_cached(
    problems: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort
) -> tuple[Filling, ...]:
    """As `improve`, with a cache. A cached result uses up the same effort, so that plans do not depend on the cache."""
    if effort.spent:
        return tuple(fillings)
    granted = min(effort.left, effort_worth(problems))
    asked = _digest((*problems, *fillings), granted)
    with _LOCK:
        known = _CACHE.pop(asked, None)
        if known is not None:
            _CACHE[asked] = known
    if known is None:
        part = Effort(granted)
        improved = improve(problems, fillings, part)
        better = tuple(new if new is not old else None for new, old in zip(improved, fillings, strict=True))
        known = (better, part.left)
        with _LOCK:
            _CACHE[asked] = known
            while len(_CACHE) > _MOST_REMEMBERED:
                del _CACHE[next(iter(_CACHE))]
    effort.left -= granted - known[1]
    return tuple(old if new is None else new for new, old in zip(known[0], fillings, strict=True))


def clear_cache() -> None:
    """Empty the cache, as in a new process. For benchmarks."""
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
