"""Grows nodes pod by pod: each pod goes where it costs least now.

It goes into room that is paid for, else onto the node whose next larger row adds least to the price, else onto a new
node if that is cheaper still. All pods of a kind are placed at a time, those with the largest first. The size of a pod
is a weighting of its resources. Several weightings often take the same decisions: they share them until they differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import ROUNDING, Bools, Floats, Ints, rows_holding
from shiplap.scheduling.search.column_generation import ReducedProblem
from shiplap.scheduling.search.effort import Effort

_all: Callable[..., Bools] = np.logical_and.reduce
_least: Callable[..., Floats] = np.minimum.reduce
"""Without the steps that methods of arrays take before them; arrays here are small."""

_VALUES = ((0.4, 0.6), (0.55, 0.45), (0.7, 0.3), (0.2, 0.8))
"""Weights of the largest node's first and second resource: they define the size of a pod."""

_FEW_UNITS = 128.0
"""Units of a resource, such as GPUs, of which no node has more than a few."""

_OF_A_UNIT = 2 * sum(_VALUES[0])
"""Weight of one unit of such a resource: more than all cpu and memory of a node."""


def size_weights(reduced: ReducedProblem) -> Floats:
    """Weightings [n, resources] of the resources that define the size of a pod.

    A pod that needs more units of a resource that is counted in a few units, as GPUs, is larger than one that needs
    fewer. Those that need none then fill what is left of nodes that are bought for the others. Placed by cpu and memory
    alone, a pod with one GPU takes one of four that two pods with two want.
    """
    scale = reduced.net[:, :2].max(axis=0)
    weights = np.zeros((len(_VALUES), reduced.net.shape[1]))
    weights[:, : len(scale)] = np.array(_VALUES)[:, : len(scale)] / scale
    for column in range(len(scale), reduced.net.shape[1] - reduced.soft - reduced.rules):
        needed = reduced.sizes[:, column]
        differs = bool((needed != needed[0]).any())
        if differs and bool((reduced.net[:, column] <= _FEW_UNITS).all()):
            weights[:, column] = _OF_A_UNIT
    return weights


def grow_nodes(reduced: ReducedProblem, leading: Bools, weights: Floats, effort: Effort) -> Floats:
    """Patterns [nodes, kinds] of all pods: `leading` [kinds] first, then by size with `weights` [resources].

    Every kind has to fit on some row.
    """
    return next(grown_in_turn(reduced, leading, weights[None, :], effort))


def grown_in_turn(reduced: ReducedProblem, leading: Bools, weights: Floats, effort: Effort) -> Iterator[Floats]:
    """Yield patterns as `grow_nodes` by each of the weightings [ways, resources], in their order.

    Of weightings that take the same decisions all along only the first one yields.
    """
    asked = reduced.demand > 0
    orders = [_largest_first(reduced, leading, each) for each in weights]
    kinds = np.array([order[asked[order]] for order in orders], np.int64)
    find = _CheapestRow(reduced)
    waiting = [_Start(np.arange(len(weights)), 0, None)]
    while waiting:
        start = min(waiting, key=lambda start: int(start.ways[0]))
        waiting.remove(start)
        grower = _Grower(reduced, weights, effort, find, start)
        yield grower.run(kinds)
        waiting += grower.others


def _largest_first(reduced: ReducedProblem, leading: Bools, weights: Floats) -> Ints:
    """The kinds, `leading` ones first, then by size."""
    large = np.round(reduced.sizes @ weights, 12)
    return np.lexsort((np.arange(len(large)), -large, ~leading))


