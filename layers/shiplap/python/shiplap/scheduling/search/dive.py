"""From a fractional mixture of patterns to whole nodes: buy what is certain, solve for the rest, and so on."""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.resources import Floats, Ints
from shiplap.scheduling.search.columns import Generation, Pool
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.pricing import fills, looks_at, values_of
from shiplap.scheduling.search.problem import Problem, of_kinds

_NEAR = 1e-6
_AGAIN = 3
"""Rounds of column generation for each rest."""

_KEEP = 6
"""How many patterns per kind are taken along, those that cost least beyond their worth."""


def dive(problem: Problem, pool: Pool, demand: Floats, values: Floats, effort: Effort) -> Floats:
    """Patterns of whole nodes [nodes, kinds] that hold `demand` [kinds] exactly.

    `pool` has patterns to start with, and `values` [kinds] says what a pod is worth about.
    """
    kinds: Ints = np.flatnonzero(demand)
    left, values, counts = demand[kinds], values[kinds], pool.counts[:, kinds]
    bought: list[Floats] = []
    while len(kinds):
        rest = of_kinds(problem, kinds, left)
        if effort.spent:
            bought.append(_widened(greedy(rest, values, effort), kinds, len(demand)))
            break
        patterns = Pool(rest)
        patterns.add(_clipped(counts, left))
        generation = Generation(rest, patterns, left, values, effort)
        generation.run(_AGAIN)
        values = np.maximum(generation.program.duals, 0.0)
        fixed = _whole(generation, left)
        bought.append(_widened(fixed, kinds, len(demand)))
        left = left - fixed.sum(axis=0)
        counts = _close(patterns, values)
        open_kinds = left > 0
        kinds, left, values, counts = kinds[open_kinds], left[open_kinds], values[open_kinds], counts[:, open_kinds]
    return np.concatenate(bought) if bought else np.zeros((0, len(demand)))


def _widened(patterns: Floats, kinds: Ints, width: int) -> Floats:
    wide = np.zeros((len(patterns), width))
    wide[:, kinds] = patterns
    return wide


def _clipped(counts: Floats, left: Floats) -> Floats:
    clipped = np.minimum(counts, left[None, :])
    return clipped[clipped.any(axis=1)]


def _close(pool: Pool, values: Floats) -> Floats:
    """The patterns that are nearly worth their price."""
    loss = 1.0 - values_of(pool.counts, values) / pool.price
    order = np.argsort(loss, kind="stable")[: _KEEP * pool.counts.shape[1] + 50]
    return pool.counts[np.sort(order)]


def _whole(generation: Generation, left: Floats) -> Floats:
    """The whole nodes of the solution; if it has none, the pattern it uses most."""
    program, pool = generation.program, generation.pool
    used = program.solution()
    alone = np.minimum(program.columns[:, : program.rows].T, left[None, :])
    patterns = np.concatenate([alone, pool.counts])
    copies = np.floor(used + _NEAR)
    if not copies.any():
        copies[int(np.argmax(np.round(used, 9)))] = 1
    taken: list[Floats] = []
    rest = left.copy()
    for place in np.flatnonzero(copies).tolist():
        for _ in range(int(copies[place])):
            pattern = np.minimum(patterns[place], rest)
            if not pattern.any():
                break
            taken.append(pattern)
            rest -= pattern
    return np.array(taken)


def greedy(problem: Problem, values: Floats, effort: Effort) -> Floats:
    """Node after node the pattern that is worth most for its price, several alike at once while there are enough."""
    left = problem.demand.copy()
    looks = looks_at(np.arange(len(problem.price)), np.linspace(0.0, 1.0, 5))
    none = np.zeros((1, len(left)))
    bought: list[Floats] = []
    values = np.maximum(values, max(float(np.max(values)), 1e-6) * 1e-6)
    while left.any():
        found = fills(problem, left, values, looks, none, effort)
        best = int(np.argmax(values_of(found.counts, values) / problem.price[found.row]))
        pattern = found.counts[best]
        holds = pattern > 0
        copies = max(1, int(np.min(left[holds] // pattern[holds])) - 1)
        bought.append(np.repeat(pattern[None, :], copies, axis=0))
        left -= copies * pattern
    return np.concatenate(bought)
