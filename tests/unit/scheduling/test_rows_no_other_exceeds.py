"""The rows that no other exceeds are the same, in the same order, however many there are."""

from __future__ import annotations

import numpy as np
import pytest

from shiplap.scheduling.model.resources import CHUNK, Ints, pareto_front


def _one_by_one(rows: Ints) -> list[list[int]]:
    """The largest row that is left, by the sum of its parts of the largest amounts, until all others are exceeded."""
    sums = (rows / np.maximum(rows.max(axis=0, initial=1), 1)).sum(axis=1)
    left, front = list(range(len(rows))), []
    while left:
        best = max(left, key=lambda place: (sums[place], -place))
        front.append(rows[best].tolist())
        left = [place for place in left if (rows[place] > rows[best]).any()]
    return front


@pytest.mark.parametrize("number", [0, 1, 5, 40, 400])
@pytest.mark.parametrize("values", [3, 50, 10_000])
def test_rows_that_no_other_exceeds_are_found(number: int, values: int) -> None:
    rows = np.random.default_rng(number * values).integers(0, values, (number, 4))
    assert pareto_front(rows).tolist() == _one_by_one(rows)


def test_more_rows_than_are_compared_at_once() -> None:
    amounts = np.arange(int(CHUNK**0.5) + 10)
    rows = np.stack([amounts, amounts[::-1]], axis=1)
    assert sorted(pareto_front(rows).tolist()) == sorted(rows.tolist())


def test_equal_rows_are_one() -> None:
    assert pareto_front(np.array([[4, 1], [4, 1], [1, 4], [4, 1]], np.int64)).tolist() == [[4, 1], [1, 4]]
