"""Column generation: which patterns a cheapest mixture of nodes consists of, if nodes could be bought in fractions.

A linear program over the patterns known so far gives each kind of pod a value; patterns worth more than their node
costs are added, until there are none. The values are smoothed towards the best ones seen, without which they swing.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.pattern_pricing import FillStrategies, Patterns, all_strategies, greedy_fills, values_of
from shiplap.scheduling.search.problem import ReducedProblem
from shiplap.scheduling.search.simplex import CoveringProgram

_SMOOTH = 0.6
_ALL_STRATEGIES = 2600
_STRATEGIES = 36
_EACH_ROW = 4
_EACH_SEED = 2
_REFRESH_STRATEGIES = 4
_GAIN = 1e-4
"""A pattern is added when it is worth this part more than it costs."""


class PatternPool:
    """Patterns found so far, each once and on its cheapest row: `counts` [n, kinds], `price` [n]."""

    def __init__(self, reduced: ReducedProblem) -> None:
        self.reduced = reduced
        self.counts: Floats = np.zeros((0, len(reduced.sizes)))
        self.price: Floats = np.zeros(0)
        self._seen: set[bytes] = set()

    def add(self, counts: Floats) -> int:
        """Add patterns [n, kinds]; returns how many were new."""
        fresh = []
        for place, line in enumerate(counts.astype(np.int32)):
            key = line.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(place)
        row = self.reduced.cheapest(counts[fresh])
        self.counts = np.concatenate([self.counts, counts[fresh]])
        self.price = np.concatenate([self.price, self.reduced.price[row]])
        return len(fresh)

    def keep_best(self, values: Floats, most: int) -> None:
        """Keep `most` patterns, those with the highest value per price."""
        loss = 1.0 - values_of(self.counts, values) / self.price
        order = np.sort(np.argsort(loss, kind="stable")[:most])
        self.counts, self.price = self.counts[order], self.price[order]


def totals_bound(reduced: ReducedProblem, effort: Effort) -> tuple[float, Floats, Floats]:
    """The cheapest fractional mixture of rows that covers the sum of all pods.

    Returns what it costs (no filling costs less), the value of one unit of each resource, and how much of each row.
    """
    total = (reduced.sizes * reduced.demand[:, None]).sum(axis=0)
    unit = np.where(total > 0, total, 1.0)
    size = len(total)
    best = reduced.net.argmax(axis=0)
    start = np.diag(reduced.net.max(axis=0) / unit)
    program = CoveringProgram(np.ones(size), start, reduced.price[best].copy())
    program.add((reduced.net / unit[None, :]).T, reduced.price)
    program.solve(effort)
    duals = np.maximum(program.duals, 0.0)
    # Rounded values are scaled until no row is worth more than it costs, so that the bound is one.
    worth = ((reduced.net / unit[None, :]) * duals[None, :]).sum(axis=1)
    scale = float(np.max(worth / reduced.price))
    duals = duals / max(scale, 1e-300)
    return float(duals.sum()), duals / unit, program.solution()[size:]


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

    With `strategies` given, no others are tried.
    """

    def __init__(
        self,
        reduced: ReducedProblem,
        pool: PatternPool,
        demand: Floats,
        values: Floats,
        effort: Effort,
        strategies: FillStrategies | None = None,
    ) -> None:
        self.reduced, self.pool, self.demand, self.effort = reduced, pool, demand, effort
        self.best_values = values
        self.bound = 0.0
        self.program = starting_program(reduced, pool, demand)
        weights = int(np.clip(_ALL_STRATEGIES // len(reduced.price), 5, 21))
        self._all_strategies = all_strategies(np.arange(len(reduced.price)), np.linspace(0.0, 1.0, weights))
        self.strategies = strategies
        self._fixed = strategies is not None
        self._age = 0

    def run(self, rounds: int) -> None:
        """At most so many rounds, or until no pattern is worth adding."""
        for _ in range(rounds):
            if not self.program.solve(self.effort) or not self.round():
                return

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
        plain = greedy_fills(self.reduced, self.demand, values, self._all_strategies, none, self.effort)
        worth = values_of(plain.counts, values) / self.reduced.price[plain.row]
        self.strategies = _best_strategies(self._all_strategies, plain.strategy, worth)
        return self.strategies, float(np.max(worth))

    def _remember(self, values: Floats, worth: float) -> None:
        bound = float((values * self.demand).sum()) / max(worth, 1e-300)
        if bound > self.bound:
            self.bound, self.best_values = bound, values

    def _add(self, found: Patterns, duals: Floats) -> bool:
        """Add the best patterns of each seed, as far as they pay."""
        gain = values_of(found.counts, duals) / self.reduced.price[found.row] - 1.0
        order = np.lexsort((-gain, found.seed))
        first = np.searchsorted(found.seed[order], found.seed[order])
        order = order[np.arange(len(order)) - first < _EACH_SEED]
        order = order[gain[order] > _GAIN]
        before = len(self.pool.price)
        if not len(order) or not self.pool.add(found.counts[order]):
            return False
        self.program.add(self.pool.counts[before:].T, self.pool.price[before:])
        return True


def _best_strategies(strategies: FillStrategies, strategy: Ints, worth: Floats) -> FillStrategies:
    """The strategies whose patterns are worth the most, a few of each row."""
    best = np.zeros(len(strategies.row))
    best[strategy] = worth
    order = np.lexsort((-best, strategies.row))
    first = np.searchsorted(strategies.row[order], strategies.row[order])
    order = order[np.arange(len(order)) - first < _EACH_ROW]
    chosen = np.sort(order[np.argsort(-best[order], kind="stable")][:_STRATEGIES])
    return FillStrategies(strategies.row[chosen], strategies.weight[chosen])


def size_values(reduced: ReducedProblem, unit_values: Floats) -> Floats:
    """The value of a pod of each kind, by its requests."""
    return (reduced.sizes * unit_values[None, :]).sum(axis=1)
