"""The wait for an offering that EC2 refused, and the number of instances that a launch may ask of it afterwards.

Capacity that failed twice in a row gets a longer back-off, and a smaller trial after it.
"""

from __future__ import annotations

from functools import lru_cache

FIRST_WAIT_S = 180
FIRST_WAIT_FOR_QUOTA_S = 900
"""A limit of the account is raised by people; until then every attempt is in vain."""
LONGEST_WAIT_S = 3600

LAUNCH_BUDGET = 100
"""Instances that may be asked at once of an offering that has failed, before the first halving."""

ANY = "*"
"""Stands for every zone, every capacity type, or every instance type."""

_QUOTAS = {
    "standard": "a c d h i m r t z",
    "f": "f",
    "g": "g gr vt",
    "p": "p",
    "x": "x",
    "inf": "inf",
    "trn": "trn",
    "dl": "dl",
    "hpc": "hpc",
    "high-memory": "u",
}
_QUOTA_OF = {letters: f"quota:{name}" for name, families in _QUOTAS.items() for letters in families.split()}


@lru_cache(maxsize=4096)
def quota_of(instance_type: str) -> str:
    """The vCPU quota an instance type counts towards, by the letters its name begins with: `quota:standard` for m5.

    EC2 counts vCPUs per group of families; a family that is not known here counts by itself.
    """
    letters = ""
    for letter in instance_type:
        if not letter.isalpha():
            break
        letters += letter
    # Families such as `im` and `mac` begin with the letter of their group.
    return _QUOTA_OF.get(letters) or _QUOTA_OF.get(letters[:1]) or f"quota:{letters}"


def in_placement_group(group: str, instance_type: str) -> str:
    """An instance type, or ANY, for launches into a placement group: others may get capacity that these lack."""
    return f"{group}/{instance_type}" if group else instance_type


def launch_budget(failures: int) -> int:
    """Instances that may be asked at once of an offering after so many failures in a row: 100 halved each time."""
    return max(LAUNCH_BUDGET >> failures, 1)


def wait_s(failures: int, first_s: int = FIRST_WAIT_S) -> int:
    """Seconds to leave an offering alone after so many failures in a row: 180, doubling to 3600."""
    return min(first_s << max(failures - 1, 0), LONGEST_WAIT_S)


def after_failure(failures: int, until: float, now: float, first_s: int = FIRST_WAIT_S) -> tuple[int, float]:
    """The failures in a row and the epoch second until which the offering rests, once it failed at `now`.

    `failures` and `until` are what was known before (0, 0.0 when nothing was). While it rests, another failure is the
    same outage seen by another function and changes nothing. A failure later than one more wait of the same length
    after the rest is news, not a repetition, and starts at one.
    """
    if failures and now < until:
        return failures, until
    repeated = now <= remembered_until(failures, until)
    failures = failures + 1 if repeated else 1
    return failures, now + wait_s(failures, first_s)


def remembered_until(failures: int, until: float) -> float:
    """The epoch second after which a past failure no longer lengthens the next wait."""
    return until + wait_s(failures)