class _CheapestRow:
    """The first, so cheapest, row that holds a load; looked up where each row has at least as much as those before."""

    def __init__(self, reduced: ReducedProblem) -> None:
        net = reduced.net
        self._net = net
        self._columns: list[Floats] = list(np.ascontiguousarray(net.T))
        self._chain = bool((np.diff(net, axis=0) >= 0).all())
        self._steps: list[list[float]] = [column.tolist() for column in self._columns] if self._chain else []

    def of(self, use: Floats, allowed: Bools | None) -> Ints:
        """Rows [nodes] for loads [resources, nodes], the number of rows where none holds; `allowed` [nodes, rows]."""
        rows = len(self._net)
        if allowed is None and self._chain:
            found: Ints = self._columns[0].searchsorted(use[0])
            for column, amount in zip(self._columns[1:], use[1:], strict=True):
                np.maximum(found, column.searchsorted(amount), out=found)
            return found
        holds = rows_holding(self._net, use.T)
        if allowed is not None:
            holds &= allowed
        row = holds.argmax(axis=1)
        return np.where(holds[np.arange(len(row)), row], row, rows)

    def of_one(self, use: Sequence[float], allowed: Bools | None) -> int:
        """The row of one load [resources]; as `of`, but most of its time would go into arrays of one element."""
        if allowed is None and self._chain:
            return max(map(bisect_left, self._steps, use))
        holds: Bools = self._columns[0] >= use[0]
        for column, amount in zip(self._columns[1:], use[1:], strict=True):
            holds &= column >= amount
        if allowed is not None:
            holds &= allowed
        row = int(np.argmax(holds))
        return row if holds[row] else len(self._net)


class _Grown(msgspec.Struct, frozen=True, eq=False):
    """Nodes as far as they are filled: the arrays of `_Grower` for them, and the entries of their patterns."""

    use: Floats
    spare: Floats
    row: Ints
    paid: Floats
    allowed: Bools | None
    entries: list[tuple[Ints, int, Ints]]
    singles: list[tuple[int, int, int]]


class _Start(msgspec.Struct, frozen=True, eq=False):
    """The weightings `ways` [n], which have agreed on the first `done` kinds; `grown` is None where these are none."""

    ways: Ints
    done: int
    grown: _Grown | None


