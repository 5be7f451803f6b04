"""Ceilings in dollars: what shiplap.yaml says of them, how much of each is used, and which launches they let pass.

A ceiling bounds what an account, a cluster or a NodePool costs: per hour, all its instances together until they are
gone; or per month, what was spent and what is reserved. A launch reserves its price for as long as nodes of its pool
usually live, at most until the month ends. A ceiling never ends a node: it keeps new ones from being launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec.structs import replace

from shiplap.instances.offerings.instance_rates import micros_of
from shiplap.manifests.decoding import demands
from shiplap.spending.ledger import HOUR_S


class CeilingMode(StrEnum):
    """Decides which launches a ceiling still lets pass once they exceed it.

    warn: all launches. cheapest: only launches that take the cheapest offering for their pods. priority: only launches
    for pods above a priority. stop: none.
    """

    WARN = "warn"
    CHEAPEST = "cheapest"
    PRIORITY = "priority"
    STOP = "stop"


class CeilingScope(StrEnum):
    """The part of the bill that a ceiling bounds."""

    ACCOUNT = "account"
    CLUSTER = "cluster"
    NODE_POOL = "NodePool"
    NAMESPACE = "namespace"


HOURLY_PERIOD, MONTHLY_PERIOD = "hour", "month"

CRITICAL_PRIORITY = 2_000_000_000
"""The priority of system-cluster-critical; pods of at least this are what a cluster cannot do without."""

MOST_RECOVERY_PERCENT = 50

_Dollars = Annotated[float, demands(above=0, below=1e9, form="an amount of USD, such as 1500")]


class Ceiling(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A ceiling as written, in USD: `hourly` or `monthly`."""

    hourly: _Dollars | None = None
    """USD per hour that all nodes together may cost; or `monthly`."""
    monthly: _Dollars | None = None
    """USD that a calendar month may cost; or `hourly`."""
    mode: CeilingMode = CeilingMode.WARN
    """The launches that still pass once it is reached: `warn` all, `cheapest`, `priority`, `stop` none."""
    node_pool: str = ""
    """Of a cluster: it bounds this NodePool alone."""
    namespace: str = ""
    """Of a cluster: it bounds this namespace alone, and only warns."""
    above_priority: int | None = None
    """With mode priority: pods of a higher priority still get nodes."""
    recovery_percent: Annotated[int, demands(least=0, most=MOST_RECOVERY_PERCENT)] = 10
    """Per cent that are kept for replacements of nodes and for system-critical pods."""

    @property
    def period(self) -> str:
        """HOURLY_PERIOD or MONTHLY_PERIOD."""
        return MONTHLY_PERIOD if self.hourly is None else HOURLY_PERIOD

    @property
    def limit_micros(self) -> int:
        """The ceiling in millionths of a dollar."""
        return micros_of(self.monthly or 0.0 if self.hourly is None else self.hourly)


