"""Computes the use of each ceiling at a moment, from a cluster's claims, its ledger and the account's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.instances.offerings.instance_rates import micros_of, rate_of
from shiplap.manifests.nodeclaim import FINAL, GOING_FOR_GOOD, IN_FLIGHT, ClaimState, NodeClaim
from shiplap.policies.ceilings.ceilings import (
    HOURLY_PERIOD,
    MONTHLY_PERIOD,
    Ceiling,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
)
from shiplap.policies.ceilings.forecast import forecast_micros
from shiplap.spending.account_counters import AccountSpending, CountChange, CountedSpending, change_to
from shiplap.spending.ledger import (
    HOUR_S,
    SpendingLedger,
    begin,
    last_hour,
    month_end,
    month_of,
    month_start,
    running_micros,
)

LEAVING_S = 600
"""Seconds for which nodes that are being emptied are reckoned to run on."""

LOST_FOR_S = 900
"""Seconds after its end for which a lost node may be replaced at the expense of what is kept for that."""

_UNSEEN_S = 300
"""Seconds of a new month in which other clusters may not have counted themselves yet."""

_INTENDED = frozenset({"Empty", "Underutilized", "Drifted", "Expired", "ScaledDown", "Asleep"})
"""Why a node leaves that nobody lost: its replacements were launched before, or there are none."""


class ClusterSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The money that a cluster has spent this month, reserves for the rest of it and costs per hour, by NodePool.

    In millionths of a dollar. `month_left_s` are the seconds until the month ends, `lives_s` how long nodes usually
    live, `lost` the price per hour of lost nodes that no node in flight replaces. `by_namespace` is what was posted.
    `staying` is the part of `hourly` that is not of nodes that leave.
    `is_new`: the month has just begun, and other clusters may not have counted themselves yet.
    """

    month: str
    month_left_s: int
    spent: dict[str, int] = {}
    reserved: dict[str, int] = {}
    hourly: dict[str, int] = {}
    lives_s: dict[str, int] = {}
    lost: int = 0
    by_namespace: dict[str, int] = {}
    is_new: bool = False
    staying: dict[str, int] = {}

    @property
    def total_spent(self) -> int:
        """Spent this month by all NodePools."""
        return sum(self.spent.values())

    @property
    def total(self) -> int:
        """Spent and reserved."""
        return self.total_spent + sum(self.reserved.values())

    def forecast(self, ledger: SpendingLedger) -> int:
        """Forecast the cost of the whole month from the cluster's ledger."""
        return self.total_spent + forecast_micros(ledger.hours, self.month_left_s // HOUR_S)

    def total_of(self, node_pool: str) -> int:
        """Spent and reserved by a NodePool."""
        return self.spent.get(node_pool, 0) + self.reserved.get(node_pool, 0)


def hourly_micros(claim: NodeClaim) -> int:
    """Return the price per hour that a claim counts, in millionths of a dollar.

    Until it is launched, this is the most it may cost.
    """
    if claim.instance is None:
        return micros_of(max(claim.most_hourly, claim.hourly))
    return rate_of(claim, claim.most_hourly).micros


def cluster_spending(claims: Iterable[NodeClaim], ledger: SpendingLedger | None, now: float) -> ClusterSpending:
    """Return the spending of a cluster.

    Args:
        claims: all that have not ended, and those that ended and were not posted to their end.
        ledger: as it was read before the claims; None before the first posting.
        now: epoch seconds.
    """
    known = sorted(claims, key=lambda claim: claim.name)
    posted = ledger if ledger is not None else begin(now)
    left = month_end(now) - int(now)
    lives = {pool: life for pool in sorted(posted.lives) if (life := posted.lives[pool].p95_s()) is not None}
    spent = dict(posted.spent_in(now).by_pool)
    for pool, cost in running_micros(posted, known, now, lambda claim: rate_of(claim, claim.most_hourly)).items():
        spent[pool] = spent.get(pool, 0) + cost
    reserved: dict[str, int] = {}
    hourly: dict[str, int] = {}
    staying: dict[str, int] = {}
    for claim in known:
        if claim.state in FINAL:
            continue
        pool, price = claim.plan.node_pool, hourly_micros(claim)
        rest = min(lives.get(pool, left), left)
        if claim.state in GOING_FOR_GOOD:
            rest = min(rest, LEAVING_S)
        else:
            staying[pool] = staying.get(pool, 0) + price
        hourly[pool] = hourly.get(pool, 0) + price
        reserved[pool] = reserved.get(pool, 0) - (-price * rest // HOUR_S)
    return ClusterSpending(
        month_of(now),
        left,
        spent,
        reserved,
        hourly,
        lives,
        _lost(known, now),
        posted.spent_in(now).by_namespace,
        now - month_start(now) < _UNSEEN_S,
        staying,
    )


def _lost(claims: Sequence[NodeClaim], now: float) -> int:
    lost = sum(hourly_micros(claim) for claim in claims if _is_lost(claim, now))
    coming = sum(hourly_micros(claim) for claim in claims if claim.state in IN_FLIGHT)
    return max(lost - coming, 0)


def _is_lost(claim: NodeClaim, now: float) -> bool:
    if claim.instance is None or claim.failure in _INTENDED:
        return False
    just_ended = claim.state is ClaimState.GONE and claim.changed_at + LOST_FOR_S > now
    return claim.state in GOING_FOR_GOOD or just_ended


def spending_view(
    ceilings: Sequence[Ceiling],
    account_ceilings: Sequence[Ceiling],
    cluster: str,
    spending: ClusterSpending,
    counted: CountedSpending,
    account: AccountSpending,
) -> SpendingView:
    """Return the view of dollars for decisions: each ceiling with its use, the account's ceilings first."""
    uses = [_of_account(ceiling, spending, counted, account) for ceiling in account_ceilings]
    uses += [_of_cluster(ceiling, cluster, spending) for ceiling in ceilings]
    return SpendingView(tuple(uses), spending.month_left_s, spending.lives_s, spending.lost)


def _of_account(
    ceiling: Ceiling, spending: ClusterSpending, counted: CountedSpending, account: AccountSpending
) -> CeilingUse:
    mine = counted.total if counted.month == spending.month else 0
    hourly = account.hourly - counted.hourly + sum(spending.hourly.values())
    if ceiling.period == HOURLY_PERIOD:
        return _use(ceiling, CeilingScope.ACCOUNT, "", hourly)
    total = account.totals.get(spending.month, 0) - mine + spending.total
    if spending.is_new:
        total = max(total, hourly * spending.month_left_s // HOUR_S)
    return _use(ceiling, CeilingScope.ACCOUNT, "", total)


def _of_cluster(ceiling: Ceiling, cluster: str, spending: ClusterSpending) -> CeilingUse:
    if ceiling.namespace:
        used = spending.by_namespace.get(ceiling.namespace, 0)
        return _use(ceiling, CeilingScope.NAMESPACE, ceiling.namespace, used)
    if ceiling.node_pool:
        return _use(ceiling, CeilingScope.NODE_POOL, ceiling.node_pool, spending.total_of(ceiling.node_pool))
    used = spending.total if ceiling.period == MONTHLY_PERIOD else sum(spending.hourly.values())
    return _use(ceiling, CeilingScope.CLUSTER, cluster, used)


def hourly_ceilings(limits: Mapping[str, int], spending: ClusterSpending) -> tuple[CeilingUse, ...]:
    """The limits of NodePools in dollars per hour, in millionths by name, as ceilings, by name.

    Plans apply them as they apply other limits of a NodePool: see `scheduling/supply/limits.py`.
    """
    return tuple(
        CeilingUse(
            CeilingScope.NODE_POOL,
            HOURLY_PERIOD,
            limit,
            spending.staying.get(pool, 0),
            pool,
            CeilingMode.STOP,
            recovery_percent=0,
        )
        for pool, limit in sorted(limits.items())
    )


def _use(ceiling: Ceiling, scope: CeilingScope, name: str, used: int) -> CeilingUse:
    return CeilingUse(
        scope,
        ceiling.period,
        ceiling.limit_micros,
        used,
        name,
        ceiling.mode,
        ceiling.above_priority or 0,
        ceiling.recovery_percent,
    )


def change_of_account(
    before: CountedSpending,
    spending: ClusterSpending,
    view: SpendingView,
    launched: Mapping[str, int],
    slack: Sequence[int | None],
    account: AccountSpending,
    now: float,
) -> CountChange:
    """Return the amounts that admitted launches add to the account's counters, with the most that each may be before.

    Args:
        before: what the cluster has added so far.
        spending: of the cluster, without the launches.
        view: that the launches were admitted with.
        launched: what they cost per hour in millionths of a dollar, by NodePool.
        slack: how much more of each ceiling may be used meanwhile, in the order of the view's.
        account: the counters as they were read.
        now: epoch seconds.
    """
    total = spending.total + sum(
        -(-price * view.reserved_s(pool) // HOUR_S) for pool, price in sorted(launched.items())
    )
    hourly = sum(spending.hourly.values()) + sum(launched.values())
    after = CountedSpending(before.version + 1, spending.month, total, hourly, int(now))
    bounds: dict[str, int | None] = {HOURLY_PERIOD: None, MONTHLY_PERIOD: None}
    read = {HOURLY_PERIOD: account.hourly, MONTHLY_PERIOD: account.totals.get(spending.month, 0)}
    for ceiling, left in zip(view.ceilings, slack, strict=True):
        known = bounds[ceiling.period]
        if ceiling.scope is CeilingScope.ACCOUNT and left is not None:
            most = read[ceiling.period] + left
            bounds[ceiling.period] = most if known is None else min(known, most)
    return CountChange(before, after, bounds[MONTHLY_PERIOD], bounds[HOURLY_PERIOD])


def recount(before: CountedSpending, spending: ClusterSpending, now: float) -> CountChange | None:
    """The change that makes the counters true again; None while it can wait.

    What nodes no longer reserve is given back at once, what running ones reserve further is counted each hour.
    """
    total, hourly = spending.total, sum(spending.hourly.values())
    is_less = before.total - total > before.total // 1000 or hourly < before.hourly
    if before.month == spending.month and not is_less and last_hour(now) <= before.at:
        return None
    return change_to(before, spending.month, total, hourly, now)