class _Grower:
    """Nodes being filled: `use` and `spare` [resources, nodes] on `row` [nodes], for which `paid` [nodes] is the price.

    `allowed` [nodes, rows] is set where some kinds do not suit all rows. `next` and `step` [nodes] are the row that one
    more pod of the present kind needs, and what that adds to the price.
    The first weighting decides. Weightings that would decide otherwise go to `others`, to start at the present kind.
    """

    def __init__(
        self, reduced: ReducedProblem, weights: Floats, effort: Effort, find: _CheapestRow, start: _Start
    ) -> None:
        self._problem, self._weights, self._effort, self._find = reduced, weights, effort, find
        self.others: list[_Start] = []
        self._present = start
        self._ways = start.ways
        most, width = int(reduced.demand.sum()), reduced.sizes.shape[1]
        self._use: Floats = np.zeros((width, most))
        self._spare: Floats = np.zeros((width, most))
        self._row: Ints = np.zeros(most, np.int64)
        self._paid: Floats = np.zeros(most)
        self._next: Ints = np.zeros(most, np.int64)
        self._step: Floats = np.zeros(most)
        self._allowed: Bools | None = None
        if not reduced.suits.all():
            self._allowed = np.ones((most, len(reduced.price)), np.bool_)
        # One row more stands for no row at all.
        self._net: Floats = np.concatenate([reduced.net.T, np.full((width, 1), -1.0)], axis=1)
        self._price = np.append(reduced.price, np.inf)
        self._nodes = 0
        self._entries: list[tuple[Ints, int, Ints]] = []
        self._singles: list[tuple[int, int, int]] = []

        if start.grown is not None:
            self._go_on(start.grown)

    def _go_on(self, grown: _Grown) -> None:
        nodes = self._nodes = len(grown.row)
        self._use[:, :nodes], self._spare[:, :nodes] = grown.use, grown.spare
        self._row[:nodes], self._paid[:nodes] = grown.row, grown.paid
        if self._allowed is not None and grown.allowed is not None:
            self._allowed[:nodes] = grown.allowed
        self._entries, self._singles = list(grown.entries), list(grown.singles)

    def _grown(self) -> _Grown:
        nodes = self._nodes
        return _Grown(
            use=self._use[:, :nodes].copy(),
            spare=self._spare[:, :nodes].copy(),
            row=self._row[:nodes].copy(),
            paid=self._paid[:nodes].copy(),
            allowed=None if self._allowed is None else self._allowed[:nodes].copy(),
            entries=list(self._entries),
            singles=list(self._singles),
        )

    def run(self, orders: Ints) -> Floats:
        """Place the kinds as they stand in the orders of the weightings [ways, kinds]; returns the patterns."""
        for done in range(self._present.done, orders.shape[1]):
            kinds = orders[self._ways, done]
            if len(kinds) > 1:
                self._present = _Start(self._ways, done, self._grown())
                self._keep(kinds == kinds[0])
            kind = int(kinds[0])
            self._place(kind, int(self._problem.demand[kind]))
        counts = np.zeros((self._nodes, len(self._problem.sizes)))
        for nodes, kind, number in self._entries:
            counts[nodes, kind] += number
        if self._singles:
            node, kinds, numbers = np.array(self._singles, np.int64).T
            np.add.at(counts, (node, kinds), numbers)
        return counts

    def _keep(self, agree: Bools) -> None:
        """Go on with the weightings [ways] that agree with the first."""
        if not agree.all():
            present = self._present
            self.others.append(_Start(self._ways[~agree], present.done, present.grown))
            self._ways = self._ways[agree]

    def _place(self, kind: int, left: int) -> None:
        size = self._problem.sizes[kind]
        alone = self._cheapest_row_alone(kind)
        price, opened = float(self._price[alone]), 1
        left = self._fill_paid_room(kind, size, left)
        if left:
            self._ask(kind, size, slice(self._nodes))
        each, grows = 0, False
        while left:
            taken = self._grow(kind, size, left, price)
            if taken:
                left -= taken
                if left:  # what looking for paid room among these nodes would cost; they are full
                    self._effort.charge(14, 4.0 * self._nodes * len(size))
                continue
            if not each:
                each = int(_room(self._net[:, alone : alone + 1], size)[0])
                # A node that can grow no further for this kind will not compete with the next one.
                grows = self._find.of_one(((each + 1) * size).tolist(), None) < len(self._problem.price)
            fresh = min(-(-left // each), opened) if grows else -(-left // each)
            opened *= 2
            before = self._nodes
            left -= self._open(kind, size, alone, fresh, each, left)
            if left:
                self._ask(kind, size, slice(before, self._nodes))

    def _cheapest_row_alone(self, kind: int) -> int:
        suits = None if self._allowed is None else self._problem.suits[kind]
        return self._find.of_one(self._problem.sizes[kind].tolist(), suits)

    def _open(self, kind: int, size: Floats, row: int, fresh: int, each: int, left: int) -> int:
        nodes = np.arange(self._nodes, self._nodes + fresh)
        number = np.full(fresh, each, np.int64)
        last = number[-1] = min(each, left - each * (fresh - 1))
        self._nodes += fresh
        self._row[nodes] = row
        self._paid[nodes] = self._price[row]
        self._spare[:, nodes] = self._net[:, row : row + 1]
        self._put(kind, size, nodes, number)
        return each * (fresh - 1) + last

    def _fill_paid_room(self, kind: int, size: Floats, left: int) -> int:
        """Fill room that is paid for, fullest nodes first; returns how many pods are left."""
        nodes = self._nodes
        if not nodes or not left:
            return left
        self._effort.charge(14, 4.0 * nodes * len(size))
        some: Ints = _all(self._spare[:, :nodes] >= size[:, None]).nonzero()[0]
        if self._allowed is not None:
            some = some[self._problem.suits[kind][self._row[some]]]
        if not len(some):
            return left
        spare = self._spare[:, some]
        many = _room(spare, size)
        fullest = self._fullest(spare, many, left)
        return left - self._take(kind, size, some[fullest], many[fullest], left)

    def _ask(self, kind: int, size: Floats, nodes: Ints | slice) -> None:
        """Note for these nodes [n] which row one more pod needs, and what that adds to the price."""
        allowed = None if self._allowed is None else self._allowed[nodes] & self._problem.suits[kind]
        row = self._next[nodes] = self._find.of(self._use[:, nodes] + size[:, None], allowed)
        self._step[nodes] = (self._price[row] - self._paid[nodes]).round(9)

    def _ask_one(self, kind: int, size: Floats, node: int) -> None:
        """As `_ask`, for one node."""
        allowed = None if self._allowed is None else self._allowed[node] & self._problem.suits[kind]
        row = self._next[node] = self._find.of_one((self._use[:, node] + size).tolist(), allowed)
        self._step[node] = (self._price[row] - self._paid[node]).round(9)

    def _grow(self, kind: int, size: Floats, left: int, fresh: float) -> int:
        """Put pods where the price rises least, if by no more than `fresh`; returns how many.

        Afterwards these nodes are full for this kind, or no pod is left.
        """
        nodes = self._nodes
        if not nodes:
            return 0
        self._effort.charge(24, (8.0 + (0 if self._allowed is None else len(self._price))) * nodes * len(size))
        step = self._step[:nodes]
        least = float(_least(step))
        if least > fresh + ROUNDING:
            return 0
        some: Ints = (step <= least + ROUNDING).nonzero()[0]
        if len(some) == 1:
            return self._grow_one(kind, size, left, int(some[0]))
        row = self._next[some]
        over = self._net[:, row] - self._use[:, some]
        many = _room(over, size)
        fullest = self._fullest(over, many, left)
        some, row, many, over = some[fullest], row[fullest], many[fullest], over[:, fullest]
        self._row[some] = row
        self._paid[some] = self._price[row]
        self._spare[:, some] = over
        taken = self._take(kind, size, some, many, left)
        if taken < left:
            self._ask(kind, size, some)
        return taken

    def _grow_one(self, kind: int, size: Floats, left: int, node: int) -> int:
        """Let one node grow, and put pods there; returns how many."""
        row = int(self._next[node])
        use = self._use[:, node]
        over = self._net[:, row] - use
        each = zip(over.tolist(), size.tolist(), strict=True)
        number = min(left, *(int(have // wanted) for have, wanted in each if wanted))
        amounts = number * size
        self._row[node] = row
        self._paid[node] = self._price[row]
        use += amounts
        self._spare[:, node] = over - amounts
        if self._allowed is not None:
            self._allowed[node] &= self._problem.suits[kind]
        self._singles.append((node, kind, number))
        if number < left:
            self._ask_one(kind, size, node)
        return number

    def _fullest(self, spare: Floats, many: Ints, left: int) -> Ints:
        """The nodes with least to spare [resources, nodes] that take `left` pods if each node takes `many` [nodes]."""
        if int(many.sum()) <= left:
            return np.arange(len(many))
        weights = self._weights[self._ways]
        amounts = spare[0] * weights[:, :1]
        for line, weight in zip(spare[1:2], weights.T[1:2], strict=True):
            amounts += line * weight[:, None]
        orders = np.argsort(amounts.round(12), axis=1, kind="stable")
        number = int(many[orders[0]].cumsum().searchsorted(left)) + 1
        if len(orders) > 1:
            self._keep((orders[:, :number] == orders[0, :number]).all(axis=1))
        fullest: Ints = orders[0, :number]
        return fullest

    def _take(self, kind: int, size: Floats, nodes: Ints, many: Ints, left: int) -> int:
        """Put pods on these nodes, `many` on each, the last of `left` pods on the last node; returns how many."""
        beyond = max(int(many.sum()) - left, 0)
        if beyond:
            many = many.copy()
            many[-1] -= beyond
        self._put(kind, size, nodes, many)
        return int(many.sum())

    def _put(self, kind: int, size: Floats, nodes: Ints, number: Ints) -> None:
        amounts = size[:, None] * number
        self._use[:, nodes] += amounts
        self._spare[:, nodes] -= amounts
        if self._allowed is not None:
            self._allowed[nodes] &= self._problem.suits[kind]
        self._entries.append((nodes, kind, number))


def _room(spare: Floats, size: Floats) -> Ints:
    """Return how many pods of a size [resources] fit into what nodes have to spare [resources, nodes]."""
    wanted = size > 0
    if not wanted.all():
        spare, size = spare[wanted], size[wanted]
    many: Ints = np.floor(_least(spare / size[:, None], axis=0)).astype(np.int64)
    return many
