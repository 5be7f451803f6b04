"""Computes bounds that no packing can undercut: a linear program over resources, and one over whole node contents.

Both are certified by their duals: whatever solver found the values of the kinds, the bound is what these values make of
all pods after scaling them so that no node's content is worth more than the node costs. HiGHS (the package `highspy`)
prices node contents exactly.
"""

from __future__ import annotations

import math
import time

import highspy
import numpy as np

from shiplap.scheduling.model.resources import Bools, Floats, Ints, rows_holding
from shiplap.scheduling.search.column_generation import Generation, PatternPool, ReducedProblem
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import totals_bound

_GAP = 1e-4


def resource_bound(problem: ReducedProblem) -> float:
    """USD per hour: pods and nodes may be cut at will, but a pod uses only rows that hold it whole."""
    problem = problem.hard()
    return max(worth_of_all(problem, unit_prices(problem)), totals_bound(problem, Effort.of(5))[0])


def unit_prices(problem: ReducedProblem) -> Floats:
    """The price [rows, resources] of a unit of each resource of each row, from the dual of the resource bound.

    A whole node is worth at most what it costs; a kind is worth what it takes in the row where that is least. Maximised
    by HiGHS, then scaled to be surely feasible.
    """
    rows, width = problem.net.shape
    scale = np.maximum(problem.net.max(axis=0), 1.0)
    net, sizes = problem.net / scale, problem.sizes / scale
    kind, row = np.nonzero(_fits(problem))
    pairs = len(kind)
    # Variables: unit prices [rows, resources], then values [kinds]. Constraints: a node's worth, then a pod's value.
    unit = np.arange(rows * width).reshape(rows, width)
    pair_columns = np.concatenate([unit[row], rows * width + kind[:, None]], axis=1)
    pair_values = np.concatenate([-sizes[kind], np.ones((pairs, 1))], axis=1)
    starts = np.concatenate([np.arange(rows) * width, rows * width + np.arange(pairs + 1) * (width + 1)])
    columns = np.concatenate([unit.reshape(-1), pair_columns.reshape(-1)])
    entries = np.concatenate([net.reshape(-1), pair_values.reshape(-1)])
    cost = np.concatenate([np.zeros(rows * width), -problem.demand])
    upper = np.concatenate([problem.price, np.zeros(pairs)])
    found = _solve(cost, np.full(len(cost), highspy.kHighsInf), upper, starts, columns, entries, integer=False)
    units: Floats = np.maximum(found[0][: rows * width].reshape(rows, width), 0.0)
    units /= np.maximum((units * net).sum(axis=1) / problem.price, 1.0)[:, None]
    return units / scale


def worth_of_all(problem: ReducedProblem, units: Floats) -> float:
    """USD per hour that all pods are worth at the unit prices of the row that holds each for least: a lower bound."""
    return float(problem.demand @ np.where(_fits(problem), problem.sizes @ units.T, np.inf).min(axis=1))


def _fits(problem: ReducedProblem) -> Bools:
    return rows_holding(problem.net, problem.sizes) & problem.suits


def content_bound(problem: ReducedProblem, seconds: float, least: float) -> float:
    """USD per hour: fractions of nodes may be bought, but each has a content of whole pods.

    Column generation finds values of the kinds; Farley's bound scales them by the most valuable content of any row. It
    may end a little below the resource bound, which holds as well and is given as `least`.
    """
    best = least
    problem = problem.hard()
    _, values, _ = totals_bound(problem, Effort.of(5))
    pool = PatternPool(problem)
    generation = Generation(problem, pool, problem.demand, values, Effort.of(seconds))
    generation.run(400)
    ends = time.monotonic() + seconds
    for turn in range(60):
        generation.run(40)
        values = np.maximum(generation.program.duals, 0.0) if turn else generation.best_values
        contents = _most_valuable(problem, values, ends)
        worth = max((value / problem.price[row] for row, value, _ in contents), default=0.0)
        best = max(best, float(values @ problem.demand) / max(worth, 1e-12))
        fresh = np.array([content for _, _, content in contents if content.any()])
        before = len(pool.price)
        if best >= generation.program.objective * (1 - 3 * _GAP) or time.monotonic() > ends:
            break
        if not len(fresh) or not pool.add(fresh):
            break
        generation.program.add(pool.counts[before:].T, pool.price[before:])
    return best


