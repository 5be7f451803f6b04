"""Sets how long tests may search: `make test` takes minutes, `make test-all` runs everything, as CI does.

Tests that take long by their nature are marked `thorough`: they deploy stacks, compile programs or play whole stories.
`make test` leaves them out and draws a sixth of the examples of each property.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("SHIPLAP_TESTS") == "all"
"""True in `make test-all`."""

_SHARE, _LEAST = 6, 5


def draws(number: int) -> int:
    """Return how many examples a property draws that wants so many of them."""
    return number if THOROUGH else max(number // _SHARE, min(number, _LEAST))
