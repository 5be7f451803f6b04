"""Mixes: a few more ways to fill a parcel, told apart by what they take for large; the cheapest is kept.

First-fit-decreasing fills nodes as far as any type reaches and leaves the others, which rules force open, nearly empty.
Here every node is taken at its cheapest type, pods that must spread come first, and the room that is paid for is used
before a node grows.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.bulk.first_fit import FirstFit, cheapest_rows
from shiplap.scheduling.parcels import Filling, Parcel
from shiplap.scheduling.resources import Floats, Ints

_MIXES = ((0.5, 0.5), (0.8, 0.2), (0.2, 0.8))
"""Weights of cpu and memory, each as a share of what all pods ask for, by which pods are taken for large."""


def cheapest_of(parcel: Parcel, plain: Filling) -> Filling:
    """The cheapest of a filling and those that this module makes of the same parcel; ties go to the first."""
    placed = int(plain.number.sum())
    found = [plain]
    for order in orders(parcel):
        filling = _PaidFirst(parcel).run(order)
        if int(filling.number.sum()) == placed:
            found.append(filling)
    return min(found, key=lambda filling: filling.hourly(parcel))


def orders(parcel: Parcel) -> list[list[int]]:
    """The items in the orders to try: those that rules spread over most nodes first, then the largest."""
    capped = parcel.owners & parcel.capped
    alone = np.where(capped, parcel.caps[:, None], np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    single = (alone == 1) | parcel.clash.diagonal()
    # Only the rule that forces most nodes open is worth opening them for beforehand.
    forced = np.where(capped, parcel.counts[None, :], 0).sum(axis=1)
    leading = capped[int(np.argmax(forced))] & single if len(forced) and forced.any() else np.zeros_like(single)
    totals: Floats = np.maximum(parcel.counts @ parcel.sizes, 1).astype(np.float64)
    shares = parcel.sizes / totals
    found = []
    for cpu, memory in _MIXES:
        weight = shares[:, 0] * cpu + shares[:, 1] * memory
        found.append(np.lexsort((np.arange(len(weight)), -weight, ~leading)).tolist())
    return found


class _PaidFirst(FirstFit):
    """First-fit that puts pods into room already paid for before a node grows."""

    def __init__(self, parcel: Parcel) -> None:
        super().__init__(parcel)
        self._row_of: Ints = np.zeros(len(self._used), np.int64)
        self._paid: Ints = np.full_like(self._used, -1)
        self._scale: Floats = np.maximum(parcel.counts @ parcel.sizes, 1).astype(np.float64)

    def _place(self, item: int, size: Ints, pattern: int, room: Ints, left: int) -> None:
        if self._nodes:
            left -= self._use_paid(item, size, pattern, room, left)
        if left:
            super()._place(item, size, pattern, room, left)
            used, paid = self._used[: self._nodes], self._paid[: self._nodes]
            grown = np.flatnonzero((used > paid).any(axis=1))
            rows = cheapest_rows(self._sets, self._set_of[grown], used[grown])
            self._row_of[grown] = rows
            self._paid[grown] = self._parcel.net[rows]

    def _use_paid(self, item: int, size: Ints, pattern: int, room: Ints, left: int) -> int:
        wanted = np.flatnonzero(size)
        spare = self._paid[: self._nodes] - self._used[: self._nodes]
        nodes = np.flatnonzero((spare[:, wanted] >= size[wanted]).all(axis=1))
        if not len(nodes):
            return 0
        many = np.zeros(self._nodes, np.int64)
        many[nodes] = (spare[np.ix_(nodes, wanted)] // size[wanted]).min(axis=1)
        if len(self._sets.masks) > 1:
            many *= self._sets.masks[pattern][self._row_of[: self._nodes]]
        if not self._rules.free(item):
            many = self._rules.bound(item, many)
        nodes = np.flatnonzero(many > 0)
        # The fullest first: what would be left over there hardly serves anything else.
        nodes = nodes[np.argsort((spare[nodes] / self._scale).sum(axis=1), kind="stable")]
        before = np.cumsum(many[nodes]) - many[nodes]
        taken = np.clip(left - before, 0, many[nodes])
        nodes, taken = nodes[taken > 0], taken[taken > 0]
        if len(nodes):
            self._put(item, nodes, taken, size, pattern)
            room[nodes] -= taken
        return int(taken.sum())
