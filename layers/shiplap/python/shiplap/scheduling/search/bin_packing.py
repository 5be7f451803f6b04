"""Bin packing problems, and their first solution: first-fit-decreasing.

The tier and the domain of the pods of a problem are decided, so that only the filling of new nodes is open. Nodes of a
problem are independent of each other: it is a vector bin packing problem with a few rules per node. The bulk stage
fills problems by first-fit-decreasing: all pods of an item at once, new nodes opened when no node takes more. The cost
search fills them again, cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import CHUNK, PLENTY, Bools, Floats, Ints, distinct_lines, pareto_front
from shiplap.scheduling.search.rule_classes import Rules, marked_columns


class BinPackingProblem(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Items (classes of pods) and rows (instance types as one pool tier offers them in one domain).

    `sizes` [items, resources] is what one pod takes, `counts` [items] how many there are. `net` [rows, resources] is
    what a node leaves to pods next to daemons, `price` [rows] its cheapest available offering in USD per hour,
    infinite where there is none. `suits` [items, rows] says which rows an item may use: a node's row has to suit all
    its items. Rule `c` binds a node as soon as it holds a pod of an item in `owners[c]` ([rules, items]): it may then
    hold at most `caps[c]` pods of the items in `capped[c]` ([rules, items]), owners among them included. Two items that
    `clash` [items, items] never share a node; an item that clashes with itself has at most one pod on each.
    """

    sizes: Ints
    counts: Ints
    net: Ints
    price: Floats
    suits: Bools
    caps: Ints
    capped: Bools
    owners: Bools
    clash: Bools

    @cached_property
    def rules(self) -> Rules:
        """The rules by class of rules."""
        return Rules(self.owners, self.capped, self.clash)

    @cached_property
    def suit_lines(self) -> tuple[Bools, Ints]:
        """The different lines of `suits` [n, rows], and which of them that of each item is: mostly all are alike."""
        if len(self.suits) and (self.suits == self.suits[0]).all():
            return self.suits[:1], np.zeros(len(self.suits), np.int64)
        first, of = distinct_lines(np.packbits(self.suits, axis=1))
        return self.suits[first], of


class Filling(msgspec.Struct, frozen=True, eq=False):
    """Nodes that together hold a problem: `rows` [nodes] names each node's cheapest sufficient row.

    `number` [entries] pods of `item` [entries] stand on `node` [entries]; entries are sorted by node, then item.
    """

    rows: Ints
    node: Ints
    item: Ints
    number: Ints

    def hourly(self, problem: BinPackingProblem) -> float:
        """USD per hour of all its nodes."""
        return float(problem.price[self.rows].sum())


