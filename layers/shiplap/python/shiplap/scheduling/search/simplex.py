"""A linear program solver for column generation: covering rows, few of them, and columns that keep arriving.

Only element-wise arithmetic and plain sums are used, no BLAS or LAPACK: these round differently from machine to
machine, and a different last bit could choose another column and thereby another plan.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.search.effort import Effort

_ENTER = 2e-4
"""A column enters when it saves more than this part of its cost."""

_PIVOT = 1e-9
_SURPLUS = 1e-9
_REFRESH = 150
_CANDIDATES = 24
"""Columns looked at closely before all are looked at again."""


class CoveringProgram:
    """min cost·x subject to columns·x ≥ demand, x ≥ 0, by the revised primal simplex method.

    `columns` [rows, n] and `cost` [n]; the first `rows` columns must be a feasible basis of their own: column i covers
    row i and nothing else. Further ones are added as they are found.
    """

    def __init__(self, demand: Floats, columns: Floats, cost: Floats) -> None:
        self.rows = len(demand)
        self.columns, self.cost = columns, cost
        # A little more of every row, each its own amount, keeps ties from making the method go in circles.
        self._more: Floats = 1e-7 * (1.0 + np.arange(self.rows) / max(self.rows, 1))
        self.demand: Floats = demand + self._more
        self.basis: Ints = np.arange(self.rows)
        self._inverse: Floats = np.diag(1.0 / np.diagonal(columns[:, : self.rows]))
        self._pivots = 0

    def add(self, columns: Floats, cost: Floats) -> None:
        """Add columns [rows, n] with their cost [n]."""
        self.columns = np.concatenate([self.columns, columns], axis=1)
        self.cost = np.concatenate([self.cost, cost])

    @property
    def duals(self) -> Floats:
        """The cost of one more unit of each row's demand [rows]."""
        return (self._basic_cost()[:, None] * self._inverse).sum(axis=0)

    @property
    def basic(self) -> Floats:
        """The values of the basic variables [rows], in the order of `basis`."""
        return (self._inverse * self.demand[None, :]).sum(axis=1)

    @property
    def objective(self) -> float:
        """The cost of the present solution."""
        return float((self._basic_cost() * self.basic).sum())

    def solution(self) -> Floats:
        """How much of each column is used [n]."""
        x = np.zeros(self.columns.shape[1])
        real = self.basis >= 0
        x[self.basis[real]] = np.maximum(self.basic[real], 0.0)
        return x

    def solve(self, effort: Effort) -> bool:
        """Pivot until no column improves; False when the effort ran out first."""
        while not effort.spent:
            effort.charge(12, 2.0 * self.columns.size)
            duals = self.duals
            gain = (self.cost - (duals[:, None] * self.columns).sum(axis=0)) / self.cost
            some = np.argsort(gain, kind="stable")[:_CANDIDATES]
            some = some[gain[some] < -_ENTER]
            before = self._pivots
            if len(some):
                self._improve_by(some, effort)
            else:
                surplus = int(np.argmin(duals))
                # A row whose covering costs less than nothing is covered too much: its surplus variable enters.
                if duals[surplus] < -_SURPLUS:
                    self._enter_surplus(surplus)
            if self._pivots == before:
                return True
        return False

    def _improve_by(self, some: Ints, effort: Effort) -> None:
        """Pivot on a few columns until none of them improves."""
        columns, cost = self.columns[:, some], self.cost[some]
        while not effort.spent:
            effort.charge(25, 2.0 * columns.size + 5.0 * self.rows**2)
            gain = (cost - (self.duals[:, None] * columns).sum(axis=0)) / cost
            best = int(np.argmin(gain))
            if gain[best] >= -_ENTER or not self._pivot(columns[:, best], int(some[best])):
                return

    def _enter_surplus(self, row: int) -> None:
        self._pivot(self._surplus_column(row), -1 - row)

    def _surplus_column(self, row: int) -> Floats:
        column = np.zeros(self.rows)
        column[row] = -1.0
        return column

    def _basic_cost(self) -> Floats:
        return np.where(self.basis >= 0, self.cost[np.maximum(self.basis, 0)], 0.0)

    def _pivot(self, column: Floats, entering: int) -> bool:
        direction = (self._inverse * column[None, :]).sum(axis=1)
        can = direction > _PIVOT
        if not can.any():
            return False
        basic = np.maximum(self.basic, 0.0)
        ratio = np.where(can, basic / np.where(can, direction, 1.0), np.inf)
        least = ratio.min()
        # Of rows that tie, the one with the largest pivot loses the least precision.
        tied = ratio <= least * (1 + 1e-9) + 1e-12
        self._replace(int(np.argmax(np.where(tied, direction, 0.0))), column, entering)
        return True

    def _replace(self, leave: int, column: Floats, entering: int) -> None:
        direction = (self._inverse * column[None, :]).sum(axis=1)
        line = self._inverse[leave] / direction[leave]
        self._inverse -= direction[:, None] * line[None, :]
        self._inverse[leave] = line
        self.basis[leave] = entering
        self._pivots += 1
        if self._pivots % _REFRESH == 0:
            self._refresh()

    def _refresh(self) -> None:
        """Compute the inverse again from the basis, to shed rounding errors: Gauss-Jordan with row pivoting."""
        size = self.rows
        work = np.zeros((size, 2 * size))
        for place, entry in enumerate(self.basis.tolist()):
            if entry >= 0:
                work[:, place] = self.columns[:, entry]
            else:
                work[-1 - entry, place] = -1.0
        work[:, size:] = np.eye(size)
        for place in range(size):
            pivot = place + int(np.argmax(np.abs(work[place:, place])))
            if pivot != place:
                work[[place, pivot]] = work[[pivot, place]]
            line = work[place] / work[place, place]
            work -= work[:, place : place + 1] * line[None, :]
            work[place] = line
        self._inverse = work[:, size:].copy()
