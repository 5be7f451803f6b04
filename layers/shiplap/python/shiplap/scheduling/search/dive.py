"""From a fractional mixture of patterns to whole nodes: buy what is certain, solve for the rest, and so on."""

from __future__ import annotations

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.search.columns import Generation, PatternPool
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.pattern_pricing import FillStrategies
from shiplap.scheduling.search.problem import ReducedProblem, restricted_to_kinds

_NEAR = 1e-6


class Care(msgspec.Struct, frozen=True):
    """How carefully to go: rounds of column generation at first and for each rest, and what is bought whole at once.

    `enough` is the part of a node from which on one more is bought; over 1, only whole ones are.
    """

    first: int
    again: int
    enough: float


QUICK, CAREFUL = Care(2, 1, 0.85), Care(4, 2, 1.1)
_BOLD = 0.3
"""The `enough` without effort left."""

_LAST_STEPS, _STEP = 30_000.0, 60_000.0
"""Effort below which steps become bold, and what one such step may take, in microseconds."""

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
) -> Floats:
    """Patterns of whole nodes [nodes, kinds] that hold `demand` [kinds] exactly.

    `pool` has patterns to start with, `values` [kinds] is the approximate value of a pod; `strategies` are the
    promising ways to fill nodes.
    """
    kinds: Ints = np.flatnonzero(demand)
    left, values, counts = demand[kinds], values[kinds], pool.counts[:, kinds]
    bought: list[Floats] = []
    rounds = care.first
    while len(kinds):
        rest = restricted_to_kinds(reduced, kinds, left)
        # The search ends with whole nodes in any case: the last steps are bold and look for no new patterns.
        bold = effort.left < _LAST_STEPS
        step = Effort(_STEP) if bold else effort
        patterns = PatternPool(rest)
        patterns.add(_clipped(counts, left))
        generation = Generation(rest, patterns, left, values, step, strategies)
        if bold:
            generation.program.solve(step)
            effort.left -= _STEP - step.left
        else:
            generation.run(rounds)
        rounds, strategies = care.again, generation.strategies
        values = np.maximum(generation.program.duals, 0.0)
        fixed = _whole_nodes(generation, left, _BOLD if bold else care.enough)
        bought.append(_widened(fixed, kinds, len(demand)))
        left = left - fixed.sum(axis=0)
        patterns.keep_best(values, _KEEP * len(kinds) + 50)
        open_kinds = left > 0
        counts = patterns.counts[:, open_kinds]
        kinds, left, values = kinds[open_kinds], left[open_kinds], values[open_kinds]
    return np.concatenate(bought) if bought else np.zeros((0, len(demand)))


def _widened(patterns: Floats, kinds: Ints, width: int) -> Floats:
    wide = np.zeros((len(patterns), width))
    wide[:, kinds] = patterns
    return wide


def _clipped(counts: Floats, left: Floats) -> Floats:
    clipped = np.minimum(counts, left[None, :])
    return clipped[clipped.any(axis=1)]


def _whole_nodes(generation: Generation, left: Floats, enough: float) -> Floats:
    """The whole nodes of the solution, and one more of a pattern of which at least the part `enough` is left over.

    At least the pattern that is used most.
    """
    used = np.round(generation.program.solution(), 9)
    columns = generation.program.columns
    copies = np.floor(used + _NEAR)
    part = used - copies
    taken: list[Floats] = []
    rest = left.copy()
    for place in np.flatnonzero(copies).tolist():
        for _ in range(int(copies[place])):
            pattern = np.minimum(columns[:, place], rest)
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
