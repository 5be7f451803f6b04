"""Column generation: whole nodes for a problem in which a node holds few pods.

A linear program over the patterns known so far gives each kind of pod a value. Many greedy fills at a time find
patterns that are worth more than their node costs; they are added, until there are none. The values are smoothed
towards the best ones seen, without which they swing. Then the patterns that are certain are bought as whole nodes, the
program is solved for the rest, and so on.

The solver uses only element-wise arithmetic and plain sums, no BLAS or LAPACK: these round differently from machine to
machine, and a different last bit could choose another column and thereby another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import ROUNDING, Bools, Floats, Ints, rows_holding
from shiplap.scheduling.search.effort import Effort

_GAIN = 1e-4
"""A pattern is added when it is worth this part more than it costs."""

ENTER = 2 * _GAIN
"""A column enters the basis when it saves more than this part of its cost."""

_sum: Callable[..., Floats] = np.add.reduce
"""Plain sums, without the steps that `ndarray.sum` takes before it; arrays here are small."""

_least: Callable[..., Floats] = np.minimum.reduce
_greatest: Callable[..., Floats] = np.maximum.reduce

CLOSE = 5e-3
"""The search stops when a filling costs at most this part more than column generation finds possible."""

_TAIL, _NEXT_TO_NOTHING = 4, 1e-3
"""It finds hardly more once it is as close to its estimate and so many rounds have gained less than this part."""

_FEASIBLE = 1e-7
"""Amounts below it count as none: a hundred times what rounding leaves after some hundred pivots."""

_REFRESH = 400
"""Pivots after which the inverse is computed again from the basis."""

_CANDIDATES = 24
"""Columns looked at closely before all are looked at again."""


class ReducedProblem(msgspec.Struct, frozen=True, eq=False):
    """`sizes` [kinds, resources] and `net` [rows, resources] are whole numbers; rules come last as resources.

    `demand` [kinds] pods; `rows` [rows] are places in the problem, cheapest first, `price` [rows] in USD per hour;
    `suits` [kinds, rows]. `kind_of` [items]. The last `soft` resources are not exact: they limit patterns to
    those that probably keep the rules that patterns do not contain. The `rules` resources before them are rules,
    the one that needs most nodes first.
    """

    sizes: Floats
    demand: Floats
    net: Floats
    price: Floats
    suits: Bools
    rows: Ints
    kind_of: Ints
    soft: int = 0
    rules: int = 0

    def hard(self) -> ReducedProblem:
        """The problem without its soft resources."""
        width = self.sizes.shape[1] - self.soft
        return msgspec.structs.replace(self, sizes=self.sizes[:, :width], net=self.net[:, :width], soft=0)

    def cheapest(self, patterns: Floats) -> Ints:
        """The first, so cheapest, row that holds each pattern [n, kinds]; -1 for none."""
        found = np.full(len(patterns), -1, np.int64)
        use = pattern_loads(patterns, self.sizes)
        restricted = not self.suits.all()
        step = max(1, (1 << 21) // max(self.net.size, 1))
        for start in range(0, len(patterns), step):
            part = slice(start, start + step)
            holds = rows_holding(self.net, use[part])
            if restricted:
                for kind in np.flatnonzero(~self.suits.all(axis=1)).tolist():
                    holds &= self.suits[kind][None, :] | (patterns[part, kind] == 0)[:, None]
            found[part] = np.where(holds.any(axis=1), holds.argmax(axis=1), -1)
        return found

    def launched(self, patterns: Floats) -> Ints:
        """As `cheapest`; for patterns beyond the soft resources the row that holds them without these."""
        rows = self.cheapest(patterns)
        beyond = np.flatnonzero(rows < 0)
        if self.soft and len(beyond):
            rows[beyond] = self.hard().cheapest(patterns[beyond])
        return rows

    def cost(self, patterns: Floats) -> float:
        """USD per hour of nodes with these patterns."""
        return float(self.price[self.launched(patterns)].sum())


def pattern_loads(patterns: Floats, sizes: Floats) -> Floats:
    """Return the exact amount of each resource that patterns [n, kinds] take: [n, resources]."""
    return np.stack([(patterns * sizes[None, :, r]).sum(axis=1) for r in range(sizes.shape[1])], axis=1)


def restricted_to_kinds(reduced: ReducedProblem, kinds: Ints, demand: Floats) -> ReducedProblem:
    """The problem of some kinds only, with a demand of their own [kinds]."""
    return msgspec.structs.replace(
        reduced, sizes=reduced.sizes[kinds], demand=demand, suits=reduced.suits[kinds], kind_of=np.zeros(0, np.int64)
    )


class CoveringProgram:
    """min cost·x subject to columns·x ≥ demand, x ≥ 0, by the revised primal simplex method.

    `columns` [rows, n] and `cost` [n]. Without a `start` the first `rows` columns must be a feasible basis of their
    own: column i covers row i and nothing else. Further ones are added as they are found.
    """

    def __init__(self, demand: Floats, columns: Floats, cost: Floats, start: tuple[Ints, Floats] | None = None) -> None:
        """`start` is another basis [rows] and its inverse [rows, rows]."""
        self.rows = len(demand)
        self.columns, self.cost = columns, cost
        # A little more of every row, each its own amount, keeps ties from making the method go in circles.
        self._more: Floats = _FEASIBLE * (1.0 + np.arange(self.rows) / max(self.rows, 1))
        self.demand: Floats = demand + self._more
        if start is None:
            start = np.arange(self.rows), np.diag(1.0 / np.diagonal(columns[:, : self.rows]))
        self.basis, self._inverse = start
        self.duals: Floats = np.zeros(self.rows)
        """The cost of one more unit of each row's demand [rows]."""
        self.basic: Floats = np.zeros(self.rows)
        """The values of the basic variables [rows], in the order of `basis`."""
        self._settle()
        self._pivots = 0

    def begun_with(self, demand: Floats, columns: Floats, cost: Floats) -> CoveringProgram | None:
        """The program of another demand [rows] over its own columns [rows, n], from the basis of this one.

        The first columns are the basic ones of this program, in their order and without surplus; their cost may differ.
        None where the basis takes too many pivots to become feasible for the demand.
        """
        real = self.basis >= 0
        basis: Ints = np.where(real, np.cumsum(real) - 1, self.basis)
        other = CoveringProgram(demand, columns, cost, (basis, self._inverse.copy()))
        return other if other._make_feasible() else None

    def _make_feasible(self) -> bool:
        """Pivot by the dual simplex method until no basic variable is negative; False when that takes too long."""
        gain = np.maximum(self.cost - self._worth(self.duals), 0.0)
        surplus = np.maximum(self.duals, 0.0)
        for _ in range(self.rows):
            leave = int(np.argmin(self.basic))
            if self.basic[leave] >= -_FEASIBLE:
                return True
            line = self._inverse[leave]
            # What each unit of a column, or of a row's surplus, takes off the negative variable.
            steps = np.concatenate([self._worth(line), -line])
            can: Ints = (steps < -ROUNDING).nonzero()[0]
            if not len(can):
                return False
            worth = np.concatenate([gain, surplus])
            ratio = worth[can] / -steps[can]
            least = _least(ratio)
            tied: Ints = (ratio <= least * (1 + 1e-9) + 1e-12).nonzero()[0]
            entering = int(can[tied[int(np.argmin(steps[can][tied]))]])
            worth = np.maximum(worth + least * steps, 0.0)
            gain, surplus = worth[: len(gain)], worth[len(gain) :]
            if entering < len(gain):
                self._exchange(leave, self.columns[:, entering], float(self.cost[entering]), entering)
            else:
                row = entering - len(gain)
                self._exchange(leave, self._surplus_column(row), 0.0, -1 - row)
        return False

    def add(self, columns: Floats, cost: Floats) -> None:
        """Add columns [rows, n] with their cost [n]."""
        self.columns = np.concatenate([self.columns, columns], axis=1)
        self.cost = np.concatenate([self.cost, cost])

    def _worth(self, values: Floats) -> Floats:
        """Return the worth of the columns [n] if one unit of each row is worth `values` [rows]."""
        return _sum(values[:, None] * self.columns, axis=0)

    @property
    def objective(self) -> float:
        """The cost of the present solution."""
        return float((self._basic_cost() * self.basic).sum())

    def solution(self) -> Floats:
        """Return how much of each column the solution uses [n]."""
        x = np.zeros(self.columns.shape[1])
        real = self.basis >= 0
        x[self.basis[real]] = np.maximum(self.basic[real], 0.0)
        return x

    @property
    def basic_columns(self) -> Floats:
        """The basic columns [rows, n], in their order and without surplus."""
        return self.columns[:, self.basis[self.basis >= 0]]

    @property
    def used(self) -> Floats:
        """The basic columns [rows, n] that are used at all."""
        return self.columns[:, self.basis[(self.basis >= 0) & (self.basic > 0)]]

    def begin_with(self, columns: Floats, cost: Floats, effort: Effort) -> None:
        """Add columns [rows, n] that are probably used, and use them before others are looked at."""
        if len(cost):
            before = len(self.cost)
            self.add(columns, cost)
            self._improve_by(np.arange(before, len(self.cost)), effort)

    def solve(self, effort: Effort) -> bool:
        """Pivot until no column improves; False when the effort ran out first."""
        while not effort.spent:
            effort.charge(14, 2.0 * self.columns.size + 2.0 * self.rows**2)
            self._settle()
            gain = (self.cost - self._worth(self.duals)) / self.cost
            some: Ints = (gain < -ENTER).nonzero()[0]
            some = some[gain[some].argsort(kind="stable")[:_CANDIDATES]]
            before = self._pivots
            if len(some):
                self._improve_by(some, effort)
            else:
                surplus = int(np.argmin(self.duals))
                # A row whose covering costs less than nothing is covered too much: its surplus variable enters.
                if self.duals[surplus] < -ROUNDING:
                    self._pivot(self._surplus_column(surplus), 0.0, -1 - surplus)
            if self._pivots == before:
                return True
        return False

    def _improve_by(self, some: Ints, effort: Effort) -> None:
        """Pivot on a few columns until none of them improves."""
        columns, cost = self.columns[:, some], self.cost[some]
        while not effort.spent:
            effort.charge(18, 2.0 * columns.size + 4.0 * self.rows**2)
            gain = (cost - _sum(self.duals[:, None] * columns, axis=0)) / cost
            best = int(np.argmin(gain))
            if gain[best] >= -ENTER or not self._pivot(columns[:, best], float(cost[best]), int(some[best])):
                return

    def _surplus_column(self, row: int) -> Floats:
        column = np.zeros(self.rows)
        column[row] = -1.0
        return column

    def _basic_cost(self) -> Floats:
        return np.where(self.basis >= 0, self.cost[np.maximum(self.basis, 0)], 0.0)

    def _settle(self) -> None:
        """Compute duals and basic variables from the inverse: pivots only change them, which adds up errors."""
        self.duals = _sum(self._basic_cost()[:, None] * self._inverse, axis=0)
        self.basic = _sum(self._inverse * self.demand, axis=1)

    def _pivot(self, column: Floats, cost: float, entering: int) -> bool:
        """Let a column [rows] enter the basis; False if no row bounds it."""
        direction = _sum(self._inverse * column, axis=1)
        can: Ints = (direction > ROUNDING).nonzero()[0]
        if not len(can):
            return False
        steps = direction.take(can)
        ratio = np.maximum(self.basic.take(can), 0.0) / steps
        tied: Ints = (ratio <= _least(ratio) * (1 + 1e-9) + 1e-12).nonzero()[0]
        # Of rows that tie, the one with the largest pivot loses the least precision.
        place = tied[0] if len(tied) == 1 else tied[int(np.argmax(steps.take(tied)))]
        self._exchange(int(can[place]), column, cost, entering, direction)
        return True

    def _exchange(
        self, leave: int, column: Floats, cost: float, entering: int, direction: Floats | None = None
    ) -> None:
        """Let a column [rows] take the place of the basic variable of the row `leave`."""
        if direction is None:
            direction = _sum(self._inverse * column, axis=1)
        line = self._inverse[leave] / direction[leave]
        self.duals += (cost - _sum(self.duals * column)) * line
        step = self.basic[leave] / direction[leave]
        self.basic -= step * direction
        self.basic[leave] = step
        self._inverse -= direction[:, None] * line
        self._inverse[leave] = line
        self.basis[leave] = entering
        self._pivots += 1
        if self._pivots % _REFRESH == 0:
            self._refresh()

    def _refresh(self) -> None:
        """Compute the inverse again from the basis, to shed rounding errors: Gauss-Jordan with row pivoting."""
        size = self.rows
        work = np.zeros((size, 2 * size))
        for place, entry in enumerate(self.basis.tolist()):
            if entry >= 0:
                work[:, place] = self.columns[:, entry]
            else:
                work[-1 - entry, place] = -1.0
        work[:, size:] = np.eye(size)
        for place in range(size):
            pivot = place + int(np.argmax(np.abs(work[place:, place])))
            if pivot != place:
                work[[place, pivot]] = work[[pivot, place]]
            line = work[place] / work[place, place]
            work -= work[:, place : place + 1] * line[None, :]
            work[place] = line
        self._inverse = work[:, size:].copy()
        self._settle()


