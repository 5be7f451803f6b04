"""Fillings of bin packing problems by price: the first one, found at once, and the cost search for cheaper ones.

First fillings: where nodes hold many pods, pods are dealt out to the whole nodes of the cheapest mixture of rows.
Otherwise every pod goes where it costs least now: into room that is paid for, else onto the node whose next larger row
adds least to the price, else onto a new node if that is cheaper still. All pods of a kind are placed at a time. Pods
that a rule gives a node each go first. First-fit-decreasing instead fills the largest nodes with whatever comes next,
and then buys each the row that its fullest resource needs. It fills small problems as well, and those in which a pod
finds no place otherwise.

The search fills problems again; a filling stays where nothing cheaper is found. Nodes that cost much more than
their pods are worth are emptied together and packed again.

Results are cached: a warm function often searches the same problem with its next decision. Disruption decides again
before it acts, and regularly on an unchanged cluster, so most of its searches and of its first fillings are
repeated. Both are pure functions of their arguments: the caches save time and change no result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import TypeVar

import msgspec
import numpy as np

from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.resources import ROUNDING, Bools, Floats, Ints, pareto_front, rows_holding
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling, first_fit
from shiplap.scheduling.search.column_generation import (
    BOLD,
    CAREFUL,
    CLOSE,
    Care,
    FillStrategies,
    Generation,
    PatternPool,
    ReducedProblem,
    covering_mixture,
    dive,
    restricted_to_kinds,
    values_of,
)
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.grown_nodes import grow_nodes, grown_in_turn, size_weights
from shiplap.scheduling.search.joined_nodes import join_nodes
from shiplap.scheduling.search.pod_kinds import (
    cliques,
    realise,
    reduce_problems,
)
from shiplap.scheduling.search.price_unit import EXACT, least_price
from shiplap.scheduling.search.type_mix import deal, mix

_FINE = 8.0
"""Pods are dealt out when nodes of the cheapest mixture hold at least so many."""

_FIRST_SLACKS = (0.0, 0.01, 0.03)
"""Parts by which a mixture of nodes exceeds all pods, tried until they are dealt out: few, as all batches pass here."""

_SMALL_BATCH = 100
"""Problems with up to so many pods are filled in several ways: it takes little time, and few nodes leave much waste."""

MOST_GROWN, FEW_GROWN = 2_000, 32
"""So are problems of up to so many pods and kinds of pods, but not by first-fit-decreasing."""

_MANY_KINDS = 160
"""With more kinds of pods than this their sizes are rounded up, so that each step places many pods, and there is no
column generation: its programs grow with the square of the kinds."""


def fill_cheaply(problems: Sequence[BinPackingProblem]) -> list[Filling]:
    """Nodes for these problems; items that no row can hold, and pods beyond what rules leave, stay out."""
    found: list[Filling | None] = [first_fit(problem) if problem.counts.sum() <= 1 else None for problem in problems]
    places = [place for place, filling in enumerate(found) if filling is None]
    possible = [_possible(problems[place]) for place in places]
    for members, _, reduced_problems in reduce_problems(possible, [_least_nodes(problem) for problem in possible]):
        for member, reduced in zip(members, reduced_problems, strict=True):
            found[places[member]] = _filling(possible[member], reduced)
    return [first_fit(problem) if one is None else one for one, problem in zip(found, problems, strict=True)]


def _possible(problem: BinPackingProblem) -> BinPackingProblem:
    """The problem without the pods of items that fit no row by themselves, or that rules allow on no node."""
    counts = np.where(_fitting(problem, problem.sizes), problem.counts, 0)
    counts[(problem.owners & problem.capped & (problem.caps <= 0)[:, None]).any(axis=0)] = 0
    return msgspec.structs.replace(problem, counts=counts)


def _fitting(problem: BinPackingProblem, sizes: Ints) -> Bools:
    """Return a mask of the items [items] that fit a row that suits them if pods have these sizes [items, resources]."""
    buys = np.isfinite(problem.price)
    fits = np.zeros(len(sizes), np.bool_)
    lines, line_of = problem.suit_lines
    for number, suits in enumerate(lines):
        items = np.flatnonzero(line_of == number)
        rows = problem.net[suits & buys]
        if len(items) ** 2 > len(rows):  # to find the front takes as long as to ask for a few items
            rows = pareto_front(rows)
        fits[items] = rows_holding(rows, sizes[items]).any(axis=1)
    return fits


def _rounded_up(problem: BinPackingProblem) -> BinPackingProblem:
    """The problem with fewer sizes of pods: those between a power of two and the next are one of 2**4, or fewer."""
    _, exponent = np.frexp(problem.sizes.astype(np.float64))
    sizes = problem.sizes
    for steps in (4, 3, 2, 1):
        unit = np.left_shift(1, np.maximum(exponent - 1 - steps, 0).astype(np.int64))
        sizes = -(-problem.sizes // unit) * unit
        if len({line.tobytes() for line in sizes}) <= _MANY_KINDS:
            break
    return msgspec.structs.replace(problem, sizes=np.where(_fitting(problem, sizes)[:, None], sizes, problem.sizes))


def _least_nodes(problem: BinPackingProblem) -> int:
    """About how many nodes there will be: as many as a rule or a resource needs."""
    needs = [
        float(problem.counts[mask].sum()) / max(cap, 1)
        for mask, cap in zip(problem.owners & problem.capped, problem.caps.tolist(), strict=True)
    ]
    needs += [float(problem.counts[mask].sum()) for mask in cliques(problem.clash)]
    total, largest = problem.counts @ problem.sizes, problem.net.max(axis=0, initial=1)
    return int(max([1.0, *needs, *(total / np.maximum(largest, 1)).tolist()]))


def _filling(problem: BinPackingProblem, reduced: ReducedProblem) -> Filling | None:
    """The cheapest filling found at once; None where a pod finds no place."""
    one = _on_one_node(problem, reduced)
    if one is not None and one.hourly(problem) <= _dearest_alone(reduced):
        return one
    bound, _, used = totals_bound(reduced, _unlimited())
    least = least_price(bound, reduced.price) * (1 + EXACT), _fewest_nodes(reduced)
    if one is not None and _filling_rank(problem, one)[0] <= least[0]:
        return one
    best: Filling | None = None
    for found in _fillings(problem, reduced, float(used.sum())):
        best = found if best is None else min(best, found, key=lambda one: _filling_rank(problem, one))
        price, nodes = _filling_rank(problem, best)
        if price <= least[0] and nodes <= least[1]:
            break
    return best


def _on_one_node(problem: BinPackingProblem, reduced: ReducedProblem) -> Filling | None:
    """All pods on one node; None where no row, or a rule, allows it."""
    asked, exact = reduced.demand > 0, reduced.sizes.shape[1] - reduced.soft
    total = (reduced.sizes * reduced.demand[:, None]).sum(axis=0)[:exact]
    if not (reduced.suits[asked].all(axis=0) & (reduced.net[:, :exact] >= total).all(axis=1)).any():
        return None
    found = realise(problem, reduced, reduced.demand[None, :], _unlimited())
    return found if found is not None and len(found.rows) == 1 else None


def _dearest_alone(reduced: ReducedProblem) -> float:
    """USD per hour that the dearest pod costs alone, which no filling undercuts."""
    asked = reduced.demand > 0
    holds = rows_holding(reduced.net, reduced.sizes[asked]) & reduced.suits[asked]
    return float(np.max(reduced.price[holds.argmax(axis=1)]))


def _fillings(problem: BinPackingProblem, reduced: ReducedProblem, nodes: float) -> Iterator[Filling]:
    """Fillings that are found at once; `nodes` is how many there are at least."""
    pods, kinds = int(problem.counts.sum()), int(np.count_nonzero(reduced.demand))
    several = pods <= _SMALL_BATCH or (pods <= MOST_GROWN and kinds <= FEW_GROWN)
    # Fewer pods than that are on one node or two, whatever is bought.
    fine = float(reduced.demand.sum()) >= _FINE * max(nodes, 1.0)
    for way in _ways(problem, reduced, fine=fine, several=several):
        found = realise(problem, *way, _unlimited())
        if found is not None:  # joining saves more in one filling than in another
            yield _in_placing_order(join_nodes(problem, found, reduced.rows, _unlimited()))
    if pods <= _SMALL_BATCH:
        yield first_fit(problem)


def _fewest_nodes(reduced: ReducedProblem) -> int:
    """As many nodes as a resource or a strong rule needs, whatever is bought."""
    exact = reduced.sizes.shape[1] - reduced.soft
    total = (reduced.sizes[:, :exact] * reduced.demand[:, None]).sum(axis=0)
    largest = reduced.net[:, :exact].max(axis=0, initial=1)
    return int(np.ceil(max([1.0, *(total / largest).tolist()]) * (1 - ROUNDING)))


def _ways(
    problem: BinPackingProblem, reduced: ReducedProblem, *, fine: bool, several: bool
) -> Iterator[tuple[ReducedProblem, Floats]]:
    """Patterns [nodes, kinds] that are found at once, each with the reduced problem whose kinds they have."""
    dealt = _dealt(reduced) if fine else []
    yield from ((reduced, patterns) for patterns in dealt)
    if dealt and not several:
        return
    if not dealt and np.count_nonzero(reduced.demand) > _MANY_KINDS:
        [(_, reduced, _)] = reduce_problems([_rounded_up(problem)], [_least_nodes(problem)])
    weights = size_weights(reduced)[: None if several else 1]
    tried: set[bytes] = set()
    for patterns in grown_in_turn(reduced, leading_kinds(reduced), weights, _unlimited()):
        content = patterns.tobytes()
        if content not in tried:
            tried.add(content)
            yield reduced, patterns


def totals_bound(reduced: ReducedProblem, effort: Effort) -> tuple[float, Floats, Floats]:
    """What no filling undercuts, the value of a pod of each kind by its size then, and how much of each row is used.

    Soft resources do not count, as they are not exact.
    """
    exact = reduced.sizes.shape[1] - reduced.soft
    sizes, net = reduced.sizes[:, :exact], reduced.net[:, :exact]
    total = (sizes * reduced.demand[:, None]).sum(axis=0)
    bound, units, used = covering_mixture(total, net, reduced.price, effort)
    return bound, (sizes * units[None, :]).sum(axis=1), used


def leading_kinds(reduced: ReducedProblem) -> Bools:
    """Kinds [kinds] under the rule that needs most nodes; none without such rules."""
    if not reduced.rules:
        return np.zeros(len(reduced.sizes), np.bool_)
    found: Bools = reduced.sizes[:, -reduced.soft - reduced.rules] > 0
    return found


def _filling_rank(problem: BinPackingProblem, filling: Filling) -> tuple[float, int]:
    """The lower, the better: the price, then the number of nodes."""
    return round(float(problem.price[filling.rows].sum()), 9), len(filling.rows)


def _unlimited() -> Effort:
    return Effort(np.inf)


def _dealt(reduced: ReducedProblem) -> list[Floats]:
    """Patterns [nodes, kinds] of pods dealt out to a mixture of nodes; none if that leaves more than a few over."""
    tried: Ints = np.zeros(0, np.int64)
    for slack in _FIRST_SLACKS:
        rows = mix(reduced, slack, _unlimited())
        if not len(rows):
            return []
        if len(rows) == 1 and _holds_all(reduced, int(rows[0])):
            return [reduced.demand[None, :]]
        is_last = slack == _FIRST_SLACKS[-1]
        if not is_last and np.array_equal(rows, tried):
            continue
        tried = rows
        counts, left, fullest = deal(reduced, rows, _unlimited(), all_or_none=not is_last)
        if not np.isfinite(fullest):
            continue
        some = np.flatnonzero(left)
        if not len(some):
            return [counts[counts.any(axis=1)]]
        if is_last:
            rest = restricted_to_kinds(reduced, some, left[some])
            nodes = grow_nodes(rest, leading_kinds(rest), size_weights(rest)[0], _unlimited())
            more = np.zeros((len(nodes), len(left)))
            more[:, some] = nodes
            counts = np.concatenate([counts, more])
            return [counts[counts.any(axis=1)]]
    return []


def _holds_all(reduced: ReducedProblem, row: int) -> bool:
    """True if one node of a row holds all pods."""
    asked = reduced.demand > 0
    total = (reduced.sizes * reduced.demand[:, None]).sum(axis=0)
    return bool(reduced.suits[asked, row].all()) and bool((total <= reduced.net[row]).all())


def _in_placing_order(filling: Filling) -> Filling:
    """The same filling, nodes with the item that is placed first first: limits refuse the last nodes."""
    edges = np.searchsorted(filling.node, np.arange(len(filling.rows)))
    order = np.argsort(filling.item[edges], kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    entries = np.lexsort((filling.item, rank[filling.node]))
    return Filling(filling.rows[order], rank[filling.node][entries], filling.item[entries], filling.number[entries])


def pod_values(problem: BinPackingProblem) -> Floats:
    """USD per hour that a pod of each item [items] is worth: its share of the cheapest fractional mixture of rows."""
    possible = _possible(problem)
    if not possible.counts.any():
        return np.zeros(len(problem.counts))
    [(_, reduced, _)] = reduce_problems([possible], [_least_nodes(possible)])
    _, values, _ = totals_bound(reduced, _unlimited())
    return np.where(possible.counts > 0, values[reduced.kind_of], 0.0).round(9)


_NODES = (3, 4, 6, 9, 14)
"""How many of the most wasteful nodes are packed again at a time."""


_LEAST_MICROS = 50_000.0
"""Effort that packing nodes again takes at least: with less it comes to nothing."""


def repack_wasteful(reduced: ReducedProblem, patterns: Floats, values: Floats, effort: Effort) -> Floats:
    """Patterns [nodes, kinds] of the same pods, never dearer; `values` [kinds] says what a pod is worth."""
    for number in _NODES:
        if effort.left < _LEAST_MICROS:
            break
        price = reduced.price[reduced.launched(patterns)]
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
        if reduced.cost(found) < reduced.cost(some) - ROUNDING:
            patterns = np.concatenate([others, found])
    return patterns


_NEGLIGIBLE = CLOSE / 10
"""The search stops when a filling costs at most this part more than the bound."""

_MOST_PATTERN_CELLS = 1 << 23
"""Kinds times pods up to which nodes are grown again without rules: larger patterns take long to count."""

_SLACKS = (0.0, 0.001, 0.002, 0.004)
"""The same in the search, closer to what is needed."""

_EACH_POD, _FEW_PODS = 1000.0, 25
"""Microseconds of effort per pod of a batch that is not small, and the least number of pods to count."""

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
    if _nothing_to_save(problems, effort):
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


def _nothing_to_save(problems: Sequence[BinPackingProblem], effort: Effort) -> bool:
    # The first filling already buys the cheapest row that holds a single pod.
    return effort.spent or all(problem.counts.sum() <= 1 for problem in problems)


def effort_worth(problems: Sequence[BinPackingProblem]) -> float:
    """Microseconds of effort for the pods of problems: a small batch does not wait for a saving of a cent."""
    pods = sum(int(problem.counts.sum()) for problem in problems)
    return _EACH_POD * (max(_FEW_PODS, pods * min(1.0, pods / _SMALL_BATCH)) if pods else 0)


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

    `bound` is what no filling undercuts, `least` the same for whole nodes, `values` [kinds] what a pod is worth by its
    size then, and `fine` whether nodes hold many pods.
    """

    place: int
    problem: BinPackingProblem
    filling: Filling
    reduced: ReducedProblem
    bound: float
    least: float
    values: Floats
    fine: bool

    @classmethod
    def of(
        cls, place: int, problem: BinPackingProblem, filling: Filling, reduced: ReducedProblem, effort: Effort
    ) -> _ProblemSearch:
        bound, values, used = totals_bound(reduced, effort)
        fine = float(reduced.demand.sum()) >= _FINE * float(used.sum())
        return cls(place, problem, filling, reduced, bound, least_price(bound, reduced.price), values, fine)

    @property
    def cost(self) -> float:
        """USD per hour of the present filling."""
        return float(self.problem.price[self.filling.rows].sum())

    @property
    def gap(self) -> float:
        """USD per hour that could be saved at most; 0 when that is negligible."""
        return self.cost - self.bound if self.cost > self.least * (1 + _NEGLIGIBLE) else 0.0

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
        return patterns

    def grown_patterns(self, effort: Effort) -> list[Floats]:
        """Patterns of nodes that grow by the least price step, in several ways.

        With rules, which open nodes; and without where there are too many kinds for column generation.
        """
        kinds = len(self.reduced.sizes)
        many = kinds > _MANY_KINDS and not self.fine and kinds * self.reduced.demand.sum() <= _MOST_PATTERN_CELLS
        return grown_patterns(self.reduced, effort) if self.reduced.rules or many else []

    def improved_filling(self, patterns: Floats, effort: Effort) -> Filling:
        """The filling of these patterns if it ranks before the present one, else the present one."""
        present = _filling_rank(self.problem, self.filling)
        if (round(self.reduced.cost(patterns), 9), len(patterns)) >= present:
            return self.filling
        found = realise(self.problem, self.reduced, patterns, effort)
        if found is None:
            return self.filling
        found = join_nodes(self.problem, found, self.reduced.rows, effort)
        return found if _filling_rank(self.problem, found) < present else self.filling

    def best_of(self, patterns: Sequence[Floats]) -> Floats:
        """The patterns that cost least; of equal ones those of the fewest nodes."""
        costs = [round(self.reduced.cost(some), 9) for some in patterns]
        return patterns[min(range(len(patterns)), key=lambda place: (costs[place], len(patterns[place])))]


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
        best = {search.place: search.best_of(starting_patterns[search.place]) for search in searches}
        if generation is None:
            for search in searches:
                best[search.place] = search.best_of((best[search.place], *search.grown_patterns(effort)))
        else:
            if not self._close(best, generation):
                self._dive(searches, best, generation, effort, BOLD)
            if not self._close(best, generation):
                self._grow(searches, best, generation, effort)
                self._dive(searches, best, generation, effort, CAREFUL)
            for search in searches:
                if self._close(best, generation):
                    break
                if search.reduced.cost(best[search.place]) > search.bound * (1 + _NEGLIGIBLE):
                    best[search.place] = repack_wasteful(search.reduced, best[search.place], search.values, effort)
        return [(search.place, search.improved_filling(best[search.place], effort)) for search in searches]

    def _close(self, best: dict[int, Floats], generation: Generation) -> bool:
        """True if `best` costs hardly more than contents bought in fractions would, as far as column generation knows.

        Whole pods on whole nodes often cost more than resources bought in fractions, however long the search takes.
        """
        least = min(generation.bound, generation.program.objective)
        costs = [
            search.reduced.cost(best[search.place]) if search.place in best else search.cost for search in self.searches
        ]
        return sum(costs) <= least * (1 + CLOSE)

    def _grow(
        self, searches: Sequence[_ProblemSearch], best: dict[int, Floats], found: Generation, effort: Effort
    ) -> None:
        """Grow nodes for each problem, put what is cheaper into `best`, and all patterns into the pool."""
        for search in searches:
            grown = search.grown_patterns(effort)
            best[search.place] = search.best_of((best[search.place], *grown))
            if grown:
                found.pool.add(np.unique(np.concatenate(grown), axis=0))

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
                reduced,
                found.pool,
                reduced.demand,
                found.best_values,
                part,
                _strategies_on(search, found),
                care,
                found.program,
            )
            best[search.place] = search.best_of((best[search.place], dived))
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
        generation.run()
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
    weights = size_weights(reduced)
    patterns = [grow_nodes(reduced, leading_kinds(reduced), weights[0], effort)]
    return patterns + [
        grow_nodes(reduced, leading_kinds(reduced), each, effort) for each in weights[1:] if not effort.spent
    ]


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


