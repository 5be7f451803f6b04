"""RFC 3339 timestamps as Kubernetes writes them: UTC, whole seconds or microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(epoch_s: float) -> str:
    """A moment as `2026-01-31T12:00:00Z`, fractions of a second dropped (metav1.Time)."""
    return _written(int(epoch_s))


@lru_cache(maxsize=256)
def _written(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(text: str) -> float:
    """Epoch seconds of an RFC 3339 timestamp.

    Raises:
        ValueError: the text is not a timestamp with a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()