def ceiling_problems(ceilings: Sequence[Ceiling], *, of_account: bool) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each mistake in ceilings as written: index and field, and the reason with what to write instead."""
    for index, ceiling in enumerate(ceilings):
        for field, reason in _problems_of(ceiling, of_account=of_account):
            yield (index, field), reason
        for other, stop in enumerate(ceilings):
            if reason := _contradiction(ceiling, stop, is_later=index > other):
                yield (index, "hourly" if ceiling.period == HOURLY_PERIOD else "monthly"), reason


def _contradiction(ceiling: Ceiling, other: Ceiling, *, is_later: bool) -> str:
    """Return why another ceiling of the same scope and period leaves this one without effect; empty if it does not."""
    scopes = {(item.period, item.node_pool, item.namespace) for item in (ceiling, other)}
    if ceiling is other or len(scopes) > 1 or ceiling.mode is CeilingMode.WARN:
        return ""
    if ceiling.mode is other.mode and ceiling.above_priority == other.above_priority and is_later:
        return f"there are two ceilings of mode {ceiling.mode} here: write the lower one only"
    if other.mode is not CeilingMode.STOP or ceiling.mode is CeilingMode.STOP:
        return ""
    if ceiling.limit_micros <= other.limit_micros:
        return ""
    stop = dollars(other.limit_micros)
    return f"is never reached: the ceiling of mode stop at {stop} comes first; write less than {stop} here"


def _problems_of(ceiling: Ceiling, *, of_account: bool) -> Iterator[tuple[str, str]]:
    amounts = [amount for amount in (ceiling.hourly, ceiling.monthly) if amount is not None]
    if len(amounts) != 1:
        yield "monthly", "give one of hourly and monthly, in USD; write two ceilings for both"
    if ceiling.mode is CeilingMode.PRIORITY and ceiling.above_priority is None:
        yield "abovePriority", "is needed with mode priority: the value of a PriorityClass, such as 100000"
    if ceiling.mode is not CeilingMode.PRIORITY and ceiling.above_priority is not None:
        yield "abovePriority", "belongs to mode priority: leave it out, or write mode: priority"
    if of_account and (ceiling.node_pool or ceiling.namespace):
        yield "nodePool" if ceiling.node_pool else "namespace", "belongs to the ceilings of a cluster"
    if ceiling.node_pool and ceiling.namespace:
        yield "namespace", "a ceiling bounds a NodePool or a namespace: write two"
    if ceiling.node_pool and ceiling.hourly is not None:
        yield "hourly", "a NodePool has the annotation shiplap.dev/max-hourly-price for this: write it there"
    if ceiling.namespace and ceiling.mode is not CeilingMode.WARN:
        yield "mode", "a namespace's nodes are shared: its ceiling only warns, write mode: warn"
    if ceiling.namespace and ceiling.hourly is not None:
        yield "hourly", "a namespace has monthly ceilings only"


class Standing(msgspec.Struct, frozen=True):
    """The standing of a launch with ceilings: its pods' priority, and whether it may use what is kept for recovery.

    Such an exempt launch is refused by no mode but stop.
    """

    priority: int = 0
    is_exempt: bool = False


class CeilingUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ceiling at one moment, in millionths of a dollar: its limit and what is used of it.

    Of a month, `used` is what was spent and what is reserved for nodes that run or are being launched. `name` is that
    of the cluster, NodePool or namespace.
    """

    scope: CeilingScope
    period: str
    limit: int
    used: int
    name: str = ""
    mode: CeilingMode = CeilingMode.WARN
    above_priority: int = 0
    recovery_percent: int = 10

    @property
    def line(self) -> int:
        """Up to where launches go that replace nothing."""
        return self.limit - self.limit * self.recovery_percent // 100

    @property
    def title(self) -> str:
        """The name of the ceiling in messages, such as `cluster prod, $12.00 per hour`."""
        scope = f"{self.scope} {self.name}" if self.name else f"{self.scope}"
        return f"{scope}, {dollars(self.limit)} per {self.period}"

    @property
    def share(self) -> float:
        """The part of the limit that is used."""
        return self.used / self.limit

    @property
    def is_reached(self) -> bool:
        """True if nothing fits below the ceiling any more that replaces nothing."""
        return self.used >= self.line

    def line_for(self, standing: Standing) -> int | None:
        """Up to where a launch may go, whichever offering it takes; None for anywhere."""
        if self.mode is CeilingMode.WARN:
            return None
        if standing.is_exempt:
            return self.limit if self.mode is CeilingMode.STOP else None
        if self.mode is CeilingMode.PRIORITY and standing.priority > self.above_priority:
            return None
        return self.line

    def bounds(self, node_pool: str) -> bool:
        """True if nodes of this NodePool count towards the ceiling."""
        if self.scope is CeilingScope.NODE_POOL:
            return self.name == node_pool
        return self.scope is not CeilingScope.NAMESPACE


