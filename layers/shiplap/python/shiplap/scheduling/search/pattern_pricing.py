"""Patterns that are worth more than their node costs, for given values of the kinds: many greedy fills at a time."""

from __future__ import annotations

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.problem import ReducedProblem, pattern_loads


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


def greedy_fills(
    reduced: ReducedProblem, demand: Floats, values: Floats, strategies: FillStrategies, seeds: Floats, effort: Effort
) -> Patterns:
    """Greedy fills by value per size, for every strategy and every seed [seeds, kinds] that its row holds."""
    row = strategies.row
    kinds, many = len(reduced.sizes), len(row)
    effort.charge(24 * kinds, 9.0 * many * len(seeds) * kinds)
    order = _orders(reduced, values, strategies)
    allowed = reduced.suits[:, row] & (values > 1e-12)[:, None]
    start = pattern_loads(seeds, reduced.sizes)
    columns = [_Column(reduced.sizes[:, r], reduced.net[row, r], start[:, r]) for r in range(reduced.sizes.shape[1])]
    holds = _holds(reduced, seeds, start, row)
    taken = np.zeros((kinds, many, len(seeds)))
    spare = np.maximum(demand[:, None] - seeds.T, 0.0)
    line = np.arange(many)
    for step in range(kinds):
        kind = order[:, step]
        room = spare[kind]
        for column in columns:
            column.bound(kind, room)
        np.floor(room, out=room)
        room *= allowed[kind, line][:, None]
        taken[step] = room
        for column in columns:
            column.take(kind, room)
    counts = np.zeros_like(taken)
    np.put_along_axis(counts, order.T[:, :, None], taken, axis=0)
    counts += seeds.T[:, None, :]
    place, seed = np.nonzero(holds)
    return Patterns(counts[:, place, seed].T.copy(), place, row[place], seed)


class _Column:
    """One resource of many fills at a time: `free` [fills, seeds] is what is left of it."""

    def __init__(self, sizes: Floats, net: Floats, start: Floats) -> None:
        self.free: Floats = np.maximum(net[:, None] - start[None, :], 0.0)
        self.sizes = sizes
        # A resource that a kind does not need must not bound it, even if none is left. Bytes by this stay finite.
        self.divisor: Floats = np.where(sizes > 0, sizes, 1e-280)
        self.unneeded: Floats = np.where(sizes > 0, 0.0, 1.0)
        self.mixed = bool((sizes == 0).any())

    def bound(self, kind: Ints, room: Floats) -> None:
        """Lower `room` [fills, seeds] to the pods of `kind` [fills] that fit."""
        free = self.free + self.unneeded[kind][:, None] if self.mixed else self.free
        np.minimum(room, free / self.divisor[kind][:, None], out=room)

    def take(self, kind: Ints, room: Floats) -> None:
        """Take the resources of `room` pods of `kind`."""
        self.free -= room * self.sizes[kind][:, None]


def _holds(reduced: ReducedProblem, seeds: Floats, start: Floats, rows: Ints) -> Bools:
    """Which rows hold and suit which seeds [rows, seeds]."""
    holds: Bools = (start[None, :, :] <= reduced.net[rows][:, None, :]).all(axis=2)
    if not reduced.suits.all():
        for place, row in enumerate(rows.tolist()):
            holds[place] &= ~((seeds > 0) & ~reduced.suits[:, row][None, :]).any(axis=1)
    return holds


def _orders(reduced: ReducedProblem, values: Floats, strategies: FillStrategies) -> Ints:
    """In which order each strategy takes kinds [strategies, kinds]: densest first."""
    net = np.maximum(reduced.net[strategies.row], 1.0)
    first = reduced.sizes[:, 0][None, :] / net[:, :1]
    second = reduced.sizes[:, 1][None, :] / net[:, 1:2] if net.shape[1] > 1 else first
    size = strategies.weight[:, None] * first + (1.0 - strategies.weight)[:, None] * second + 1e-9
    return np.argsort(-np.maximum(values, 0.0)[None, :] / size, axis=1, kind="stable")


def values_of(patterns: Floats, values: Floats) -> Floats:
    """What patterns [n, kinds] are worth at these values [kinds]."""
    return (patterns * values[None, :]).sum(axis=1)