class Patterns(msgspec.Struct, frozen=True, eq=False):
    """`counts` [n, kinds] pods of each kind on nodes of `row` [n]; `strategy` and `seed` [n] are where each began."""

    counts: Floats
    strategy: Ints
    row: Ints
    seed: Ints


class FillStrategies(msgspec.Struct, frozen=True, eq=False):
    """Ways to fill a node: its row [n], and the weight [n] of the first resource against the second in a pod's size."""

    row: Ints
    weight: Floats


def all_strategies(rows: Ints, weights: Floats) -> FillStrategies:
    """Every row with every weight."""
    return FillStrategies(np.repeat(rows, len(weights)), np.tile(weights, len(rows)))


def _some_strategies(rows: int, most: int, most_weights: int) -> FillStrategies:
    """About `most` strategies: every row with 5 to `most_weights` weights."""
    weights = int(np.clip(most // rows, 5, most_weights))
    return all_strategies(np.arange(rows), np.linspace(0.0, 1.0, weights))


def greedy_fills(
    reduced: ReducedProblem, demand: Floats, values: Floats, strategies: FillStrategies, seeds: Floats, effort: Effort
) -> Patterns:
    """Greedy fills by value per size, for every strategy and every seed [seeds, kinds] that its row holds."""
    row = strategies.row
    kinds, many = len(reduced.sizes), len(row)
    effort.charge(12 * kinds, 14.0 * many * len(seeds) * kinds)
    order = _orders(reduced, values, strategies)
    allowed = reduced.suits[:, row] & (values > 1e-12)[:, None]
    start = pattern_loads(seeds, reduced.sizes)
    # Kinds that are worth nothing stand last: the steps end with the last one that any strategy may take.
    wanted = np.take_along_axis(allowed, order.T, axis=0)
    taking: Ints = np.flatnonzero(wanted.any(axis=1))
    steps = int(taking[-1]) + 1 if len(taking) else 0
    resources = _Resources(reduced, row, start)
    counts = np.zeros((many, kinds, len(seeds)))
    spare = np.maximum(demand[:, None] - seeds.T, 0.0)
    line = np.arange(many)
    for kind, may in zip(order.T[:steps], wanted[:steps], strict=True):
        room = np.minimum(spare.take(kind, axis=0), resources.room(kind))
        if _greatest(room, axis=None, initial=0.0) < 1.0:
            continue
        np.floor(room, out=room)
        room *= may[:, None]
        resources.take(kind, room)
        counts[line, kind] = room
    place, seed = np.nonzero(_holds(reduced, seeds, start, row))
    patterns = counts.transpose(0, 2, 1)[place, seed]
    patterns += seeds[seed]
    return Patterns(patterns, place, row[place], seed)


class _Resources:
    """The amounts that many fills have left of all resources: `free` [resources, fills, seeds]."""

    def __init__(self, reduced: ReducedProblem, row: Ints, start: Floats) -> None:
        """Nodes of `row` [fills] that hold `start` [seeds, resources] already."""
        free = np.maximum(reduced.net[row].T[:, :, None] - start.T[:, None, :], 0.0)
        self.free: Floats = np.ascontiguousarray(free)
        self._sizes: Floats = np.ascontiguousarray(reduced.sizes.T)[:, :, None]
        # A resource that a kind does not need must not bound it, even if none is left. Bytes by this stay finite.
        self._divisor: Floats = np.where(self._sizes > 0, self._sizes, 1e-280)
        self._unneeded: Floats = np.where(self._sizes > 0, 0.0, 1.0)
        self._mixed = bool((reduced.sizes == 0).any())
        self._parts: Floats = np.empty_like(self.free)

    def room(self, kind: Ints) -> Floats:
        """Return how many pods of `kind` [fills] would fit [fills, seeds], fractions included."""
        parts, free = self._parts, self.free
        if self._mixed:
            free = np.add(free, self._unneeded.take(kind, axis=1), out=parts)
        np.divide(free, self._divisor.take(kind, axis=1), out=parts)
        return _least(parts, axis=0)

    def take(self, kind: Ints, room: Floats) -> None:
        """Take the resources of `room` pods of `kind` [fills]."""
        self.free -= np.multiply(room, self._sizes.take(kind, axis=1), out=self._parts)


def _holds(reduced: ReducedProblem, seeds: Floats, start: Floats, rows: Ints) -> Bools:
    """Return a mask [rows, seeds]: True where a row holds a seed and suits it."""
    holds = rows_holding(reduced.net, start)
    if not reduced.suits.all():
        holds &= ~((seeds > 0) @ ~reduced.suits)
    mask: Bools = holds.T[rows]
    return mask


def _orders(reduced: ReducedProblem, values: Floats, strategies: FillStrategies) -> Ints:
    """In which order each strategy takes kinds [strategies, kinds]: densest first."""
    net = np.maximum(reduced.net[strategies.row], 1.0)
    first = reduced.sizes[:, 0][None, :] / net[:, :1]
    second = reduced.sizes[:, 1][None, :] / net[:, 1:2] if net.shape[1] > 1 else first
    size = strategies.weight[:, None] * first + (1.0 - strategies.weight)[:, None] * second + 1e-9
    return np.argsort(-np.maximum(values, 0.0)[None, :] / size, axis=1, kind="stable")


def values_of(patterns: Floats, values: Floats) -> Floats:
    """Return the worth of patterns [n, kinds] at these values [kinds]."""
    return (patterns * values[None, :]).sum(axis=1)


_SMOOTH = 0.4
"""The part that the best values so far have in the values of a round: without it a batch costs up to 0.8 % more."""

_ALL_STRATEGIES, _FEW_STRATEGIES = 2600, 800
"""Strategies that are asked before the search ends, and on the way. With few alone a batch costs up to 0.9 % more."""

_STRATEGIES, _REFRESH_STRATEGIES = 18, 3
"""The most promising of them, which each round asks for a pattern with each kind; they are chosen every few rounds."""

_EACH_SEED = 2
"""Patterns of each kind that a round adds. With one the search needs half as much effort again."""


class PatternPool:
    """Patterns found so far, each once and on its cheapest row: `counts` [n, kinds], `price` [n]."""

    def __init__(self, reduced: ReducedProblem) -> None:
        self.reduced = reduced
        self.counts: Floats = np.zeros((0, len(reduced.sizes)))
        self.price: Floats = np.zeros(0)
        self._seen: set[bytes] = set()

    def add(self, counts: Floats) -> int:
        """Add patterns [n, kinds] as far as some row holds them; returns how many were new."""
        fresh = []
        for place, line in enumerate(counts.astype(np.int32)):
            key = line.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(place)
        row = self.reduced.launched(counts[fresh])
        # Patterns of a problem with the same node capacities may need a row that cannot be bought for this one.
        held = row >= 0
        self.counts = np.concatenate([self.counts, counts[fresh][held]])
        self.price = np.concatenate([self.price, self.reduced.price[row[held]]])
        return int(held.sum())

    def best(self, values: Floats, most: int) -> Floats:
        """At most so many patterns [n, kinds], those with the highest value per price, in their order."""
        return self.counts[self._best(values, most)]

    def keep_best(self, values: Floats, most: int) -> None:
        """Forget all but the best."""
        order = self._best(values, most)
        self.counts, self.price = self.counts[order], self.price[order]

    def _best(self, values: Floats, most: int) -> Ints:
        loss = 1.0 - values_of(self.counts, values) / self.price
        return np.sort(np.argsort(loss, kind="stable")[:most])


def covering_mixture(total: Floats, net: Floats, price: Floats, effort: Effort) -> tuple[float, Floats, Floats]:
    """The cheapest fractional mixture of rows that covers the sum of all pods, `total` [resources].

    `net` [rows, resources] and `price` [rows] are those of a reduced problem.
    A resource that no pod needs is worth nothing, and rows may have none of it.
    Returns what it costs (no filling costs less), the value of one unit of each resource, and how much of each row.
    """
    needed: Ints = np.flatnonzero(total > 0)
    shares = net[:, needed] / total[needed]
    size = len(needed)
    best = net[:, needed].argmax(axis=0)
    program = CoveringProgram(np.ones(size), np.diag(shares.max(axis=0)), price[best].copy())
    program.add(shares.T, price)
    program.solve(effort)
    duals = np.maximum(program.duals, 0.0)
    # Rounded values are scaled until no row is worth more than it costs, so that the bound is one.
    worth = (shares * duals[None, :]).sum(axis=1)
    scale = float(np.max(worth / price))
    duals = duals / max(scale, 1e-300)
    solution = program.solution()
    used = solution[size:]
    # What covers one resource only is a whole node of its row, too.
    np.add.at(used, best, solution[:size])
    values = np.zeros(len(total))
    values[needed] = duals / total[needed]
    return float(duals.sum()), values, used


def singles(reduced: ReducedProblem, demand: Floats) -> Floats:
    """For every kind the pattern of it alone that is cheapest per pod [kinds, kinds]."""
    room = np.full((len(reduced.sizes), len(reduced.price)), np.inf)
    for r in range(reduced.sizes.shape[1]):
        size = reduced.sizes[:, r]
        wanted = size > 0
        room[wanted] = np.minimum(room[wanted], np.floor(reduced.net[None, :, r] / size[wanted, None]))
    room = np.minimum(np.where(reduced.suits, room, 0.0), np.maximum(demand, 1.0)[:, None])
    each = np.where(room >= 1, reduced.price[None, :] / np.maximum(room, 1.0), np.inf)
    best = each.argmin(axis=1)
    return np.diag(room[np.arange(len(best)), best])


def starting_program(reduced: ReducedProblem, pool: PatternPool, demand: Floats) -> CoveringProgram:
    """A linear program over the cheapest patterns of one kind each, which come first, and those of the pool."""
    alone = singles(reduced, demand)
    program = CoveringProgram(demand, alone.copy(), reduced.price[reduced.cheapest(alone)])
    program.add(pool.counts.T, pool.price)
    return program


class Generation:
    """Column generation for one demand. Its patterns stay in the pool, the best strategies in `strategies`.

    With `strategies` given, no others are tried. `bound` is an estimate of what no filling undercuts: it would only be
    proven if the greedy fills found the pattern that is worth most for its price.
    """

    def __init__(
        self,
        reduced: ReducedProblem,
        pool: PatternPool,
        demand: Floats,
        values: Floats,
        effort: Effort,
        strategies: FillStrategies | None = None,
        likely: Floats | None = None,
    ) -> None:
        """`likely` [n, kinds] are patterns that the solution probably uses."""
        self.reduced, self.pool, self.demand, self.effort = reduced, pool, demand, effort
        self.best_values = values
        self.bound = 0.0
        self.program = starting_program(reduced, pool, demand)
        if likely is not None:
            row = reduced.cheapest(likely)
            self.program.begin_with(likely[row >= 0].T, reduced.price[row[row >= 0]], effort)
        self._all_strategies = _some_strategies(len(reduced.price), _ALL_STRATEGIES, 21)
        self._few_strategies = _some_strategies(len(reduced.price), _FEW_STRATEGIES, 9)
        self.strategies = strategies
        self._fixed = strategies is not None
        self._age = 0

    def run(self, rounds: float = np.inf) -> None:
        """At most so many rounds, or until no pattern is worth adding, or hardly any more is gained by them."""
        costs: list[float] = []
        while len(costs) < rounds and self.program.solve(self.effort):
            costs.append(self.program.objective)
            if self._tails_off(costs) or not self.round():
                return

    def _tails_off(self, costs: Sequence[float]) -> bool:
        """True if the last rounds, whose solutions had these costs, gained next to nothing near the estimated bound."""
        if len(costs) <= _TAIL or costs[-1] <= costs[-1 - _TAIL] * (1 - _NEXT_TO_NOTHING):
            return False
        return costs[-1] <= self.bound * (1 + CLOSE)

    def round(self) -> bool:
        """Look for patterns that are worth more than they cost; returns whether there were any."""
        duals = np.maximum(self.program.duals, 0.0)
        for smooth, fresh in ((0.0, False),) if self._fixed else ((_SMOOTH, False), (0.0, True)):
            values = np.round(smooth * self.best_values + (1.0 - smooth) * duals, 12)
            strategies, worth = self._strategies_for(values, fresh=fresh)
            seeds = np.eye(len(self.demand))[self.demand >= 1]
            seeded = greedy_fills(self.reduced, self.demand, values, strategies, seeds, self.effort)
            most = float(np.max(values_of(seeded.counts, values) / self.reduced.price[seeded.row]))
            if worth:
                self._remember(values, max(worth, most))
            if self._add(seeded, duals):
                return True
        return False

    def _strategies_for(self, values: Floats, *, fresh: bool) -> tuple[FillStrategies, float]:
        """The most promising strategies, and the best value per price if all strategies were tried again, else 0."""
        self._age += 1
        if self.strategies is not None and (self._fixed or (not fresh and self._age % _REFRESH_STRATEGIES)):
            return self.strategies, 0.0
        none = np.zeros((1, len(self.demand)))
        # Before the search for patterns ends all strategies are asked; on the way a few of each row show where to look.
        asked = self._all_strategies if fresh else self._few_strategies
        plain = greedy_fills(self.reduced, self.demand, values, asked, none, self.effort)
        worth = values_of(plain.counts, values) / self.reduced.price[plain.row]
        self.strategies = _best_strategies(asked, plain.strategy, worth)
        return self.strategies, float(np.max(worth))

    def _remember(self, values: Floats, worth: float) -> None:
        bound = float((values * self.demand).sum()) / max(worth, 1e-300)
        if bound > self.bound:
            self.bound, self.best_values = bound, values

    def _add(self, patterns: Patterns, duals: Floats) -> bool:
        """Add the best patterns of each seed, as far as they pay."""
        gain = values_of(patterns.counts, duals) / self.reduced.price[patterns.row] - 1.0
        order = np.lexsort((-gain, patterns.seed))
        first = np.searchsorted(patterns.seed[order], patterns.seed[order])
        order = order[np.arange(len(order)) - first < _EACH_SEED]
        order = order[gain[order] > _GAIN]
        before = len(self.pool.price)
        if not len(order) or not self.pool.add(patterns.counts[order]):
            return False
        self.program.add(self.pool.counts[before:].T, self.pool.price[before:])
        return True


def _best_strategies(strategies: FillStrategies, strategy: Ints, worth: Floats) -> FillStrategies:
    """The strategies whose patterns are worth the most, on as many different rows as possible."""
    best = np.zeros(len(strategies.row))
    best[strategy] = worth
    order = np.lexsort((-best, strategies.row))
    first = np.searchsorted(strategies.row[order], strategies.row[order])
    order = order[np.arange(len(order)) == first]
    chosen = np.sort(order[np.argsort(-best[order], kind="stable")][:_STRATEGIES])
    return FillStrategies(strategies.row[chosen], strategies.weight[chosen])


class Care(msgspec.Struct, frozen=True):
    """Settings of column generation: its rounds at first and for each rest, and the part that it buys whole at once.

    `enough` is the part of a node from which on it buys one node more. Over 1, it buys whole nodes only.
    """

    first: int
    again: int
    enough: float


BOLD, QUICK, CAREFUL, HASTY = Care(2, 1, 0.5), Care(2, 1, 0.85), Care(4, 2, 1.1), Care(0, 0, 0.3)
"""HASTY is for when no effort is left."""

_STEP = 60_000.0
"""Effort that one hasty step may take, in microseconds. Steps become hasty when half of it is left."""

_ALIKE = 2e-3
"""Patterns of a similar problem are enough if the solution costs at most this part more than its values allow."""

_KEEP = 6
"""How many patterns per kind are taken along, those that cost least beyond their worth."""


def dive(
    reduced: ReducedProblem,
    pool: PatternPool,
    demand: Floats,
    values: Floats,
    effort: Effort,
    strategies: FillStrategies | None = None,
    care: Care = QUICK,
    similar: CoveringProgram | None = None,
) -> Floats:
    """Patterns of whole nodes [nodes, kinds] that hold `demand` [kinds] exactly.

    `pool` has patterns to start with; `similar` is the solved program of another demand of the same kinds;
    `values` [kinds] is the approximate value of a pod; `strategies` are the promising ways to fill nodes.
    """
    kinds: Ints = np.flatnonzero(demand)
    left, counts = demand[kinds], pool.best(values, _KEEP * len(kinds) + 50)[:, kinds]
    likely = np.zeros((0, len(kinds))) if similar is None else similar.used.T[:, kinds]
    bought: list[Floats] = []
    rounds = care.first
    begun = None if similar is None else _begun_with(similar, reduced, pool, demand, values, effort)
    if begun is not None:
        fixed = _whole_nodes(begun, demand, care.enough)
        bought.append(fixed)
        left = demand - fixed.sum(axis=0)
        kinds = np.flatnonzero(left)
        left, counts, likely, values = left[kinds], begun.columns.T[:, kinds], begun.used.T[:, kinds], begun.duals
        rounds = care.again
    values = np.maximum(values[kinds], 0.0)
    while len(kinds):
        rest = restricted_to_kinds(reduced, kinds, left)
        # The search ends with whole nodes in any case: the last steps are hasty and look for no new patterns.
        hasty = effort.left < _STEP / 2
        step = Effort(_STEP) if hasty else effort
        patterns = PatternPool(rest)
        patterns.add(_clipped(counts, left))
        generation = Generation(rest, patterns, left, values, step, strategies, _clipped(likely, left))
        if hasty:
            generation.program.solve(step)
            effort.left -= _STEP - step.left
        else:
            generation.run(rounds)
        rounds, strategies = care.again, generation.strategies
        values = np.maximum(generation.program.duals, 0.0)
        fixed = _whole_nodes(generation.program, left, (HASTY if hasty else care).enough)
        bought.append(_widened(fixed, kinds, len(demand)))
        left = left - fixed.sum(axis=0)
        patterns.keep_best(values, _KEEP * len(kinds) + 50)
        open_kinds = left > 0
        counts, likely = patterns.counts[:, open_kinds], generation.program.used.T[:, open_kinds]
        kinds, left, values = kinds[open_kinds], left[open_kinds], values[open_kinds]
    return np.concatenate(bought) if bought else np.zeros((0, len(demand)))


def _begun_with(
    similar: CoveringProgram,
    reduced: ReducedProblem,
    pool: PatternPool,
    demand: Floats,
    values: Floats,
    effort: Effort,
) -> CoveringProgram | None:
    """The program of a demand [kinds], solved from the basis of a similar one.

    None where that is no short way, or where the values of the similar program leave room for better patterns.
    """
    basic = similar.basic_columns
    columns = np.concatenate([basic, pool.best(values, _KEEP * len(demand) + 50).T], axis=1)
    row = reduced.cheapest(columns.T)
    if (row[: basic.shape[1]] < 0).any():
        return None
    columns, row = columns[:, row >= 0], row[row >= 0]
    effort.charge(14 * len(demand), 4.0 * columns.size + 4.0 * len(demand) ** 2)
    program = similar.begun_with(demand, columns, reduced.price[row])
    if program is None or not program.solve(effort):
        return None
    least = float((np.maximum(similar.duals, 0.0) * demand).sum())
    return program if program.objective <= least * (1 + _ALIKE) else None


def _widened(patterns: Floats, kinds: Ints, width: int) -> Floats:
    wide = np.zeros((len(patterns), width))
    wide[:, kinds] = patterns
    return wide


def _clipped(counts: Floats, left: Floats) -> Floats:
    clipped = np.minimum(counts, left[None, :])
    return clipped[clipped.any(axis=1)]


def _whole_nodes(program: CoveringProgram, left: Floats, enough: float) -> Floats:
    """The whole nodes of the solution, and one more of a pattern of which at least the part `enough` is left over.

    At least the pattern that is used most.
    """
    used = np.round(program.solution(), 9)
    columns = program.columns
    copies = np.floor(used + 10 * _FEASIBLE)
    part = used - copies
    taken: list[Floats] = []
    rest = left.copy()
    for place in np.flatnonzero(copies).tolist():
        column, wanted = columns[:, place], int(copies[place])
        some = column > 0
        whole = min(wanted, int(np.floor(_least(rest[some] / column[some], initial=np.inf)))) if some.any() else 0
        taken += [column] * whole
        rest -= whole * column
        for _ in range(wanted - whole):
            pattern = np.minimum(column, rest)
            if not pattern.any():
                break
            taken.append(pattern)
            rest -= pattern
    for place in np.argsort(-part, kind="stable").tolist():
        if taken and part[place] < enough:
            break
        pattern = np.minimum(columns[:, place], rest)
        if pattern.any() and (not taken or (columns[:, place] <= rest).all()):
            taken.append(pattern)
            rest -= pattern
    return np.array(taken)
