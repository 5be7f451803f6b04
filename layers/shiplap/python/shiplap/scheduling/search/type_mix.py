"""Many pods per node: a whole number of nodes of each row, then the pods are distributed over them.

The finer pods are against nodes, the closer all nodes can be filled, and the more the price depends only on which nodes
are bought. Whole multiples of the best fractional mixture come first; a beam search fits the last nodes to the rest.

A linear program then decides which part of the pods goes to which row, so that every resource fills up evenly. Kinds of
nearly the same profile (say, memory per cpu) are taken together: only the profile matters where many pods share a node,
and a few dozen profiles make a small linear program of thousands of sizes.
"""

from __future__ import annotations

from operator import le, mul

import numpy as np

from shiplap.scheduling.model.resources import Bools, Floats, Ints, rows_holding
from shiplap.scheduling.search.column_generation import CoveringProgram, ReducedProblem, covering_mixture
from shiplap.scheduling.search.effort import Effort

_BEAM = 16
"""States of the beam search: how many of the most promising are kept."""

_OPEN = 3.0
"""How many nodes' worth of the fractional mixture are left to the beam search."""

_DEPTH = int(3 * _OPEN)
"""Nodes that the beam search adds at most: three for each that was left to it, as it may choose smaller ones."""


def mix(reduced: ReducedProblem, slack: float, effort: Effort) -> Ints:
    """Rows [nodes] whose sum holds all pods together and the part `slack` more, at little cost; empty when none do."""
    total = (reduced.sizes * reduced.demand[:, None]).sum(axis=0) * (1.0 + slack)
    useful = _useful(reduced)
    if not useful.any():
        return np.zeros(0, np.int64)
    _, values, used = covering_mixture(total, reduced.net[useful], reduced.price[useful], effort)
    copies = _rounded_down(used)
    nodes = np.repeat(np.flatnonzero(useful), copies)
    rest = np.maximum(total - reduced.net[nodes].sum(axis=0), 0.0)
    last = _cover(reduced, np.flatnonzero(useful), rest, values, effort)
    return np.sort(np.concatenate([nodes, last])) if last is not None else np.zeros(0, np.int64)