class RowSets:
    """The sets of rows that nodes of a problem may still become; a pod of an item narrows its node's set."""

    def __init__(self, problem: BinPackingProblem) -> None:
        self._net, self._price = problem.net, problem.price
        patterns: dict[bytes, int] = {}
        self.pattern: Ints = np.array(
            [patterns.setdefault(line.tobytes(), len(patterns)) for line in problem.suits & np.isfinite(problem.price)],
            np.int64,
        )
        self.masks: list[Bools] = [np.frombuffer(text, np.bool_) for text in patterns]
        self._numbers = {text: number for number, text in enumerate(patterns)}
        self._sorted: dict[int, tuple[Ints, Ints]] = {}
        self._fronts: dict[int, Ints] = {}
        self._joined: dict[tuple[int, int], int] = {}

    def join(self, rows: int, pattern: int) -> int:
        """The set that is left of a set of rows once a pattern applies as well."""
        if rows == pattern:
            return rows
        key = (rows, pattern)
        known = self._joined.get(key)
        if known is None:
            mask = self.masks[rows] & self.masks[pattern]
            known = self._joined[key] = self._numbers.setdefault(mask.tobytes(), len(self.masks))
            if known == len(self.masks):
                self.masks.append(mask)
        return known

    def front(self, rows: int) -> Ints:
        """The net resources of a set of rows that no other of them exceeds."""
        known = self._fronts.get(rows)
        if known is None:
            known = self._fronts[rows] = pareto_front(self._net[self.masks[rows]])
        return known

    def by_price(self, rows: int) -> tuple[Ints, Ints]:
        """A set of rows, cheapest first, with their net resources."""
        known = self._sorted.get(rows)
        if known is None:
            members = np.flatnonzero(self.masks[rows])
            members = members[np.argsort(self._price[members], kind="stable")]
            known = self._sorted[rows] = (members, self._net[members])
        return known

    def room(self, rows: int, used: Ints, size: Ints) -> Ints:
        """Return how many pods of `size` [resources] nodes with these rows take on top of `used` [nodes, resources]."""
        front = self.front(rows)
        if not len(front):
            return np.zeros(len(used), np.int64)
        wanted = np.flatnonzero(size)
        if len(front) == 1:
            free = front[0, wanted] - used[:, wanted]
            many: Ints = (free // size[wanted]).min(axis=1, initial=PLENTY)
            return many
        step = max(1, CHUNK // front.size)
        parts: list[Ints] = []
        for start in range(0, len(used), step):
            free = front[None, :, :] - used[start : start + step, None, :]
            many = (free[:, :, wanted] // size[wanted]).min(axis=2, initial=PLENTY)
            parts.append(np.where((free >= 0).all(axis=2), many, 0).max(axis=1))
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def holds(self, rows: int, used: Ints, size: Ints) -> Bools:
        """Return a mask of the nodes with these rows that take one pod of `size` on top of `used`.

        It needs no division.
        """
        limits = self.front(rows) - size
        if len(limits) == 1:
            holds = np.ones(len(used), np.bool_)
            for column in np.flatnonzero(size).tolist():
                holds &= used[:, column] <= limits[0, column]
            return holds
        step = max(1, CHUNK // max(limits.size, 1))
        parts: list[Bools] = [
            (used[start : start + step, None, :] <= limits[None, :, :]).all(axis=2).any(axis=1)
            for start in range(0, len(used), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


class _Rules:
    """The room that the rules of a problem leave on each node: pods counted and owners present, per rule and node."""

    def __init__(self, problem: BinPackingProblem, nodes: int) -> None:
        self._caps = problem.caps.tolist()
        self.counted: Ints = np.zeros((len(self._caps), nodes), np.int64)
        self.owned: Bools = np.zeros((len(self._caps), nodes), np.bool_)
        self.holds: Bools = np.zeros((len(problem.counts), nodes) if problem.clash.any() else (0, 0), np.bool_)
        self._clash = marked_columns(problem.clash) if len(self.holds) else []
        self._alone = problem.clash.diagonal().tolist()
        self._capped = marked_columns(problem.capped.T)
        self._owns = marked_columns(problem.owners.T)

    def free(self, item: int) -> bool:
        """True if no rule applies to an item."""
        return not (self._capped[item] or self._owns[item] or (self._clash and self._clash[item]))

    def each(self, item: int) -> int:
        """Return how many pods of an item the rules allow on an empty node."""
        most = min((self._caps[rule] for rule in self._owns[item] if rule in self._capped[item]), default=PLENTY)
        return 1 if self._alone[item] else most

    def bound(self, item: int, many: Ints) -> Ints:
        """Counts [nodes] within the rules."""
        number = len(many)
        for rule in self._owns[item]:
            counted = self.counted[rule, :number]
            if rule in self._capped[item]:
                many = np.minimum(many, self._caps[rule] - counted)
            else:
                many = many * (counted <= self._caps[rule])
        for rule in self._capped[item]:
            if rule not in self._owns[item] and (owned := self.owned[rule, :number]).any():
                many = np.where(owned, np.minimum(many, self._caps[rule] - self.counted[rule, :number]), many)
        if self._clash and self._clash[item]:
            many = many * ~self.holds[self._clash[item], :number].any(axis=0)
            if self._alone[item]:
                many = np.minimum(many, 1)
        return many

    def record(self, item: int, nodes: Ints | int, number: Ints | int) -> None:
        """Pods of an item now stand on nodes, each node given once."""
        for rule in self._capped[item]:
            self.counted[rule, nodes] += number
        for rule in self._owns[item]:
            self.owned[rule, nodes] = True
        if self._clash:
            self.holds[item, nodes] = True


def first_fit(problem: BinPackingProblem) -> Filling:
    """Nodes for a problem; items that no row can hold, and pods beyond what rules leave, stay out."""
    return FirstFit(problem).run(range(len(problem.counts)))


class FirstFit:
    """Fills one problem, item after item."""

    def __init__(self, problem: BinPackingProblem) -> None:
        self._parcel = problem
        most = int(problem.counts.sum())
        self._sets = RowSets(problem)
        self._rules = _Rules(problem, most)
        self._used: Ints = np.zeros((most, problem.sizes.shape[1]), np.int64)
        self._set_of: Ints = np.zeros(most, np.int64)
        self._nodes = 0
        self._entries: list[tuple[Ints, int, Ints]] = []
        self._singles: list[tuple[int, int]] = []

    def run(self, order: Iterable[int]) -> Filling:
        """Fill with the items in this order; it pays if those of one size stand next to each other."""
        room: Ints = np.zeros(0, np.int64)
        known: tuple[bytes, int] | None = None
        items, sizes, counts = list(order), self._parcel.sizes, self._parcel.counts.tolist()
        keys = [(sizes[item].tobytes(), int(self._sets.pattern[item])) for item in items]
        for item, key, following in zip(items, keys, [*keys[1:], None], strict=True):
            size, pattern = sizes[item], key[1]
            if key != known:
                known = key
                if counts[item] == 1 and following != key:
                    room = self._each(self._sets.holds, size, pattern)
                else:
                    room = self._each(self._sets.room, size, pattern)
            elif len(room) < self._nodes:
                fresh = self._each(self._sets.room, size, pattern, len(room))
                room = np.concatenate([room, fresh])
            self._place(item, size, pattern, room, counts[item])
        return self._filling()

    def _each(self, ask: Callable[[int, Ints, Ints], Ints | Bools], size: Ints, pattern: int, start: int = 0) -> Ints:
        """Return the answers of `ask`, which is `RowSets.room` or `RowSets.holds`, for each node from `start` on."""
        used = self._used[start : self._nodes]
        sets = self._set_of[start : self._nodes]
        present = np.unique(sets).tolist() if len(self._sets.masks) > 1 else [0]
        if len(present) == 1:
            return ask(self._sets.join(present[0], pattern), used, size).astype(np.int64, copy=False)
        many = np.zeros(len(used), np.int64)
        for number in present:
            members = np.flatnonzero(sets == number)
            many[members] = ask(self._sets.join(number, pattern), used[members], size)
        return many

    def _place(self, item: int, size: Ints, pattern: int, room: Ints, left: int) -> None:
        if len(room):
            many = room if self._rules.free(item) else self._rules.bound(item, room)
            if left == 1:
                first = int(np.argmax(many > 0))
                if many[first] > 0:
                    self._put_one(item, first, size, pattern)
                    room[first] -= 1
                    return
            else:
                many = np.minimum(np.maximum(many, 0), left)
                taken = np.clip(left - (np.cumsum(many) - many), 0, many)
                nodes = np.flatnonzero(taken)
                if len(nodes):
                    number = taken[nodes]
                    self._put(item, nodes, number, size, pattern)
                    room[nodes] -= number
                    left -= int(number.sum())
        if left:
            self._open(item, size, pattern, left)

    def _open(self, item: int, size: Ints, pattern: int, left: int) -> None:
        empty = np.zeros((1, len(size)), np.int64)
        each = min(int(self._sets.room(pattern, empty, size)[0]), self._rules.each(item))
        if each <= 0:
            return
        fresh = -(-left // each)
        nodes = np.arange(self._nodes, self._nodes + fresh)
        number = np.full(fresh, each, np.int64)
        number[-1] = left - each * (fresh - 1)
        self._set_of[nodes] = pattern
        self._nodes += fresh
        self._put(item, nodes, number, size, pattern)

    def _put(self, item: int, nodes: Ints, number: Ints, size: Ints, pattern: int) -> None:
        self._used[nodes] += number[:, None] * size
        if len(self._sets.masks) > 1:
            self._set_of[nodes] = [self._sets.join(known, pattern) for known in self._set_of[nodes].tolist()]
        self._rules.record(item, nodes, number)
        self._entries.append((nodes, item, number))

    def _put_one(self, item: int, node: int, size: Ints, pattern: int) -> None:
        """As `_put`, for one pod: most entries of a problem with many rules are of one pod each."""
        self._used[node] += size
        if len(self._sets.masks) > 1:
            self._set_of[node] = self._sets.join(int(self._set_of[node]), pattern)
        self._rules.record(item, node, 1)
        self._singles.append((node, item))

    def _filling(self) -> Filling:
        singles = np.array(self._singles, np.int64).reshape(-1, 2)
        node = np.concatenate([singles[:, 0], *(nodes for nodes, _, _ in self._entries)])
        number = np.concatenate([np.ones(len(singles), np.int64), *(number for _, _, number in self._entries)])
        item = np.concatenate([singles[:, 1], *(np.full(len(nodes), item) for nodes, item, _ in self._entries)])
        order = np.lexsort((item, node))
        node, item, number = node[order], item[order].astype(np.int64), number[order]
        starts = np.flatnonzero(np.r_[True, (np.diff(node) != 0) | (np.diff(item) != 0)][: len(node)])
        rows = cheapest_rows(self._sets, self._set_of[: self._nodes], self._used[: self._nodes])
        return Filling(rows, node[starts], item[starts], np.add.reduceat(number, starts) if len(starts) else number)


def cheapest_rows(sets: RowSets, set_of: Ints, used: Ints) -> Ints:
    """The cheapest row of each node's set that holds its load [nodes, resources]; ties go to the first row."""
    rows = np.zeros(len(used), np.int64)
    for number in np.unique(set_of).tolist() if len(sets.masks) > 1 else [0]:
        members = np.flatnonzero(set_of == number)
        candidates, net = sets.by_price(number)
        step = max(1, CHUNK // max(net.size, 1))
        for start in range(0, len(members), step):
            some = members[start : start + step]
            holds = np.ones((len(some), len(net)), np.bool_)
            for column in range(net.shape[1]):
                holds &= net[None, :, column] >= used[some, None, column]
            rows[some] = candidates[holds.argmax(axis=1)]
    return rows
