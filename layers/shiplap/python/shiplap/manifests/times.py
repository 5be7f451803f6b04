"""Durations and schedules, as fields of manifests spell them.

Durations are those of Karpenter's API, or of Go where a field takes its fuller spelling. Schedules of disruption
budgets have five cron fields, or are one of the @ words. Their grammar is that of Karpenter's parser: minute, hour, day
of the month, month, day of the week; lists, ranges, steps and the English names of months and days; Sunday is 0.
"""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

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

DURATION_OR_NEVER = rf"^({_SIMPLE.pattern}|{NEVER})\Z"
"""A pattern for the texts that `seconds_or_never` takes."""

GO_DURATION = rf"^{_GO.pattern.replace('[-+]?', '[+]?')}\Z"
"""A pattern for the texts that `go_seconds` takes, but for negative ones."""


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


_MACROS = {
    "@annually": "0 0 1 1 *",
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name: number for number, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), 1)}  # noqa: SIM905
_DAYS = {name: number for number, name in enumerate("SUN MON TUE WED THU FRI SAT".split())}  # noqa: SIM905


class _Field(msgspec.Struct, frozen=True):
    name: str
    lowest: int
    highest: int
    names: dict[str, int] = {}


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _DAYS),
)


class Cron(msgspec.Struct, frozen=True):
    """The minutes, hours, days, months and weekdays a schedule names.

    Whether a day field was left open matters: when both are restricted, either makes a day count.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool


def parse_cron(text: str) -> Cron:
    """Read a schedule.

    Raises:
        ValueError: the text is not a schedule; the message names the field.
    """
    if text.startswith("@") and text not in _MACROS:
        raise ValueError(f"{text!r} is not a schedule: known words are {', '.join(_MACROS)}")
    if text.startswith(("TZ=", "CRON_TZ=")):
        raise ValueError(f"{text!r} is not a schedule: annotation shiplap.dev/disruption-time-zone names the time zone")
    parts = _MACROS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} is not a schedule: expected five fields, or one of {', '.join(_MACROS)}")
    minutes, hours, days, months, weekdays = (_values(field, part) for field, part in zip(_FIELDS, parts, strict=True))
    return Cron(minutes, hours, days, months, weekdays, _is_open(parts[2]), _is_open(parts[4]))


def _is_open(part: str) -> bool:
    return any(piece in ("*", "?") for piece in part.split(","))


def _values(field: _Field, text: str) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _range(field, part))


def _range(field: _Field, text: str) -> range:
    span, slash, step = text.partition("/")
    first, dash, last = span.partition("-")
    if span in ("*", "?"):
        low, high = field.lowest, field.highest
    else:
        low = _number(field, first)
        # `5/15` means from 5 on, `5` alone just 5.
        high = _number(field, last) if dash else (field.highest if slash else low)
    if slash and (not _is_number(step) or int(step) == 0):
        raise ValueError(f"the {field.name} {text!r} has a step that is not a whole number above 0")
    if low > high:
        raise ValueError(f"the {field.name} {text!r} ends before it begins")
    return range(low, high + 1, int(step) if slash else 1)


def _number(field: _Field, text: str) -> int:
    named = field.names.get(text.upper())
    if named is not None:
        return named
    if not _is_number(text) or not field.lowest <= int(text) <= field.highest:
        names = f", nor one of {', '.join(field.names).lower()}" if field.names else ""
        raise ValueError(f"the {field.name} {text!r} is not a number from {field.lowest} to {field.highest}{names}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