class SpendingView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ceilings and costs that a decision knows.

    `lives_s` holds how long nodes of a NodePool usually live, where that is known.
    `lost_micros` is the price per hour of nodes that leave or have just left and that no node in flight replaces yet.
    """

    ceilings: tuple[CeilingUse, ...] = ()
    month_left_s: int = 0
    lives_s: dict[str, int] = {}
    lost_micros: int = 0

    def reserved_s(self, node_pool: str) -> int:
        """Seconds for which a launch reserves its price: the life of the pool's nodes, or the rest of the month."""
        return min(self.lives_s.get(node_pool, self.month_left_s), self.month_left_s)

    def charge(self, ceiling: CeilingUse, node_pool: str, hourly_micros: int) -> int:
        """Return the part of a ceiling that a node of this price takes, in millionths of a dollar, rounded up."""
        if ceiling.period == HOURLY_PERIOD:
            return hourly_micros
        return -(-hourly_micros * self.reserved_s(node_pool) // HOUR_S)

    def dearest(self, node_pool: str, standing: Standing) -> int | None:
        """The most that one more launch of a NodePool may cost, in millionths of a dollar per hour; None for anything.

        A ceiling of mode cheapest that is reached takes no part: which offering is the cheapest depends on the launch.
        """
        rooms = [self._dearest_below(item, node_pool, standing) for item in self.ceilings if item.bounds(node_pool)]
        bound = min((room for room in rooms if room is not None), default=None)
        if standing.is_exempt or bound is None or not self.lost_micros:
            return bound
        recovery = self.dearest(node_pool, Standing(standing.priority, is_exempt=True))
        return max(bound, self.lost_micros if recovery is None else min(self.lost_micros, recovery))

    def _dearest_below(self, ceiling: CeilingUse, node_pool: str, standing: Standing) -> int | None:
        line = ceiling.line_for(standing)
        if line is None or (ceiling.mode is CeilingMode.CHEAPEST and line <= ceiling.used):
            return None
        room, seconds = max(line - ceiling.used, 0), self.reserved_s(node_pool)
        if ceiling.period == HOURLY_PERIOD:
            return room
        return room * HOUR_S // seconds if seconds else None


class SpreadLevel(msgspec.Struct, frozen=True):
    """The place of a launch among the launches for pods that one topology constraint spreads.

    `before` is how many pods its domain holds before its own `pods`: those on nodes, and those of launches that come
    first. Domains differ by at most `max_skew` pods.
    """

    series: str
    before: int
    pods: int
    max_skew: int


class WantedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A planned node as ceilings see it.

    `prices` are what it may cost, in millionths of a dollar per hour, by instance type: each with the dearest offering
    of the capacity type it is planned for. `priority` is the lowest of its `pods`'. `replaces`: its pods lose their
    node, or a node in service goes for it. `cheapest` is empty if it takes the cheapest offering there is for its pods,
    else which one that would be. Its launch list must keep the types up to the price `kept_to`. `level` is None where
    no spread over another label than the hostname concerns its pods.
    """

    name: str
    node_pool: str
    prices: Mapping[str, int]
    priority: int = 0
    replaces: bool = False
    cheapest: str = ""
    kept_to: int = 0
    level: SpreadLevel | None = None
    pods: int = 0

    @property
    def standing(self) -> Standing:
        """The standing of the launch with ceilings."""
        return Standing(self.priority, self.replaces or self.priority >= CRITICAL_PRIORITY)


class AdmittedLaunch(msgspec.Struct, frozen=True):
    """A launch that no ceiling refuses, the instance types that it may become, and the dearest price of them."""

    name: str
    instance_types: tuple[str, ...]
    most_micros: int


class LaunchVerdicts(msgspec.Struct, frozen=True):
    """Holds the launches that pass, in the order in which they were looked at, and why the others are refused, by name.

    `after` is the view with what was admitted, `at_least` with the cheapest types of it alone. `slack` is how much more
    of each ceiling could be in use for the same answer: None where no launch depends on it.
    """

    admitted: tuple[AdmittedLaunch, ...]
    refused: dict[str, str]
    after: SpendingView
    at_least: SpendingView
    slack: tuple[int | None, ...]


def admit(view: SpendingView, launches: Iterable[WantedLaunch]) -> LaunchVerdicts:
    """Let launches pass as long as ceilings have room: those for recovery first, then by priority, price, pods, name.

    A launch passes if its cheapest type does. Then launch lists are widened, type by type in the same order, as far as
    ceilings have room: so no launch is refused for the dear types on the list of another.

    Those for spread pods pass domain by domain in turns, at the price of the cheapest of them. If one is refused, the
    others of its spread wait as far as they would be more than the skew above it.
    """
    wanted = list(launches)
    least: dict[str, int] = {}
    for launch in wanted:
        if launch.level is not None:
            least[launch.level.series] = min(_least(launch), least.get(launch.level.series, _least(launch)))

    def order(launch: WantedLaunch) -> tuple[bool, int, int, str, int, int, int, str]:
        level = launch.level
        group = (_least(launch), "", 0) if level is None else (least[level.series], level.series, level.before)
        return not launch.standing.is_exempt, -launch.priority, *group, _least(launch), -launch.pods, launch.name

    return _Admitting(view).run(sorted(wanted, key=order))


def short_ceilings(view: SpendingView, launches: Sequence[WantedLaunch]) -> list[CeilingUse]:
    """The ceilings, but those that only warn, above whose line these launches go if each becomes its dearest type."""
    return [
        ceiling
        for ceiling in view.ceilings
        if ceiling.mode is not CeilingMode.WARN and ceiling.used + _most_of(view, ceiling, launches) > ceiling.line
    ]


def _most_of(view: SpendingView, ceiling: CeilingUse, launches: Iterable[WantedLaunch]) -> int:
    return sum(
        view.charge(ceiling, launch.node_pool, max(launch.prices.values(), default=0))
        for launch in launches
        if ceiling.bounds(launch.node_pool)
    )


def _least_of(known: int | None, other: int) -> int:
    return other if known is None else min(known, other)


def _least(launch: WantedLaunch) -> int:
    return min(launch.prices.values(), default=0)


class _Widening(msgspec.Struct):
    """A launch that passes, the `most` that it may cost by now, and the `dearer` prices on its list, ascending."""

    launch: WantedLaunch
    most: int
    dearer: list[int]

    def admitted(self) -> AdmittedLaunch:
        """The launch with the types that it may become."""
        kept = tuple(name for name, price in self.launch.prices.items() if price <= self.most)
        return AdmittedLaunch(self.launch.name, kept, self.most)


class _Admitting:
    def __init__(self, view: SpendingView) -> None:
        self._view = view
        self._used = [ceiling.used for ceiling in view.ceilings]
        self._slack: list[int | None] = [None for _ in view.ceilings]
        self._lowest: list[int | None] = [None for _ in view.ceilings]
        """The lowest line below which a launch has passed: what is in use stays below it."""
        self._highest: dict[str, tuple[int, str]] = {}
        """How many pods a domain of a spread may hold, and which refusal is the reason, by series."""

    def run(self, launches: Sequence[WantedLaunch]) -> LaunchVerdicts:
        passed: list[_Widening] = []
        refused: dict[str, str] = {}
        lost = self._view.lost_micros
        for launch in launches:
            wanted = launch
            cheapest = min(launch.prices.values(), default=0)
            if not launch.standing.is_exempt and 0 < cheapest <= lost:
                wanted, lost = replace(launch, replaces=True), lost - cheapest
            elif launch.replaces:
                lost = max(lost - cheapest, 0)
            reason = self._too_high(launch) or self._refused(wanted)
            if not reason:
                passed.append(self._narrowest(wanted))
                continue
            refused[launch.name] = reason
            if launch.level is not None:
                bound = (launch.level.before + launch.level.max_skew, reason)
                self._highest[launch.level.series] = min(bound, self._highest.get(launch.level.series, bound))
        at_least = self._in_use(lost)
        self._widen(passed)
        admitted = tuple(item.admitted() for item in passed)
        return LaunchVerdicts(admitted, refused, self._in_use(lost), at_least, tuple(self._slack))

    def _in_use(self, lost_micros: int) -> SpendingView:
        used = zip(self._view.ceilings, self._used, strict=True)
        ceilings = tuple(replace(ceiling, used=sum_) for ceiling, sum_ in used)
        return replace(self._view, ceilings=ceilings, lost_micros=lost_micros)

    def _too_high(self, launch: WantedLaunch) -> str:
        """Return why a launch has to wait for refused launches of its spread; empty if it does not."""
        level = launch.level
        if level is None or level.series not in self._highest:
            return ""
        most, reason = self._highest[level.series]
        return reason if level.before + level.pods > most else ""

    def _bounding(self, launch: WantedLaunch) -> list[int]:
        return [place for place, ceiling in enumerate(self._view.ceilings) if ceiling.bounds(launch.node_pool)]

    def _refused(self, launch: WantedLaunch) -> str:
        """Return why ceilings refuse a launch whatever its launch list is; empty if they do not."""
        reasons = (self._refusal(place, launch, _steps(launch)[0]) for place in self._bounding(launch))
        return next((reason for reason in reasons if reason), "")

    def _narrowest(self, launch: WantedLaunch) -> _Widening:
        """A launch that passes, charged with the least that its list can cost."""
        first, *others = _steps(launch)
        for place in self._bounding(launch):
            self._charge(place, launch, first)
        return _Widening(launch, first, others)

    def _widen(self, passed: Sequence[_Widening]) -> None:
        """Give launch lists dearer types, one more price each in turn, until no ceiling has room for another."""
        able = [item for item in passed if item.dearer]
        if not short_ceilings(self._view, [item.launch for item in passed]):
            for item in able:
                del item.dearer[:-1]
        while able:
            able = [item for item in able if self._widened(item) and item.dearer]

    def _widened(self, item: _Widening) -> bool:
        """True if ceilings have room for the next price of a launch, which it may cost from now on."""
        launch, more, bounding = item.launch, item.dearer[0], self._bounding(item.launch)
        for place in bounding:
            lines = (self._view.ceilings[place].line_for(launch.standing), self._lowest[place])
            in_use = self._after(place, launch, more, item.most)
            if any(line is not None and in_use > line for line in lines):
                return False
        for place in bounding:
            self._charge(place, launch, more, item.most)
        item.most = item.dearer.pop(0)
        return True

    def _refusal(self, place: int, launch: WantedLaunch, most: int) -> str:
        """Return why a ceiling refuses the launch with types of at most this price; empty if it does not."""
        ceiling = self._view.ceilings[place]
        line = ceiling.line_for(launch.standing)
        if line is None or self._after(place, launch, most) <= line:
            return ""
        is_least = most == min(launch.prices.values(), default=0)
        if ceiling.mode is CeilingMode.CHEAPEST and is_least and not launch.cheapest:
            return ""
        return self._reason(place, launch, most)

    def _after(self, place: int, launch: WantedLaunch, most: int, before: int = 0) -> int:
        """Return the amount in use once a launch may cost `most`, if it is charged with what it could cost `before`."""
        ceiling, view = self._view.ceilings[place], self._view
        charged = view.charge(ceiling, launch.node_pool, before) if before else 0
        return self._used[place] + view.charge(ceiling, launch.node_pool, most) - charged

    def _charge(self, place: int, launch: WantedLaunch, most: int, before: int = 0) -> None:
        line = self._view.ceilings[place].line_for(launch.standing)
        self._used[place] = self._after(place, launch, most, before)
        if line is not None and self._used[place] <= line:  # else the mode lets it pass above the ceiling
            self._lowest[place] = _least_of(self._lowest[place], line)
        lowest = self._lowest[place]
        if lowest is not None and self._used[place] <= lowest:
            self._slack[place] = _least_of(self._slack[place], lowest - self._used[place])

    def _reason(self, place: int, launch: WantedLaunch, most: int) -> str:
        ceiling = self._view.ceilings[place]
        charge = self._view.charge(ceiling, launch.node_pool, most)
        kept = (
            ""
            if launch.standing.is_exempt or not ceiling.recovery_percent
            else (f", {dollars(ceiling.limit - ceiling.line)} kept for replacements")
        )
        reason = (
            f"{CEILING_REACHED} {ceiling.title}: {dollars(self._used[place])} in use{kept}, "
            f"a node takes {dollars(charge)}"
        )
        if ceiling.mode is CeilingMode.PRIORITY:
            return f"{reason}; only pods of a priority above {ceiling.above_priority} get nodes"
        if ceiling.mode is CeilingMode.CHEAPEST:
            return f"{reason}; only {launch.cheapest or 'the cheapest offering'} would be launched"
        return reason


CEILING_REACHED = "ceiling reached:"
"""How reasons begin for which a pod waits because of a ceiling."""


def _steps(launch: WantedLaunch) -> list[int]:
    """The most that the launch may cost: with as few types as its list must keep, then with ever dearer ones."""
    prices = sorted(set(launch.prices.values())) or [0]
    return [price for price in prices if price >= launch.kept_to]


def dollars(micros: int) -> str:
    """An amount as people read it, rounded up to whole cents, such as $1,234.57."""
    return f"${-(-micros // 10_000) / 100:,.2f}"
