"""How long an offering that EC2 refused is left alone: capacity that failed twice in a row deserves a longer rest."""

from __future__ import annotations

FIRST_WAIT_S = 180
LONGEST_WAIT_S = 3600


def wait_s(failures: int) -> int:
    """Seconds to leave an offering alone after so many failures in a row: 180, doubling to 3600."""
    doublings = min(max(failures - 1, 0), 5)  # five doublings exceed the longest wait
    return min(FIRST_WAIT_S << doublings, LONGEST_WAIT_S)


def after_failure(failures: int, until: float, now: float) -> tuple[int, float]:
    """The failures in a row and the epoch second until which the offering rests, once it failed at `now`.

    `failures` and `until` are what was known before (0, 0.0 when nothing was). While it rests, another failure is the
    same outage seen by somebody else and changes nothing. A failure later than one more wait of the same length
    after the rest is news, not a repetition, and starts at one.
    """
    if failures and now < until:
        return failures, until
    repeated = failures > 0 and now <= remembered_until(failures, until)
    failures = failures + 1 if repeated else 1
    return failures, now + wait_s(failures)


def remembered_until(failures: int, until: float) -> float:
    """The epoch second after which a past failure no longer lengthens the next wait."""
    return until + wait_s(failures)
