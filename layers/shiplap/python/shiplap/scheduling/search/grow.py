"""Where rules decide how many nodes there are: nodes that are opened first, and grow by the least price step.

Every pod goes where it costs least now: into room that is paid for, else onto the node whose next larger row adds least
to the price, else onto a new node if that is cheaper still. All pods of a kind are placed at a time.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.pod_kinds import ReducedProblem

_MOST_CELLS = 1 << 19
"""Cells of a table of cheapest rows up to which one is made."""

_TOLERANCE = 1e-9


def grow_nodes(reduced: ReducedProblem, leading: Bools, weights: Floats, effort: Effort) -> Floats:
    """Patterns [nodes, kinds] of all pods: `leading` [kinds] first, then by size with `weights` [resources].

    Every kind has to fit on some row.
    """
    return _Grower(reduced, weights, effort).run(leading)


class _CheapestRow:
    """The first, so cheapest, row that holds a load; looked up where rows can be laid out for it."""

    def __init__(self, reduced: ReducedProblem) -> None:
        net = reduced.net
        self._net = net
        self._steps = [np.unique(column) for column in net.T]
        self._chain = bool((np.diff(net, axis=0) >= 0).all())
        cells = int(np.prod([float(len(steps) + 1) for steps in self._steps]))
        self._table: Ints | None = None
        if not self._chain and cells <= _MOST_CELLS:
            self._table = np.full([len(steps) + 1 for steps in self._steps], len(net), np.int64)
            for row in range(len(net) - 1, -1, -1):
                at = (np.searchsorted(steps, value) for steps, value in zip(self._steps, net[row], strict=True))
                self._table[tuple(slice(0, int(place) + 1) for place in at)] = row

    def of(self, use: Floats, allowed: Bools | None) -> Ints:
        """Rows [nodes] for loads [nodes, resources], the number of rows where none holds; `allowed` [nodes, rows]."""
        rows = len(self._net)
        if allowed is None and self._chain:
            found = [np.searchsorted(column, use[:, r]) for r, column in enumerate(self._net.T)]
            return np.max(found, axis=0, initial=0)
        if allowed is None and self._table is not None:
            cells = tuple(np.searchsorted(steps, use[:, r]) for r, steps in enumerate(self._steps))
            place: Ints = self._table[cells]
            return place
        holds = np.ones((len(use), rows), np.bool_) if allowed is None else allowed.copy()
        for r, column in enumerate(self._net.T):
            holds &= column[None, :] >= use[:, r, None]
        return np.where(holds.any(axis=1), holds.argmax(axis=1), rows)


class _Grower:
    """Nodes being filled: `use` [nodes, resources] on `row` [nodes].

    `allowed` [nodes, rows] is set where some kinds do not suit all rows."""

    def __init__(self, reduced: ReducedProblem, weights: Floats, effort: Effort) -> None:
        self._problem, self._weights, self._effort = reduced, weights, effort
        self._find = _CheapestRow(reduced)
        most = int(reduced.demand.sum())
        self._use: Floats = np.zeros((most, reduced.sizes.shape[1]))
        self._row: Ints = np.zeros(most, np.int64)
        self._allowed: Bools | None = None
        if not reduced.suits.all():
            self._allowed = np.ones((most, len(reduced.price)), np.bool_)
        # One line more stands for no row at all.
        self._net = np.concatenate([reduced.net, np.full((1, reduced.net.shape[1]), -1.0)])
        self._price = np.append(reduced.price, np.inf)
        self._nodes = 0
        self._entries: list[tuple[Ints, int, Ints]] = []

    def run(self, leading: Bools) -> Floats:
        large = np.round(self._problem.sizes @ self._weights, 12)
        for kind in np.lexsort((np.arange(len(large)), -large, ~leading)).tolist():
            self._place(kind, int(self._problem.demand[kind]))
        counts = np.zeros((self._nodes, len(large)))
        for nodes, kind, number in self._entries:
            counts[nodes, kind] += number
        return counts

    def _place(self, kind: int, left: int) -> None:
        size = self._problem.sizes[kind]
        alone = self._cheapest_row_alone(kind)
        opened = 1
        left = self._fill_paid_room(kind, size, left)
        while left:
            taken = self._grow(kind, size, left, float(self._price[alone]))
            if taken:
                left = self._fill_paid_room(kind, size, left - taken)
                continue
            each = int(_room(self._net[alone][None, :], size)[0])
            # A node that can grow no further for this kind will not compete with the next one.
            grows = self._find.of(((each + 1) * size)[None, :], None)[0] < len(self._problem.price)
            fresh = min(-(-left // each), opened) if grows else -(-left // each)
            opened *= 2
            left -= self._open(kind, size, alone, fresh, each, left)

    def _cheapest_row_alone(self, kind: int) -> int:
        suits = None if self._allowed is None else self._problem.suits[kind][None, :]
        return int(self._find.of(self._problem.sizes[kind][None, :], suits)[0])

    def _open(self, kind: int, size: Floats, row: int, fresh: int, each: int, left: int) -> int:
        nodes = np.arange(self._nodes, self._nodes + fresh)
        number = np.full(fresh, each, np.int64)
        number[-1] = min(each, left - each * (fresh - 1))
        self._nodes += fresh
        self._row[nodes] = row
        self._put(kind, size, nodes, number)
        return int(number.sum())

    def _fill_paid_room(self, kind: int, size: Floats, left: int) -> int:
        """Fill room that is paid for, fullest nodes first; returns how many pods are left."""
        nodes = self._nodes
        if not nodes or not left:
            return left
        self._effort.charge(14, 4.0 * nodes * len(size))
        spare = self._problem.net[self._row[:nodes]] - self._use[:nodes]
        some = np.flatnonzero((spare >= size).all(axis=1))
        if self._allowed is not None:
            some = some[self._problem.suits[kind][self._row[some]]]
        if not len(some):
            return left
        some = some[np.argsort(np.round(spare[some] @ self._weights, 12), kind="stable")]
        return left - self._take(kind, size, some, _room(spare[some], size), left)

    def _grow(self, kind: int, size: Floats, left: int, fresh: float) -> int:
        """Put pods where the price rises least, if by no more than `fresh`; returns how many."""
        nodes = self._nodes
        if not nodes:
            return 0
        self._effort.charge(24, (8.0 + (0 if self._allowed is None else len(self._price))) * nodes * len(size))
        use = self._use[:nodes] + size
        allowed = None if self._allowed is None else self._allowed[:nodes] & self._problem.suits[kind]
        row = self._find.of(use, allowed)
        step = np.round(self._price[row] - self._price[self._row[:nodes]], 9)
        least = float(step.min())
        if least > fresh + _TOLERANCE:
            return 0
        some = np.flatnonzero(step <= least + _TOLERANCE)
        over = self._net[row[some]] - self._use[some]
        some_order = np.argsort(np.round(over @ self._weights, 12), kind="stable")
        some, over = some[some_order], over[some_order]
        many = _room(over, size)
        before = np.cumsum(many) - many
        used = some[before < left]
        self._row[used] = row[used]
        return self._take(kind, size, some, many, left)

    def _take(self, kind: int, size: Floats, nodes: Ints, many: Ints, left: int) -> int:
        taken = np.clip(left - (np.cumsum(many) - many), 0, many)
        self._put(kind, size, nodes[taken > 0], taken[taken > 0])
        return int(taken.sum())

    def _put(self, kind: int, size: Floats, nodes: Ints, number: Ints) -> None:
        self._use[nodes] += number[:, None] * size
        if self._allowed is not None:
            self._allowed[nodes] &= self._problem.suits[kind]
        self._entries.append((nodes, kind, number))


def _room(spare: Floats, size: Floats) -> Ints:
    wanted = size > 0
    many: Ints = np.floor(spare[:, wanted] / size[wanted]).min(axis=1).astype(np.int64)
    return many
