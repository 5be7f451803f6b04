"""Decides how many nodes of a NodePool may be disrupted now, and for which reason.

An invalid budget blocks every disruption of its pool: savings can wait, a disruption cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

import msgspec

from shiplap.disruption.commands import Reason
from shiplap.manifests.custom_resources import Budget, NodePool
from shiplap.manifests.shiplap_annotations import DISRUPTION_TIME_ZONE, zone_named
from shiplap.manifests.times import Cron, budget_seconds, parse_cron

UNLIMITED = 1 << 31

_SET_BACK_S = 3 * 3600.0
"""No clock of the tz database is set back by more, for summer time or another zone, but where a day is repeated."""


class Allowance(msgspec.Struct, frozen=True):
    """`nodes` more may be disrupted; `blocking` says which budget blocks the next one."""

    nodes: int
    blocking: str = ""


def allowance(pool: NodePool, reason: Reason, total: int, disrupting: int, now: float) -> Allowance:
    """The smallest of all budgets that are active now and name this reason.

    Args:
        pool: the NodePool.
        reason: of the disruption.
        total: nodes of the pool that are initialised.
        disrupting: those of the pool that are being disrupted, leaving, or not Ready: they use up the budget.
        now: epoch seconds.
    """
    least = Allowance(UNLIMITED)
    for place, budget in enumerate(pool.spec.disruption.budgets):
        name = f"budget {place} of NodePool {pool.metadata.name}"
        try:
            active = is_active(budget, now, pool.metadata.annotations.get(DISRUPTION_TIME_ZONE, "UTC"))
            most = _nodes(budget.nodes, total)
        except ValueError as error:
            # For all reasons: the intended ones are not known.
            return Allowance(0, f"{name} cannot be read: {error}")
        if not active or (budget.reasons is not None and reason not in budget.reasons):
            continue
        left = max(most - disrupting, 0)
        if left < least.nodes:
            least = Allowance(left, f"{name} {_words(budget.nodes, most, total, disrupting)}")
    return least


def is_active(budget: Budget, now: float, time_zone: str = "UTC") -> bool:
    """True if a budget applies at `now` (epoch seconds): always, or for its duration after each hit of its schedule.

    Raises:
        ValueError: the schedule, duration or time zone cannot be read.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise ValueError("a schedule needs a duration, and a duration a schedule")
    return _hits(parse_cron(budget.schedule), now - budget_seconds(budget.duration), now, zone_named(time_zone))


def _hits(cron: Cron, after: float, until: float, zone: ZoneInfo) -> bool:
    """True if the schedule names a minute later than `after` and not later than `until`, both epoch seconds."""
    # Where clocks are set back at midnight, a later moment may be of an earlier day.
    day = max(datetime.fromtimestamp(moment, zone).date() for moment in (until, until - _SET_BACK_S))
    first = min(datetime.fromtimestamp(moment, zone).date() for moment in (after, after + _SET_BACK_S))
    while day >= first:
        if _names(cron, day) and any(after < moment <= until for moment in _moments(cron, day, zone)):
            return True
        day -= timedelta(days=1)
    return False


def _names(cron: Cron, day: date) -> bool:
    if day.month not in cron.months:
        return False
    of_month, of_week = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    return (of_month and of_week) if cron.any_day or cron.any_weekday else (of_month or of_week)


def _moments(cron: Cron, day: date, zone: ZoneInfo) -> Iterable[float]:
    """The moments of a day at which clocks show what the schedule names, as of a CronJob with a time zone.

    An hour that clocks skip has none, and one that comes twice has two, one for each UTC offset (the rule of
    SpecSchedule.Next in robfig/cron).
    """
    for hour in sorted(cron.hours):
        for minute in sorted(cron.minutes):
            shown = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            for moment in {shown.replace(fold=fold).timestamp() for fold in (0, 1)}:
                there = datetime.fromtimestamp(moment, zone)
                if (there.date(), there.hour, there.minute) == (day, hour, minute):
                    yield moment


def _words(written: str, most: int, total: int, disrupting: int) -> str:
    """A budget in words: how many nodes it allows, and how many of them are used up."""
    share = f"{written} of {total} nodes, that is {most}" if written.endswith("%") else f"{most} of {total} nodes"
    if not most:
        return f"allows no disruption now ({written})"
    used = f", {disrupting} {'is' if disrupting == 1 else 'are'} leaving or not ready" if disrupting else ""
    return f"allows {share} at a time{used}"


def _nodes(written: str, total: int) -> int:
    """A number of nodes, or a percentage of `total` rounded up."""
    text = written.removesuffix("%")
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"nodes {written!r} is neither a number nor a percentage")
    number = int(text)
    if not written.endswith("%"):
        return number
    if number > 100:
        raise ValueError(f"nodes {written!r} is more than 100%")
    return ceil(number * total / 100)
