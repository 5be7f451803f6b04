"""Durations as Karpenter's API spells them, and the fuller spelling of Go that other fields take."""

from __future__ import annotations

import re
from decimal import Decimal

NEVER = "Never"

_SIMPLE = re.compile(r"(?:[0-9]+[smh])+")
_BUDGET = re.compile(r"(?:[0-9]+h[0-9]+m|[0-9]+[hm])(?:0s)?")
_GO = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_PARTS = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "\u03bcs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}


def seconds(text: str) -> int:
    """Seconds of a duration in whole hours, minutes and seconds, such as `90s` or `1h30m`.

    Raises:
        ValueError: another spelling; negative ones, days and fractions among them.
    """
    if not _SIMPLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: expected whole numbers with s, m or h, such as 90s or 1h30m")
    return int(_total(text))


def seconds_or_never(text: str) -> int | None:
    """As `seconds`; None for `Never`. Raises ValueError."""
    if text == NEVER:
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, or {NEVER}") from None


def budget_seconds(text: str) -> int:
    """Seconds of a budget's duration: hours, minutes or both, such as `8h` or `1h30m`. Raises ValueError."""
    if not _BUDGET.fullmatch(text):
        raise ValueError(f"{text!r} is not a budget's duration: expected hours and minutes, such as 8h, 90m or 1h30m")
    return int(_total(text))


def go_seconds(text: str) -> float:
    """Seconds of a duration as Go spells it, such as `1.5h`, `300ms` or `-1m`. Raises ValueError."""
    if not _GO.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: expected numbers with h, m, s or ms, such as 1m30s")
    return float(_total(text) * (-1 if text.startswith("-") else 1))


def _total(text: str) -> Decimal:
    return sum((Decimal(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text)), Decimal(0))
