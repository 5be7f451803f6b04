"""The judge's own rules of sleep: when which pods sleep, by what a run was told, as raw JSON.

Windows are in UTC and begin on one day, on days that follow each other, or daily. A pod sleeps with its NodePool if its
node selector names that NodePool.
"""

from __future__ import annotations

from shiplap_lab.judge.dollar_rules import CRITICAL
from shiplap_lab.judge.raw_json import Json

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_S, _WEEK_S = 24 * 3600, 7 * 24 * 3600
_THURSDAY_S = 3 * _DAY_S  # the day on which the epoch begins
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


def _open_for_s(when: str, at: float, apart_s: float) -> float:
    """For how long a window has been open; negative while it is closed."""
    first, *rest = when.removesuffix(" UTC").replace(" - ", "-").split()
    opens, last, closes = (*rest[0].split("-"), rest[1]) if len(rest) == 2 else (rest[0].split("-")[0], "", rest[0][6:])
    begin, end = ("Mon", "Sun") if first == "daily" else (first.split("-")[0], first.split("-")[-1])
    for day in range(_DAYS.index(begin), _DAYS.index(end) + 1):
        starts = day * _DAY_S + _seconds(opens)
        until = (_DAYS.index(last) if last else day) * _DAY_S + _seconds(closes)
        lasts = (until - starts) % (_WEEK_S if last else _DAY_S) or _DAY_S
        since = min((at + apart + _THURSDAY_S - starts) % _WEEK_S for apart in (-apart_s, 0.0, apart_s))
        if since < lasts:
            return since
    return -1.0


def _seconds(time: str) -> int:
    return int(time[:2]) * 3600 + int(time[3:]) * 60


def sleeps(sleep: Json, windows: list[Json], pool: str, pod: Json) -> bool:
    """True if one of these windows covers a pod on a node of this NodePool."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "default")
    if spec.get("priority", 0) >= CRITICAL or str(spec.get("priorityClassName", "")).startswith("system-"):
        return False
    bound = (spec.get("nodeSelector") or {}).get(_POOL_LABEL) == pool
    for item in windows:
        named = item.get("nodePools") or sleep["nodePools"]
        if namespace in item.get("namespaces", ()) or (not item.get("namespaces") and bound and pool in named):
            return True
    return False