def _most_valuable(problem: ReducedProblem, values: Floats, ends: float) -> list[tuple[int, float, Floats]]:
    """Of every row the value that no content exceeds, with the best content found."""
    found = []
    for row in range(len(problem.price)):
        bound = _fractional(problem, values, row)
        content = np.zeros(len(values))
        for integer in (False, True):
            if bound > problem.price[row] * (1 + _GAP) and time.monotonic() < ends:
                exact, content = _knapsack(problem, values, row, integer=integer)
                bound = min(bound, exact)
        found.append((row, bound, content))
    return found


def _fractional(problem: ReducedProblem, values: Floats, row: int) -> float:
    """The value of a row's best content if pods could be cut: the least of some one-resource bounds."""
    net = problem.net[row]
    some = problem.suits[:, row] & (problem.sizes <= net).all(axis=1) & (values > 1e-12)
    share = problem.sizes[some] / np.maximum(net, 1.0)
    value, most = values[some], problem.demand[some]
    best = math.inf
    for weight in np.linspace(0.0, 1.0, 21):
        size = weight * share[:, 0] + (1 - weight) * share[:, 1] + 1e-12
        order = np.argsort(-value / size)
        before = np.cumsum((size * most)[order]) - (size * most)[order]
        part = np.clip((1.0 - before) / (size * most)[order], 0.0, 1.0)
        best = min(best, float((part * (value * most)[order]).sum()))
    return best


def _knapsack(problem: ReducedProblem, values: Floats, row: int, *, integer: bool) -> tuple[float, Floats]:
    """The value of a row's best content of whole pods (an upper bound within the gap), and a content."""
    net = problem.net[row]
    some: Ints = np.flatnonzero(problem.suits[:, row] & (problem.sizes <= net).all(axis=1) & (values > 1e-12))
    sizes, content = problem.sizes[some] / np.maximum(net, 1.0), np.zeros(len(values))
    width = sizes.shape[1]
    with np.errstate(divide="ignore"):
        most = np.minimum(problem.demand[some], np.floor((1 / sizes).min(axis=1) + 1e-9))
    starts = np.arange(width + 1) * len(some)
    columns = np.tile(np.arange(len(some)), width)
    solution, bound = _solve(-values[some], most, np.ones(width), starts, columns, sizes.T.reshape(-1), integer=integer)
    content[some] = np.floor(solution + 1e-6)
    if (content @ problem.sizes > net).any():
        content[:] = 0.0
    return -bound, content


def _solve(
    cost: Floats, most: Floats, upper: Floats, starts: Ints, columns: Ints, entries: Floats, *, integer: bool
) -> tuple[Floats, float]:
    """min cost·x, 0 ≤ x ≤ most, lines (compressed by rows) ≤ upper: the solution and a bound on its cost."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", 3.0 if integer else 120.0)
    solver.setOptionValue("mip_rel_gap", _GAP)
    solver.setOptionValue("threads", 1)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(upper)
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = np.zeros(len(cost)), most
    model.row_lower_, model.row_upper_ = np.full(len(upper), -highspy.kHighsInf), upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = starts.astype(np.int32)
    model.a_matrix_.index_ = columns.astype(np.int32)
    model.a_matrix_.value_ = entries
    if integer:
        model.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    solver.passModel(model)
    solver.run()
    info = solver.getInfo()
    solution = np.array(solver.getSolution().col_value)
    if len(solution) != len(cost):
        solution = np.zeros(len(cost))
    return solution, float(info.mip_dual_bound if integer else info.objective_function_value)