_Known = TypeVar("_Known")

_CACHE: dict[bytes, tuple[tuple[Filling | None, ...], float]] = {}
"""By digest of the input: the fillings, None where nothing was cheaper, and the effort left. The oldest come first."""

_FIRST: dict[bytes, list[Filling]] = {}
"""First fillings by digest of their problems. The oldest come first."""

_LOCK = Lock()


def fill_cached(problems: Sequence[BinPackingProblem]) -> list[Filling]:
    """As `fill_cheaply`, with a cache for batches that are not large.

    Disruption asks for the same small ones again and again, and a plan does for those that it fills once more without
    the cost search, or within limits.
    """
    pods = sum(int(problem.counts.sum()) for problem in problems)
    if not 1 < pods <= MOST_GROWN:
        return fill_cheaply(problems)
    asked = _digest(problems, 0.0)
    found = _recall(_FIRST, asked)
    if found is None:
        found = fill_cheaply(problems)
        _remember(_FIRST, asked, found)
    return list(found)


def improve_cached(
    problems: Sequence[BinPackingProblem], fillings: Sequence[Filling], effort: Effort
) -> tuple[Filling, ...]:
    """As `improve`, with a cache. A cached result uses up the same effort, so that plans do not depend on the cache."""
    if _nothing_to_save(problems, effort):
        return tuple(fillings)
    granted = min(effort.left, effort_worth(problems))
    asked = _digest((*problems, *fillings), granted)
    known = _recall(_CACHE, asked)
    if known is None:
        part = Effort(granted)
        improved = improve(problems, fillings, part)
        better = tuple(new if new is not old else None for new, old in zip(improved, fillings, strict=True))
        known = (better, part.left)
        _remember(_CACHE, asked, known)
    effort.left -= granted - known[1]
    return tuple(old if new is None else new for new, old in zip(known[0], fillings, strict=True))


def _recall(cache: dict[bytes, _Known], asked: bytes) -> _Known | None:
    with _LOCK:
        known = cache.pop(asked, None)
        if known is not None:
            cache[asked] = known
    return known


def _remember(cache: dict[bytes, _Known], asked: bytes, known: _Known) -> None:
    with _LOCK:
        cache[asked] = known
        while len(cache) > BOUNDS.remembered_searches:
            del cache[next(iter(cache))]


def clear_cache() -> None:
    """Empty the caches, as in a new process. For benchmarks."""
    with _LOCK:
        _CACHE.clear()
        _FIRST.clear()


def _digest(parts: Iterable[BinPackingProblem | Filling], granted: float) -> bytes:
    digest = hashlib.blake2b(repr(granted).encode(), digest_size=16)
    for part in parts:
        for field in part.__struct_fields__:
            array: np.ndarray = getattr(part, field)
            digest.update(f"{field}{array.shape}{array.dtype}".encode())
            # Which items exclude each other is one bit for each pair, most of what there is to read.
            bits = np.packbits(array) if array.dtype == np.bool_ else np.ascontiguousarray(array)
            digest.update(bits.data)
    return digest.digest()
