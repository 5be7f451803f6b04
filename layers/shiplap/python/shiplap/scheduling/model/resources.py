"""The resource axis of a decision: which resource stands in which column of every array.

Fixing the columns once lets fits be numpy comparisons over all instance types or all open nodes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shiplap.kubernetes.quantity import CPU, MEMORY, PODS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Prices, values and parts are rounded to nine decimals: smaller differences are those of adding in another order."""

CHUNK = 1 << 20
"""Elements of the largest intermediate array: a few of 8 MiB at a time leave a function of 1 GiB its memory."""

PLENTY = 1 << 60
"""Stands for "no limit"; far above any real amount, and sums of it still fit 64 bits."""


class Axis:
    """The resources a decision looks at: cpu, memory and pods first, then the others by name."""

    def __init__(self, names: Iterable[str]) -> None:
        leading = (CPU, MEMORY, PODS)
        self.names: tuple[str, ...] = (*leading, *sorted(set(names).difference(leading)))
        self._columns = frozenset(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def holds(self, names: Iterable[str]) -> bool:
        """True if each of these resources has a column."""
        return self._columns.issuperset(names)

    def vector(self, amounts: Mapping[str, int], missing: int = 0) -> Ints:
        """Canonical amounts in column order; resources outside the axis are left out."""
        return np.array([amounts.get(name, missing) for name in self.names], np.int64)

    def matrix(self, lists: Sequence[Mapping[str, int]]) -> Ints:
        """One row per resource list, shape [len(lists), len(axis)]."""
        names = self.names
        flat = [amounts.get(name, 0) for amounts in lists for name in names]
        return np.array(flat, np.int64).reshape(len(lists), len(names))

    def amounts(self, row: Ints) -> dict[str, int]:
        """The non-zero entries of a row as a resource list."""
        return {name: amount for name, amount in zip(self.names, row.tolist(), strict=True) if amount}


def pareto_front(rows: Ints) -> Ints:
    """The rows that no other row equals or exceeds in every column, shape [front, columns].

    Whether anything fits some row can be answered on the front alone, and the front of a thousand types is a few dozen
    rows.
    """
    scale = np.maximum(rows.max(axis=0, initial=1), 1)
    # A row that another equals or exceeds in every column never stands before it.
    left = np.ascontiguousarray(rows[np.argsort(-(rows / scale).sum(axis=1), kind="stable")].T)
    left = _unexceeded(left, left.shape[0])  # a first row for each column leaves few of many
    if left.shape[1] ** 2 <= CHUNK:
        return np.ascontiguousarray(_unexceeded(left, left.shape[1]).T)
    front = []
    while left.shape[1]:
        best = left[:, 0]
        front.append(best)
        left = left[:, (left > best[:, None]).any(axis=0)]
    return np.array(front, np.int64).reshape(len(front), rows.shape[1])


def _unexceeded(rows: Ints, number: int) -> Ints:
    """The rows [columns, rows] without those that one of the first `number`, standing before, equals or exceeds."""
    first = rows[:, :number]
    exceeded = ~np.tri(first.shape[1], rows.shape[1], dtype=np.bool_)
    for some, line in zip(first, rows, strict=True):
        exceeded &= some[:, None] >= line
    return rows[:, ~exceeded.any(axis=0)]


def rows_holding(net: Floats | Ints, use: Floats | Ints) -> Bools:
    """Return a mask [n, rows] of the rows [rows, resources] that hold each load [n, resources].

    Going column by column is much faster.
    """
    holds = np.ones((len(use), len(net)), np.bool_)
    for column in range(net.shape[1]):
        holds &= net[None, :, column] >= use[:, column, None]
    return holds


def places_with(room: Ints, requests: Ints) -> Bools:
    """True for each of these amounts [n, resources] that has enough of every resource a pod requests [resources]."""
    fits = np.ones(len(room), np.bool_)
    for column in np.flatnonzero(requests > 0).tolist():
        fits &= room[:, column] >= requests[column]
    return fits


def pods_held(room: Ints, requests: Ints) -> Ints:
    """Return how many pods with these requests [resources] each of these amounts [n, resources] holds.

    This is `PLENTY` where the pods request nothing.
    """
    many: Ints = np.full(len(room), PLENTY, np.int64)
    for column in np.flatnonzero(requests > 0).tolist():
        np.minimum(many, room[:, column] // requests[column], out=many)
    return np.maximum(many, 0, out=many)


def distinct_lines(lines: Ints | NDArray[np.uint8]) -> tuple[Ints, Ints]:
    """Return where each distinct line of a matrix is first, and for every line the number of its distinct line.

    Lines of bytes come sorted.
    """
    if len(lines) < 2 or not lines.shape[1]:
        return np.zeros(min(len(lines), 1), np.int64), np.zeros(len(lines), np.int64)
    # Compared as bytes, which is several times as quick as column by column.
    whole = np.ascontiguousarray(lines).view(f"V{lines.itemsize * lines.shape[1]}").reshape(-1)
    _, first, of = np.unique(whole, return_index=True, return_inverse=True)
    return first, of
