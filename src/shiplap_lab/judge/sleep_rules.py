"""The judge's own rules of sleep: when which pods sleep, by what a run was told, as raw JSON.

Windows are written in local time. A local time that clocks skip stands for the end of the gap, one that comes twice for
the first. A pod sleeps with its NodePool if its node selector names that NodePool, or if every NodePool sleeps.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from shiplap_lab.judge.dollar_rules import CRITICAL
from shiplap_lab.judge.raw_json import Json

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_S = 24 * 3600
_DAY_MINUTES, _WEEK_MINUTES = 24 * 60, 7 * 24 * 60
_WAKES_S = 120.0  # for so long after a wake may a node leave that was leaving before
_POOL_LABEL = "karpenter.sh/nodepool"


def open_windows(sleep: Json, at: float, apart_s: float) -> list[Json]:
    """The windows that are open at a moment, epoch seconds, for one of the clocks that are so far apart."""
    return [item for item in sleep["windows"] if _open_for_s(item["when"], at, apart_s) >= 0]


def may_leave(sleep: Json, begun: float, at: float, apart_s: float, pool: str) -> list[Json]:
    """The windows in which nodes of a NodePool may leave in a run. The first opening of a window is a rehearsal, a wake
    wins until the windows end that are open then, and hours of a NodePool narrow those that are of NodePools."""
    woken_at, known = sleep.get("wokenAt", at), sleep.get("rehearsed", True)
    woken = open_windows(sleep, woken_at, 0.0) if woken_at + _WAKES_S < at else []
    if pool not in sleep["nodePools"] or any(at - woken_at <= _open_for_s(item["when"], at, 0.0) for item in woken):
        return []
    hours = (sleep.get("hours") or {}).get(pool, "")
    narrowed = hours and all(_open_for_s(when, at, apart_s) < 0 for when in hours.split("; "))
    found = [item for item in open_windows(sleep, at, apart_s) if item.get("namespaces") or not narrowed]
    return [item for item in found if known or at - _open_for_s(item["when"], at, apart_s) - begun > _DAY_S]


class _Hours(NamedTuple):
    """Opens at this minute of the days, by name or date, and closes so many minutes of local time later."""

    days: frozenset[str]
    opens: int
    lasts: int
    zone: str


def _open_for_s(when: str, at: float, apart_s: float) -> float:
    """For how long a window has been open; negative while it is closed."""
    hours = _read(when)
    today = datetime.fromtimestamp(at, ZoneInfo(hours.zone)).date()
    found = []
    for day in (today + timedelta(days=days) for days in range(-8, 2)):
        if hours.days.isdisjoint((_DAYS[day.weekday()], str(day))):
            continue
        opens = datetime(day.year, day.month, day.day) + timedelta(minutes=hours.opens)  # noqa: DTZ001 - local time
        begin, end = (_second(opens + timedelta(minutes=minutes), hours.zone) for minutes in (0, hours.lasts))
        moments = (at + apart for apart in (-apart_s, 0.0, apart_s))
        found += [moment - begin for moment in moments if begin <= moment < end]
    return min(found, default=-1.0)


@lru_cache(maxsize=1024)
def _read(when: str) -> _Hours:
    """A window in any form: `Mon-Wed,Fri 19:00-07:00 ZONE`, `Fri 19:00 - Mon 07:00 ZONE`, or with two dates."""
    *words, zone = re.sub(r" ?- ?", "-", " ".join(when.split())).split()
    if len(words) == 2:
        opens, closes = map(_minutes, words[1].split("-"))
        return _Hours(_named_days(words[0]), opens, (closes - opens) % _DAY_MINUTES or _DAY_MINUTES, zone)
    first, (start, last), end = words[0], words[1].split("-", 1), words[2]
    opens, closes = _minutes(start), _minutes(end)
    if first in _DAYS:
        lasts = (_DAYS.index(last) - _DAYS.index(first)) * _DAY_MINUTES + closes - opens
        return _Hours(frozenset([first]), opens, lasts % _WEEK_MINUTES or _WEEK_MINUTES, zone)
    days = (date.fromisoformat(last) - date.fromisoformat(first)).days
    return _Hours(frozenset([first]), opens, days * _DAY_MINUTES + closes - opens, zone)


def _named_days(text: str) -> frozenset[str]:
    if text == "daily":
        return frozenset(_DAYS)
    found: set[str] = set()
    for part in text.split(","):
        first, last = _DAYS.index(part[:3]), _DAYS.index(part[-3:])
        found.update(_DAYS[(first + step) % 7] for step in range((last - first) % 7 + 1))
    return frozenset(found)


def _minutes(time: str) -> int:
    hours, minutes = map(int, time.split(":"))
    return hours * 60 + minutes


@lru_cache(maxsize=4096)
def _second(local: datetime, zone: str) -> int:
    """The first epoch second at which clocks show this local time or, where they skip it, a later one."""
    there = ZoneInfo(zone)
    offsets = [local.replace(tzinfo=there, fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    moment = local.replace(tzinfo=UTC) - max(offsets)
    while moment.astimezone(there).replace(tzinfo=None) < local:
        moment += timedelta(minutes=1)
    return int(moment.timestamp())


def sleeps(sleep: Json, windows: list[Json], pool: str, pod: Json) -> bool:
    """True if one of these windows covers a pod on a node of this NodePool."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "default")
    if spec.get("priority", 0) >= CRITICAL or str(spec.get("priorityClassName", "")).startswith("system-"):
        return False
    of_pools = [item.get("nodePools") or sleep["nodePools"] for item in windows if not item.get("namespaces")]
    everywhere = bool(sleep.get("all")) and set().union(*of_pools).issuperset(sleep["all"])
    selected = (spec.get("nodeSelector") or {}).get(_POOL_LABEL)
    bound = selected == pool or (selected is None and everywhere)
    for item in windows:
        named = item.get("nodePools") or sleep["nodePools"]
        if namespace in item.get("namespaces", ()) or (not item.get("namespaces") and bound and pool in named):
            return True
    return False
