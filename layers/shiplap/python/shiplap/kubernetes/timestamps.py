"""RFC 3339 timestamps as Kubernetes writes them: UTC, whole seconds or microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800
"""The first second of the year 1, and of the year 10,000."""


def rfc3339(epoch_s: float) -> str:
    """A moment as `2026-01-31T12:00:00Z`, fractions of a second dropped (metav1.Time)."""
    return _written(int(epoch_s))


@lru_cache(maxsize=256)
def _written(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).replace(tzinfo=None).isoformat() + "Z"


def epoch(text: str) -> float:
    """Epoch seconds of an RFC 3339 timestamp.

    Raises:
        ValueError: the text is not a timestamp with a zone, or its moment cannot be written in UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return epoch_of(moment)


def epoch_of(moment: datetime) -> float:
    """Epoch seconds of a moment. Raises ValueError if it cannot be written in UTC, as its zone may take it too far."""
    epoch_s = moment.timestamp()
    if not _FIRST_S <= epoch_s < _END_S:
        raise ValueError(f"{moment} is not within the years 1 to 9999 of UTC")
    return epoch_s
