"""Fewer nodes at the same price: nodes whose pods one larger node holds for no more than they cost become that node.

Prices of cloud instances are often proportional to their size, so that many small nodes cost as much as a few large
ones. Each node also takes a root volume, addresses, daemons and API calls, which its price does not contain.
Nodes of one row are joined first, as many as the price of a larger row allows; then nodes of two different rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shiplap.scheduling.model.resources import ROUNDING, Bools, Floats, Ints, rows_holding
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.effort import Effort

_ALL_PAIRS = 48
"""Up to so many nodes, all pairs are tried."""

_LEAST_PART = 64
"""The joining ends with a round that joins less than this part of the nodes: going on takes as long as the search."""


def join_nodes(problem: BinPackingProblem, filling: Filling, rows: Ints, effort: Effort) -> Filling:
    """The same pods on no more nodes, for no higher price; the same filling where no nodes can be joined.

    `rows` are those that can be the cheapest of the rows that hold a load.
    """
    return _Joiner(problem, filling, rows, effort).run() if len(filling.rows) > 1 else filling


class _Joiner:
    """Nodes with loads, paid prices and what rules count on them. A joined node stands at the place of its first."""

    def __init__(self, problem: BinPackingProblem, filling: Filling, rows: Ints, effort: Effort) -> None:
        self._problem, self._filling, self._effort = problem, filling, effort
        self._rows = rows[np.argsort(problem.price[rows], kind="stable")]
        self._net, self._row_price = problem.net[self._rows], problem.price[self._rows]
        self._price: Floats = problem.price[filling.rows].copy()
        self._row: Ints = filling.rows.copy()
        self._largest: Ints = self._net.max(axis=0, initial=0)
        self._scale = np.maximum(self._largest, 1)
        self._into: Ints = np.arange(len(filling.rows))
        nodes, item, node, number = len(filling.rows), filling.item, filling.node, filling.number
        self._load: Ints = _sums(nodes, node, problem.sizes[item] * number[:, None])
        self._counted: Ints = _sums(nodes, node, problem.capped.T[item] * number[:, None])
        self._owned: Bools = _sums(nodes, node, problem.owners.T[item].astype(np.int64)) > 0
        self._ruled = bool(self._owned.any()) or bool(problem.clash.any())
        self._present: Bools | None = None
        self._barred: Bools = np.zeros((0, 0), np.bool_)
        if problem.clash.any():
            rules = problem.rules
            self._present = np.zeros((nodes, len(rules.clash)), np.bool_)
            self._present[node, rules.class_of[item]] = True
            self._clash = rules.clash
            self._barred = self._barred_by(self._present)
        self._suits: Bools | None = None
        if not problem.suit_lines[0][:, self._rows].all():
            self._suits = np.ones((nodes, len(self._rows)), np.bool_)
            np.logical_and.at(self._suits, node, problem.suits[item][:, self._rows])

    def run(self) -> Filling:
        """Join until hardly any more nodes can be; then the filling."""
        while True:
            nodes = self._joinable()
            before = len(nodes)
            if before < 2:
                break
            self._join_alike(nodes)
            self._join_pairs(self._joinable())
            joined = before - len(self._joinable())
            if not joined or joined * _LEAST_PART < before:
                break
        return self._joined_filling()

    def _joinable(self) -> Ints:
        """The nodes that are left and that can share with some other node as far as rules go."""
        left = np.flatnonzero(self._into == np.arange(len(self._into)))
        if len(left) < 2:
            return left[:0]
        if not self._ruled:
            return left
        counted, owned = self._counted[left], self._owned[left]
        fewest = counted.min(axis=0, initial=np.iinfo(np.int64).max)
        closed = (owned & (counted + fewest > self._problem.caps)).any(axis=1)
        if self._present is not None:
            everywhere = self._present[left].all(axis=0)
            closed |= (self._barred[left] & everywhere).any(axis=1)
        return left[~closed]

    def _join_alike(self, nodes: Ints) -> None:
        """Join nodes of the same row."""
        full = np.round((self._load[nodes] / self._scale).max(axis=1), 12)
        nodes = nodes[np.lexsort((nodes, -full, self._row[nodes]))]
        edges = np.flatnonzero(np.diff(self._row[nodes])) + 1
        for members in np.split(nodes, edges):
            for number in self._numbers(members):
                groups = len(members) // number
                blocks = members[: groups * number].reshape(number, groups).copy()
                # The fullest nodes are joined with the emptiest ones.
                blocks[1::2] = blocks[1::2, ::-1]
                if self._join(blocks.T):
                    break

    def _numbers(self, members: Ints) -> Iterator[int]:
        """Yield how many nodes of a row can become one node that costs no more, as far as the lightest nodes show."""
        if len(members) < 2:
            return
        each = float(self._price[members[0]])
        most = len(members)
        many = np.ceil(np.minimum((self._row_price - ROUNDING) / max(each, ROUNDING), most + 1.0))
        least = self._load[members].min(axis=0)
        many = np.maximum(many, 2).astype(np.int64)
        holds = (self._net >= many[:, None] * least).all(axis=1) & (many <= most)
        yield from sorted(set(many[holds].tolist()))

    def _join_pairs(self, nodes: Ints) -> None:
        """Join nodes of different rows: all pairs of few nodes, of many those up to 8 places apart by price."""
        nodes = nodes[np.lexsort((nodes, self._row[nodes], -np.round(self._price[nodes], 9)))]
        if len(nodes) <= _ALL_PAIRS:
            self._join(np.stack([nodes[side] for side in np.triu_indices(len(nodes), 1)], axis=1))
            return
        for shift in (1, 2, 4, 8):
            nodes = nodes[self._into[nodes] == nodes]
            first = np.arange(len(nodes) - shift)
            first = first[first // shift % 2 == 0]
            self._join(np.stack([nodes[first], nodes[first + shift]], axis=1))

    def _join(self, groups: Ints) -> bool:
        """Join those of the groups [groups, members] that one row holds for no more; those that save most go first."""
        if not len(groups):
            return False
        self._effort.charge(24, 2.0 * len(groups) * self._net.size)
        # Most pairs break a rule, where each node has a pod that keeps off others.
        if self._ruled:
            groups = groups[self._keep_rules(groups)]
        if not len(groups):
            return False
        load: Ints = self._load[groups].sum(axis=1)
        # Most are more than the largest row holds.
        small = (load <= self._largest).all(axis=1)
        groups, load = groups[small], load[small]
        if not len(groups):
            return False
        holds = rows_holding(self._net, load)
        if self._suits is not None:
            holds &= self._suits[groups].all(axis=1)
        place = holds.argmax(axis=1)
        saving = self._price[groups].sum(axis=1) - self._row_price[place]
        some = np.flatnonzero(holds[np.arange(len(place)), place] & (saving >= -ROUNDING))
        taken: set[int] = set()
        chosen: list[int] = []
        for group in some[np.argsort(-np.round(saving[some], 9), kind="stable")].tolist():
            members = groups[group].tolist()
            if taken.isdisjoint(members):
                taken.update(members)
                chosen.append(group)
        if chosen:
            self._put_together(groups[chosen], place[chosen])
        return bool(chosen)

    def _keep_rules(self, groups: Ints) -> Bools:
        """Return a mask of the groups that keep the rules on one node."""
        keeps: Bools = ~(
            self._owned[groups].any(axis=1) & (self._counted[groups].sum(axis=1) > self._problem.caps)
        ).any(axis=1)
        if self._present is not None:
            present = self._present[groups]
            others = present.sum(axis=1)[:, None, :] > present
            keeps &= ~(others & self._barred[groups]).any(axis=(1, 2))
        return keeps

    def _put_together(self, groups: Ints, place: Ints) -> None:
        """Make each of these groups [groups, members] one node of the row at `place` [groups]."""
        first = groups[:, 0]
        self._into[groups] = first[:, None]
        self._row[first], self._price[first] = self._rows[place], self._row_price[place]
        self._load[first] = self._load[groups].sum(axis=1)
        self._counted[first] = self._counted[groups].sum(axis=1)
        self._owned[first] = self._owned[groups].any(axis=1)
        if self._suits is not None:
            self._suits[first] = self._suits[groups].all(axis=1)
        if self._present is not None:
            self._present[first] = self._present[groups].any(axis=1)
            self._barred[first] = self._barred[groups].any(axis=1)

    def _barred_by(self, present: Bools) -> Bools:
        """The classes of rules [nodes, classes] that the pods of each node keep off it."""
        barred = np.zeros_like(present)
        for number, others in enumerate(self._clash):
            barred[present[:, number]] |= others
        return barred

    def _joined_filling(self) -> Filling:
        into = self._into
        left = np.flatnonzero(into == np.arange(len(into)))
        if len(left) == len(into):
            return self._filling
        while (into[into] != into).any():
            into = into[into]
        items = len(self._problem.counts)
        key = np.searchsorted(left, into[self._filling.node]) * items + self._filling.item
        entries, place = np.unique(key, return_inverse=True)
        number = np.zeros(len(entries), np.int64)
        np.add.at(number, place.reshape(-1), self._filling.number)
        return Filling(self._row[left], entries // items, entries % items, number)


def _sums(nodes: int, node: Ints, amounts: Ints) -> Ints:
    """The sums [nodes, columns] of amounts [entries, columns] by node; entries are sorted by node."""
    result = np.zeros((nodes, amounts.shape[1]), np.int64)
    if len(node):
        starts = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
        result[node[starts]] = np.add.reduceat(amounts, starts, axis=0)
    return result
