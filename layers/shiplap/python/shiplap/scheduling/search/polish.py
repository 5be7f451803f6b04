"""Nodes that cost much more than their pods are worth are taken apart together and packed anew."""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.resources import Floats
from shiplap.scheduling.search.columns import Pool
from shiplap.scheduling.search.dive import CAREFUL, dive
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.pricing import values_of
from shiplap.scheduling.search.problem import Problem, of_kinds

_NODES = (3, 4, 6, 9, 14)
"""How many of the most wasteful nodes are packed anew at a time."""

_LEAST_MICROS = 50_000.0
_SAVES = 1e-9


def polish(problem: Problem, patterns: Floats, values: Floats, effort: Effort) -> Floats:
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
        rest = of_kinds(problem, kinds, demand[kinds])
        pool = Pool(rest)
        pool.add(some[:, kinds])
        packed = dive(rest, pool, rest.demand, values[kinds], effort, None, CAREFUL)
        found = np.zeros((len(packed), len(demand)))
        found[:, kinds] = packed
        if problem.cost(found) < problem.cost(some) - _SAVES:
            patterns = np.concatenate([others, found])
    return patterns
