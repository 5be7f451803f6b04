"""Windows of sleep: how they are written, and when they are open.

A window is written in local time of an IANA zone, and its moments are computed for each day anew. A local time that a
change of the clocks skips stands for the next one that exists; one that comes twice stands for the first. So a window
is open once per written day, an hour shorter or longer twice a year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec

from shiplap.manifests.shiplap_annotations import zone_named

LEAST_SLEEP_S = 900.0
"""No node leaves for a shorter sleep, in seconds: to launch it again costs as much."""

LONGEST_S = 7 * 24 * 3600
"""Whatever would sleep for longer than this, in seconds, stays awake: it is a mistake more often than not."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FORMS = "'Mon-Fri 19:00-07:00 Europe/Berlin', 'Fri 19:00 - Mon 07:00 UTC' or '2026-12-24 12:00 - 2026-12-27 07:00 UTC'"

_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES
_TIME = r"\d{1,2}:\d{2}"
_DAY = r"[A-Z][a-z]{2}"
_DAILY = re.compile(
    rf"(?P<days>daily|{_DAY}(?:[,-]{_DAY})*) (?P<start>{_TIME}) ?- ?(?P<end>{_TIME}) (?P<zone>\S+)", re.A
)
_WEEKLY = re.compile(
    rf"(?P<first>{_DAY}) (?P<start>{_TIME}) ?- ?(?P<last>{_DAY}) (?P<end>{_TIME}) (?P<zone>\S+)", re.ASCII
)
_DATED = re.compile(
    rf"(?P<first>\d{{4}}-\d\d-\d\d) (?P<start>{_TIME}) ?- ?(?P<last>\d{{4}}-\d\d-\d\d) (?P<end>{_TIME}) (?P<zone>\S+)",
    re.ASCII,
)


class Span(NamedTuple):
    """From `start` to before `end`, epoch seconds."""

    start: int
    end: int


class SleepWindow(msgspec.Struct, frozen=True):
    """A window: it opens at `start_minute` of each of its days and is open for `minutes` of local time.

    `weekdays` count from 0, Monday. `on` is the one day of a window that is not repeated; its `weekdays` are empty.
    """

    zone: str
    start_minute: int
    minutes: int
    weekdays: tuple[int, ...] = ()
    on: date | None = None

    def opens_on(self, day: date) -> bool:
        """True if the window opens on a day of its zone."""
        return day == self.on or day.weekday() in self.weekdays


def parse_window(text: str) -> SleepWindow:
    """A window as it is written, in one of FORMS.

    An end that is not later than its start belongs to the next day, or week.

    Raises:
        ValueError: it cannot be read; the message names the text.
    """
    written = " ".join(text.split())
    for form, read in ((_DAILY, _read_daily), (_WEEKLY, _read_weekly), (_DATED, _read_dated)):
        if found := form.fullmatch(written):
            try:
                zone_named(found["zone"])
                return read(found)
            except ValueError as error:
                raise ValueError(f"{text!r}: {error}") from error
    raise ValueError(f"{text!r} is not a window, such as {FORMS}")


def spans_of(window: SleepWindow, after: float, until: float) -> Iterator[Span]:
    """Yield the spans of a window between two moments (epoch seconds), by start.

    A span may begin earlier and end later.

    Raises:
        ValueError: this machine does not know the time zone.
    """
    zone = zone_named(window.zone)
    # The longest window began at most a week before; a day more covers what clocks may be off.
    day = datetime.fromtimestamp(after, zone).date() - timedelta(days=8)
    last = datetime.fromtimestamp(until, zone).date() + timedelta(days=1)
    while day <= last:
        if window.opens_on(day):
            opens = datetime(day.year, day.month, day.day) + timedelta(minutes=window.start_minute)  # noqa: DTZ001 - local time
            start, end = _moment(opens, window.zone), _moment(opens + timedelta(minutes=window.minutes), window.zone)
            if start < end and start <= until and end > after:
                yield Span(start, end)
        day += timedelta(days=1)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time in spans that neither overlap nor touch, by their start."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.start <= result[-1].end:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return result


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The time that is in both, each merged."""
    both = (Span(max(a.start, b.start), min(a.end, b.end)) for a in one for b in other)
    return merged(span for span in both if span.start < span.end)


@lru_cache(maxsize=1024)
def _moment(local: datetime, zone: str) -> int:
    """The epoch second of a local time, the first of two; the next minute that exists where clocks skip it."""
    there = zone_named(zone)
    while True:
        moment = local.replace(tzinfo=there, fold=0)
        if moment.astimezone(UTC).astimezone(there).replace(tzinfo=None) == local:
            return int(moment.timestamp())
        local += timedelta(minutes=1)


def _read_daily(found: re.Match[str]) -> SleepWindow:
    start, end = _minute(found["start"]), _minute(found["end"])
    minutes = end - start if end > start else end - start + _DAY_MINUTES
    return SleepWindow(found["zone"], start, minutes, _weekdays(found["days"]))


def _read_weekly(found: re.Match[str]) -> SleepWindow:
    start, end = _minute(found["start"]), _minute(found["end"])
    first, last = _weekday(found["first"]), _weekday(found["last"])
    minutes = (last - first) % 7 * _DAY_MINUTES + end - start
    return SleepWindow(found["zone"], start, minutes if minutes > 0 else minutes + _WEEK_MINUTES, (first,))


def _read_dated(found: re.Match[str]) -> SleepWindow:
    first, last = date.fromisoformat(found["first"]), date.fromisoformat(found["last"])
    start, end = _minute(found["start"]), _minute(found["end"])
    minutes = (last - first).days * _DAY_MINUTES + end - start
    if minutes <= 0:
        raise ValueError("it ends before it begins: write the earlier moment first")
    if minutes * 60 > LONGEST_S:
        raise ValueError("it is longer than 7 days, the longest sleep: let it end earlier")
    return SleepWindow(found["zone"], start, minutes, on=first)


def _minute(text: str) -> int:
    hour, minute = map(int, text.split(":"))
    if minute > 59 or hour * 60 + minute > _DAY_MINUTES:
        raise ValueError(f"{text} is not a time of day, from 00:00 to 24:00")
    return hour * 60 + minute


def _weekday(text: str) -> int:
    if text not in DAYS:
        raise ValueError(f"{text} is none of {', '.join(DAYS)}")
    return DAYS.index(text)


def _weekdays(text: str) -> tuple[int, ...]:
    if text == "daily":
        return tuple(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, *others = part.split("-")
        if len(others) > 1:
            raise ValueError(f"{part} is not a range of days")
        start = _weekday(first)
        days.update((start + step) % 7 for step in range((_weekday(others[0] if others else first) - start) % 7 + 1))
    return tuple(sorted(days))
