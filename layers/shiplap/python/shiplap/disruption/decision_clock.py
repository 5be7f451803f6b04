"""The time of one decision on disruption, and until when time alone does not change that decision.

A decision is a pure function of its snapshot. Each condition on the time asks the clock, and the clock keeps the
earliest moment at which an answer would change. Up to that moment all answers, and so the decision, are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

LONGEST_S = 900.0
"""How far ahead moments are looked for, in seconds. No decision holds longer: it bounds the cost of a missed moment."""


class DecisionClock:
    """`now` and moments are epoch seconds. `changes_at` is the earliest moment that is not over."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.changes_at = inf

    def has_reached(self, moment: float) -> bool:
        """True from a moment on."""
        if self.now < moment:
            self.changes_at = min(self.changes_at, moment)
        return self.now >= moment

    def is_past(self, moment: float) -> bool:
        """True after a moment."""
        self.note((moment,))
        return self.now > moment

    def note(self, moments: Iterable[float]) -> None:
        """Keep moments at which an answer changes that was computed from `now` itself. Past ones change nothing."""
        earliest = min((moment for moment in moments if moment >= self.now), default=inf)
        self.changes_at = min(self.changes_at, earliest)
