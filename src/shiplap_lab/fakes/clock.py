"""A clock that moves only on request, and a meter that keeps its values."""

from __future__ import annotations

from collections.abc import Mapping


class FakeClock:
    """A Clock set by hand, in epoch seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def set(self, now: float) -> None:
        """Jump to a moment; it may lie in the past, as clocks of different machines do."""
        self._now = now

    def advance(self, seconds: float) -> float:
        """Let time pass; returns the new moment."""
        self._now += seconds
        return self._now


class FakeMeter:
    """A Meter that adds up. `counts` maps a metric to its sum over all dimensions, `seen` to its values, in order.

    A value in `seen` comes with its dimensions, sorted by name.
    """

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.seen: dict[str, list[tuple[float, tuple[tuple[str, str], ...]]]] = {}

    def count(
        self,
        name: str,
        value: float = 1.0,
        unit: str = "Count",  # noqa: ARG002 - sums need no unit
        *,
        dimensions: Mapping[str, str] | None = None,
    ) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + value
        self.seen.setdefault(name, []).append((value, tuple(sorted((dimensions or {}).items()))))
