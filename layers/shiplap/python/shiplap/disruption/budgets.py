"""Decides how many nodes of a NodePool may be disrupted now, and for which reason.

An invalid budget blocks every disruption of its pool: savings can wait, a disruption cannot be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

import msgspec

from shiplap.disruption.candidates import Candidate, CandidateNodes
from shiplap.disruption.commands import Reason
from shiplap.disruption.decision_clock import LONGEST_S, DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.manifests.custom_resources import Budget, NodePool
from shiplap.manifests.shiplap_annotations import DISRUPTION_TIME_ZONE, zone_named
from shiplap.manifests.times import Cron, budget_seconds, parse_cron
from shiplap.scheduling.model.planned_pods import is_initialized, reports_ready

UNLIMITED = 1 << 31

_SET_BACK_S = 3 * 3600.0
"""No clock of the tz database is set back by more, for summer time or another zone, but where a day is repeated."""


_MINUTE_S = 60


class Allowance(msgspec.Struct, frozen=True):
    """`nodes` more may be disrupted; `blocking` says which budget blocks the next one."""

    nodes: int
    blocking: str = ""


class OverBudget(msgspec.Struct, frozen=True):
    """A node of a NodePool stays because a budget, in words, lets no more go for a reason."""

    pool: str
    reason: Reason
    budget: str

    def words(self, going: int) -> str:
        """The reason beside so many nodes of the pool that go."""
        others = f"; {going} {'goes' if going == 1 else 'go'} now" if going else ""
        return f"no allowed disruptions for {self.reason}: {self.budget}{others}"


class BudgetsLeft:
    """The budgets of all NodePools during one decision. `use` takes from them."""

    def __init__(self, snapshot: DisruptionSnapshot, nodes: CandidateNodes, clock: DecisionClock) -> None:
        self._clock = clock
        self._total, self._disrupting = _pool_counts(snapshot, nodes)
        self._used: Counter[str] = Counter()
        for pool in snapshot.scheduling.manifests.node_pools:
            clock.note(window_changes(pool, clock.now))

    def left(self, pool: NodePool, reason: Reason) -> int:
        """Return how many more nodes of a pool may go."""
        return max(self._allowance(pool, reason).nodes - self._used[pool.metadata.name], 0)

    def going(self, pool: NodePool) -> int:
        """Return how many nodes of a pool are leaving, are not Ready or go by commands of this decision."""
        return self._disrupting[label_value_of(pool.metadata.name)] + self._used[pool.metadata.name]

    def over(self, pool: NodePool, reason: Reason) -> OverBudget:
        """Return which budget lets no more nodes of a pool go."""
        return OverBudget(pool.metadata.name, reason, self._allowance(pool, reason).blocking)

    def use(self, candidates: Iterable[Candidate]) -> None:
        """Note that these nodes go."""
        self._used.update(candidate.pool.metadata.name for candidate in candidates)

    def _allowance(self, pool: NodePool, reason: Reason) -> Allowance:
        label = label_value_of(pool.metadata.name)
        return allowance(pool, reason, self._total[label], self._disrupting[label], self._clock.now)


def _pool_counts(snapshot: DisruptionSnapshot, nodes: CandidateNodes) -> tuple[Counter[str], Counter[str]]:
    """Initialised nodes by the label of their NodePool, and how many of them are on their way out or not Ready.

    A node whose instance is being terminated, or is gone, neither counts nor uses up a budget. One that is rebooted
    does both.
    """
    total: Counter[str] = Counter()
    disrupting: Counter[str] = Counter()
    for node in snapshot.scheduling.view.nodes:
        pool, name = node.metadata.labels.get(labels.NODE_POOL, ""), node.metadata.name
        is_rebooting = name in nodes.rebooting
        if not pool or not (is_initialized(node) or is_rebooting) or name in nodes.ending:
            continue
        total[pool] += 1
        if name in nodes.leaving or name in snapshot.busy or is_rebooting or not reports_ready(node):
            disrupting[pool] += 1
    return total, disrupting


def window_changes(pool: NodePool, now: float) -> Iterator[float]:
    """Yield the next whole minutes at which a budget's window begins or ends; one that cannot be read never does."""
    zone = pool.metadata.annotations.get(DISRUPTION_TIME_ZONE, "UTC")
    for budget in pool.spec.disruption.budgets:
        if budget.schedule is None:
            continue
        try:
            active = is_active(budget, now, zone)
            first = (int(now) // _MINUTE_S + 1) * _MINUTE_S
            minutes = range(first, int(now + LONGEST_S), _MINUTE_S)
            yield from (minute for minute in minutes if is_active(budget, minute, zone) is not active)
        except ValueError:
            continue


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
        name = f"budgets[{place}] of NodePool {pool.metadata.name}"
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
