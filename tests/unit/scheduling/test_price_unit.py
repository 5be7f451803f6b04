"""Prices that are multiples of one amount raise a bound to the next multiple."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.scheduling.search.price_unit import least_price


@pytest.mark.parametrize(
    ("bound", "prices", "least"),
    [
        (0.9, [0.25, 0.5, 1.0], 1.0),
        (1.0, [0.25, 0.5, 1.0], 1.0),
        (0.7, [0.5, 0.75], 0.75),  # no price is the unit
        (1.1, [0.0595, 0.119, 0.238], 1.13050),
        (0.9, [0.2501, 0.3337, 0.7129], 0.9),  # prices without a unit that matters
        (0.9, [], 0.9),
    ],
)
def test_a_bound_rises_to_the_next_multiple(bound: float, prices: list[float], least: float) -> None:
    assert least_price(bound, np.array(prices)) == pytest.approx(least, rel=1e-6)


@given(
    unit=st.floats(0.01, 1.0),
    multiples=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    numbers=st.lists(st.integers(0, 5), min_size=20, max_size=20),
    part=st.floats(0.5, 1.0),
)
def test_no_sum_of_prices_is_below_it(unit: float, multiples: list[int], numbers: list[int], part: float) -> None:
    prices = np.round(np.array(multiples) * unit, 9)
    cost = float((prices * numbers[: len(prices)]).sum())
    assert least_price(part * cost, prices) <= cost * (1 + 1e-6)
