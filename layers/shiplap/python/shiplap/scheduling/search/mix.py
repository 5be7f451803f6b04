"""Many pods per node, first half: a whole number of nodes of each row that covers all pods together.

The finer pods are against nodes, the closer all nodes can be filled, and the more the price depends only on which nodes
are bought. Whole multiples of the best fractional mixture come first; a beam search fits the last nodes to the rest.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.search.columns import totals_bound
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.problem import ReducedProblem, aggregate_problem

_BEAM = 200
_DEPTH = 9
_OPEN = 3.0
"""How many nodes' worth of the fractional mixture are left to the beam search."""


def mix(reduced: ReducedProblem, slack: float, effort: Effort) -> Ints:
    """Rows [nodes] whose sum holds all pods together and the part `slack` more, at little cost; empty when none do."""
    total = (reduced.sizes * reduced.demand[:, None]).sum(axis=0) * (1.0 + slack)
    useful = _useful(reduced)
    if not useful.any():
        return np.zeros(0, np.int64)
    _, values, used = totals_bound(aggregate_problem(reduced, total, useful), effort)
    copies = _rounded_down(used)
    nodes = np.repeat(np.flatnonzero(useful), copies)
    rest = np.maximum(total - reduced.net[nodes].sum(axis=0), 0.0)
    last = _cover(reduced, np.flatnonzero(useful), rest, values, effort)
    return np.sort(np.concatenate([nodes, last])) if last is not None else np.zeros(0, np.int64)


def _useful(reduced: ReducedProblem) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows that can hold a good half of the kinds: others do not count towards what covers the whole."""
    share = np.zeros(len(reduced.price))
    for size, suits in zip(reduced.sizes, reduced.suits, strict=True):
        share += suits & (reduced.net >= size).all(axis=1)
    useful: np.ndarray[tuple[int], np.dtype[np.bool_]] = share >= 0.5 * len(reduced.sizes)
    return useful


def _rounded_down(used: Floats) -> Ints:
    copies = np.floor(used + 1e-9).astype(np.int64)
    open_part = float(used.sum() - copies.sum())
    while open_part < _OPEN and copies.any():
        copies[int(np.argmax(copies))] -= 1
        open_part += 1.0
    return copies


def _cover(reduced: ReducedProblem, rows: Ints, total: Floats, values: Floats, effort: Effort) -> Ints | None:
    """The cheapest nodes found that together hold `total` [resources]; None when `_DEPTH` nodes cannot.

    States are what is left to cover; they are ranked by what they cost so far and what the rest is worth, which no
    completion undercuts.
    """
    net, price = reduced.net[rows], reduced.price[rows]
    left, cost, last = total[None, :], np.zeros(1), np.array([len(rows) - 1])
    path = np.zeros((1, 0), np.int64)
    best: tuple[float, Ints] | None = None if (total > 0).any() else (0.0, np.zeros(0, np.int64))
    for _ in range(_DEPTH):
        effort.charge(20, 14.0 * len(left) * net.size)
        state, row = np.nonzero(np.arange(len(rows))[None, :] <= last[:, None])
        after = np.maximum(left[state] - net[row], 0.0)
        spent = cost[state] + price[row]
        done = ~(after > 0).any(axis=1)
        if done.any():
            first = int(np.argmin(np.where(done, spent, np.inf)))
            if best is None or spent[first] < best[0] - 1e-12:
                best = (float(spent[first]), np.append(path[state[first]], row[first]))
        promise = np.round(spent + (after * values[None, :]).sum(axis=1), 9)
        promise[done] = np.inf
        if best is not None:
            promise[promise >= best[0]] = np.inf
        order = np.argsort(promise, kind="stable")[:_BEAM]
        order = order[np.isfinite(promise[order])]
        if not len(order):
            break
        path = np.concatenate([path[state[order]], row[order][:, None]], axis=1)
        left, cost, last = after[order], spent[order], row[order]
    return None if best is None else rows[best[1]]
