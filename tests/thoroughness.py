"""Sets how long tests may search: `make test` takes minutes, `make test-all` runs everything, as CI does.

Tests that take long by their nature are marked `thorough`: they deploy stacks, compile programs or play whole stories.
`make test` leaves them out, draws a sixth of the examples of each property, and takes samples of long lists of cases.
The trees without a policy draw two examples of each: a name that is missing there shows in any of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

_HOW = os.environ.get("SHIPLAP_TESTS")

THOROUGH = _HOW == "all"
"""True in `make test-all`."""

FEWEST = {"SHIPLAP_TESTS": "fewest"}
"""The environment in which properties draw as few examples as they can."""

_SHARE, _LEAST, _FEWEST = 6, 5, 2

Case = TypeVar("Case")


def draws(number: int) -> int:
    """Return how many examples a property draws that wants so many of them."""
    if _HOW in FEWEST.values():
        return min(number, _FEWEST)
    return number if THOROUGH else max(number // _SHARE, min(number, _LEAST))


def sampled(cases: Sequence[Case], number: int) -> Sequence[Case]:
    """Return so many of the cases, from the first to the last at equal distances; in `make test-all` all of them."""
    if THOROUGH or len(cases) <= number:
        return cases
    return [cases[at * (len(cases) - 1) // (number - 1)] for at in range(number)]


def moments(most: int, first: int = 0) -> range:
    """Return the numbers of the effects at which a function is to die: each fourth from a first, or all of them."""
    return range(most) if THOROUGH else range(first % 4, most, 4)
