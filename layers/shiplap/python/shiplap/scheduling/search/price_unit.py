"""The unit of which all prices are multiples, where there is one: the sizes of one family of instances have one.

The price of any nodes is a multiple of it, too, so a lower bound rises to the next multiple.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import ROUNDING, Floats
from shiplap.scheduling.search.column_generation import CLOSE

EXACT = 1000 * ROUNDING
"""The part of a price by which it may miss a multiple: prices are rounded."""

_LEAST_PART = CLOSE / 10
"""A unit below this part of a bound raises the bound by too little to matter."""


def least_price(bound: float, prices: Floats) -> float:
    """USD per hour that nodes of these prices [rows] cost at least if they cost no less than `bound`.

    It is exact but for the part `EXACT`.
    """
    unit = _unit(prices, _LEAST_PART * bound)
    return bound if unit is None else max(bound, float(np.ceil(bound * (1 - EXACT) / unit)) * unit)


def _unit(prices: Floats, least: float) -> float | None:
    """The largest amount of which each price is a multiple; None if there is none of `least` or more."""
    unit = float(np.min(prices, initial=np.inf))
    while least < unit < np.inf:
        rest = np.abs(prices - np.round(prices / unit) * unit)
        rest = rest[rest > EXACT * prices]
        if not len(rest):
            return unit
        unit = float(rest.min())
    return None