def _useful(reduced: ReducedProblem) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows that can hold a good half of the kinds: others do not count towards what covers the whole."""
    share = (rows_holding(reduced.net, reduced.sizes) & reduced.suits).sum(axis=0)
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


_PROFILES = 24
"""Profiles of pods, so that the program that shares them has some hundred columns, whatever the sizes are."""

_ARTIFICIAL = 100.0
"""What pods without a row cost beside the fullest resource, which costs 1: too much."""

_EACH = 1 / _ARTIFICIAL
"""What every part costs: a little, so that of equally even shares the one in fewer parts is found."""


def profiles(reduced: ReducedProblem) -> Ints:
    """The profile [kinds] of each kind: alike in the share of two resources, the rows that suit and strong rules."""
    share = reduced.sizes / np.maximum(reduced.net.max(axis=0), 1.0)[None, :]
    first = share[:, 0]
    second = share[:, 1] if share.shape[1] > 1 else first
    lean = first / np.maximum(first + second, 1e-12)
    order = np.argsort(lean, kind="stable")
    weight: Floats = np.cumsum((share.max(axis=1) * reduced.demand)[order])
    step = np.zeros(len(lean), np.int64)
    step[order] = np.minimum((weight / max(float(weight[-1]), 1e-12) * _PROFILES).astype(np.int64), _PROFILES - 1)
    # Equal kinds of shares must not be told apart by where a boundary happens to fall.
    rest = np.packbits(np.concatenate([reduced.suits, reduced.sizes[:, 2:] > 0], axis=1), axis=1)
    _, other = np.unique(rest, axis=0, return_inverse=True)
    _, place = np.unique(np.stack([step, other.reshape(-1)], axis=1), axis=0, return_inverse=True)
    return place.reshape(-1)


def even_shares(
    reduced: ReducedProblem, profile: Ints, rows: Ints, copies: Ints, effort: Effort
) -> tuple[float, Floats]:
    """Share all pods as evenly as possible among `copies` [n] nodes of each row in `rows` [n].

    Returns the fullest resource's part (over 1: there is no room) and the part [profiles, n] of each profile that goes
    to each row.
    """
    groups = int(np.max(profile)) + 1
    width = reduced.sizes.shape[1]
    amount = np.stack(
        [np.bincount(profile, reduced.sizes[:, r] * reduced.demand, groups) for r in range(width)], axis=1
    )
    suits = _all_suit(reduced, profile, groups)[:, rows]
    room = reduced.net[rows] * copies[:, None]
    if len(rows) == 1 and suits.all():  # all goes there
        return float(np.max(amount.sum(axis=0) / np.maximum(room[0], 1e-9))), np.ones((groups, 1))
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
    program = CoveringProgram(demand, columns[0], costs[0])
    program.add(np.concatenate(columns[1:], axis=1), np.concatenate(costs[1:]))
    program.solve(effort)
    used = program.solution()
    share = np.zeros((groups, len(rows)))
    share[group, place] = used[size : size + len(group)]
    missing = float(used[:size].sum())
    return (float(used[-1]) if missing < 1e-3 else np.inf), share


def _all_suit(reduced: ReducedProblem, profile: Ints, groups: int) -> Bools:
    suits = np.ones((groups, len(reduced.price)), np.bool_)
    np.logical_and.at(suits, profile, reduced.suits)
    return suits


def deal(
    reduced: ReducedProblem, rows: Ints, effort: Effort, *, all_or_none: bool = False
) -> tuple[Floats, Floats, float]:
    """Deal pods to nodes of `rows` [nodes], largest first, by the parts that fill all rows evenly.

    Returns patterns [nodes, kinds], what found no room [kinds], and how full the nodes would be at best. With
    `all_or_none` it ends with the first pod that finds no room.
    """
    different, place, copies = np.unique(rows, return_inverse=True, return_counts=True)
    profile = profiles(reduced)
    fullest, share = even_shares(reduced, profile, different, copies, effort)
    dealer = _Dealer(reduced, rows, effort)
    if not np.isfinite(fullest):
        return dealer.counts, reduced.demand.copy(), fullest
    scale = np.maximum(reduced.net.max(axis=0), 1.0)
    order = np.argsort(-(reduced.sizes / scale).max(axis=1), kind="stable")
    pods = np.repeat(order, reduced.demand[order].astype(np.int64))
    row_of = _apportion(profile[pods], share)
    over = [dealer.put(pods[row_of == row], np.flatnonzero(place == row)) for row in range(len(different))]
    over.append(pods[row_of < 0])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    late = np.concatenate(over)
    late = late[np.argsort(rank[late], kind="stable")]
    late = dealer.put_one_by_one(late, np.arange(len(rows)), all_or_none=all_or_none)
    left = np.bincount(late, minlength=len(reduced.demand)).astype(np.float64)
    return dealer.counts, left, fullest


def _apportion(profile: Ints, share: Floats) -> Ints:
    """Return the row of each pod [pods]: in every stretch of a profile's pods about the same part goes to each row."""
    row_of = np.full(len(profile), -1, np.int64)
    for number, parts in enumerate(share):
        pods = np.flatnonzero(profile == number)
        exact = parts * len(pods)
        whole = np.floor(exact + 1e-9)
        short = round(float(exact.sum()) - float(whole.sum()))
        whole[np.argsort(-(exact - whole), kind="stable")[:short]] += 1
        turn = np.concatenate([(np.arange(int(n)) + 0.5) / n for n in whole if n >= 1] or [np.zeros(0)])
        row = np.repeat(np.arange(len(parts)), whole.astype(np.int64))
        row = row[np.argsort(np.round(turn, 9), kind="stable")][: len(pods)]
        row_of[pods[: len(row)]] = row
    return row_of


