"""Which part of the pods goes to which row, so that nodes of different shape are filled evenly in every resource.

Kinds of nearly the same profile (say, memory per cpu) are taken together: only the profile matters where many pods
share a node, and a few dozen profiles make a small linear program of thousands of sizes.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.resources import Bools, Floats, Ints
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.problem import Problem
from shiplap.scheduling.search.simplex import Covering

PROFILES = 24
_ARTIFICIAL = 100.0
_EACH = 0.01


def profiles(problem: Problem) -> Ints:
    """The profile [kinds] of each kind: alike in the share of two resources, the rows that suit and strong rules."""
    share = problem.sizes / np.maximum(problem.net.max(axis=0), 1.0)[None, :]
    first = share[:, 0]
    second = share[:, 1] if share.shape[1] > 1 else first
    lean = first / np.maximum(first + second, 1e-12)
    order = np.argsort(lean, kind="stable")
    weight: Floats = np.cumsum((share.max(axis=1) * problem.demand)[order])
    step = np.zeros(len(lean), np.int64)
    step[order] = np.minimum((weight / max(float(weight[-1]), 1e-12) * PROFILES).astype(np.int64), PROFILES - 1)
    # Equal kinds of shares must not be told apart by where a boundary happens to fall.
    rest = np.packbits(np.concatenate([problem.suits, problem.sizes[:, 2:] > 0], axis=1), axis=1)
    _, other = np.unique(rest, axis=0, return_inverse=True)
    _, place = np.unique(np.stack([step, other.reshape(-1)], axis=1), axis=0, return_inverse=True)
    return place.reshape(-1)


def split(problem: Problem, profile: Ints, rows: Ints, copies: Ints, effort: Effort) -> tuple[float, Floats]:
    """How full nodes become when `copies` [n] nodes of each row in `rows` [n] share all pods as evenly as can be.

    Returns the fullest resource's part (over 1: there is no room) and the part [profiles, n] of each profile that goes
    to each row.
    """
    groups = int(np.max(profile)) + 1
    width = problem.sizes.shape[1]
    amount = np.stack(
        [np.bincount(profile, problem.sizes[:, r] * problem.demand, groups) for r in range(width)], axis=1
    )
    suits = _all_suit(problem, profile, groups)[:, rows]
    room = problem.net[rows] * copies[:, None]
    size = groups + len(rows) * width
    columns = [np.eye(size)]
    costs = [np.full(size, _ARTIFICIAL)]
    group, place = np.nonzero(suits)
    part = np.zeros((size, len(group)))
    number = np.arange(len(group))
    part[group, number] = 1.0
    for r in range(width):
        part[groups + place * width + r, number] = -amount[group, r] / np.maximum(room[place, r], 1e-9)
    columns.append(part)
    costs.append(np.full(len(group), _EACH))
    fullest = np.zeros((size, 1))
    fullest[groups:] = 1.0
    columns.append(fullest)
    costs.append(np.ones(1))
    demand = np.zeros(size)
    demand[:groups] = 1.0
    program = Covering(demand, columns[0], costs[0])
    program.add(np.concatenate(columns[1:], axis=1), np.concatenate(costs[1:]))
    program.solve(effort)
    used = program.solution()
    share = np.zeros((groups, len(rows)))
    share[group, place] = used[size : size + len(group)]
    missing = float(used[:size].sum())
    return (float(used[-1]) if missing < 1e-3 else np.inf), share


def _all_suit(problem: Problem, profile: Ints, groups: int) -> Bools:
    suits = np.ones((groups, len(problem.price)), np.bool_)
    np.logical_and.at(suits, profile, problem.suits)
    return suits