class _Dealer:
    """Puts pods on nodes so that the fullest resource of each stays as low as possible: `counts` [nodes, kinds]."""

    def __init__(self, reduced: ReducedProblem, rows: Ints, effort: Effort) -> None:
        self.sizes = reduced.sizes
        self.suits = reduced.suits[:, rows]
        self.restricted = not self.suits.all()
        self.net = reduced.net[rows]
        self.load = np.zeros_like(self.net)
        self.inverse = 1.0 / np.maximum(self.net, 1e-9)
        self.counts: Floats = np.zeros((len(rows), len(reduced.sizes)))
        self.effort = effort

    def put(self, pods: Ints, nodes: Ints) -> Ints:
        """Put pods (kinds, in this order) on the nodes; returns those that found no room.

        About a third of the nodes take one pod each at a time, the emptiest ones.
        """
        step = max(1, (len(nodes) + 2) // 3)
        if step == 1 and len(nodes):
            return self._put_in_turn(pods, nodes)
        over: list[Ints] = []
        start = 0
        while start < len(pods) and len(nodes):
            some = pods[start : start + step]
            start += step
            self._charge(nodes)
            mean = self.sizes[some].sum(axis=0) / len(some)
            full = ((self.load[nodes] + mean) * self.inverse[nodes]).max(axis=1)
            target = nodes[np.argsort(full, kind="stable")[: len(some)]]
            holds = (self.load[target] + self.sizes[some] <= self.net[target]).all(axis=1)
            if self.restricted:
                holds &= self.suits[some, target]
            self.load[target[holds]] += self.sizes[some[holds]]
            self.counts[target[holds], some[holds]] += 1
            if not holds.all():
                over.append(some[~holds])
        over.append(pods[start:])
        return np.concatenate(over)

    def _put_in_turn(self, pods: Ints, nodes: Ints) -> Ints:
        """Each pod goes to the node that is least full with it, or stays out: so few nodes take one at a time.

        Numbers instead of arrays, which would have a few elements each.
        """
        sizes: list[list[float]] = self.sizes.tolist()
        loads, nets, inverses = (lines[nodes].tolist() for lines in (self.load, self.net, self.inverse))
        suits = self.suits[:, nodes].tolist()
        counts = [[0] * len(sizes) for _ in loads]
        over: list[int] = []
        for kind in pods.tolist():
            self._charge(nodes)
            size = sizes[kind]
            after = [[load + more for load, more in zip(line, size, strict=True)] for line in loads]
            full = [max(map(mul, line, inverse)) for line, inverse in zip(after, inverses, strict=True)]
            target = full.index(min(full))
            if suits[kind][target] and all(map(le, after[target], nets[target])):
                loads[target] = after[target]
                counts[target][kind] += 1
            else:
                over.append(kind)
        self.load[nodes] = loads
        self.counts[nodes] += counts
        return np.array(over, np.int64)

    def put_one_by_one(self, pods: Ints, nodes: Ints, *, all_or_none: bool) -> Ints:
        """As `put`, each pod to the node that is least full with it; with `all_or_none` until one finds no room.

        For the next pod of the same kind only the node that took this one is evaluated again.
        """
        over: list[Ints] = []
        edges = np.flatnonzero(np.diff(pods)) + 1
        for run in np.split(pods, edges) if len(pods) else ():
            kind = int(run[0])
            size = self.sizes[kind]
            after = self.load[nodes] + size
            fits = (after <= self.net[nodes]).all(axis=1) & self.suits[kind, nodes]
            full: Floats = np.where(fits, (after * self.inverse[nodes]).max(axis=1), np.inf)
            placed = 0
            for _ in range(len(run)):
                self._charge(nodes)
                best = int(np.argmin(full))
                if full[best] == np.inf:
                    if all_or_none:
                        return run[placed:]
                    continue
                target = nodes[best]
                self.load[target] += size
                self.counts[target, kind] += 1
                placed += 1
                more = self.load[target] + size
                full[best] = (more * self.inverse[target]).max() if (more <= self.net[target]).all() else np.inf
            over.append(run[placed:])
        return np.concatenate(over) if over else pods

    def _charge(self, nodes: Ints) -> None:
        """Charge the effort of one round over the nodes."""
        self.effort.charge(14, 6.0 * self.net.shape[1] * len(nodes))
