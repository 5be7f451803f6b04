"""The ledger: what the instances of a cluster cost, by the second, in millionths of a dollar.

A cluster's ledger is one small document. Each hour is posted once: of every claim that had an instance in that hour,
the price of the time in it. `posted_until` is where the next posting begins, and the document is replaced only if it is
the one that was read. So a posting that is lost, doubled or late counts no second twice and leaves none out.
Between two postings the claims themselves say what has been spent since: see `running_micros`.

Volumes, traffic, load balancers and the control plane are outside of the ledger. See docs/how-to/ceilings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from math import ceil

import msgspec
from msgspec.structs import replace

from shiplap.instances.offerings.instance_rates import Rate
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.spending.node_lives import NodeLives

HOUR_S = 3600
"""Seconds of one posting. Months begin at full hours of UTC."""

LEAST_BILLED_S = 60
"""Seconds of instance time that EC2 bills at least."""


def is_billed(claim: NodeClaim) -> bool:
    """True if a claim has, or had, an instance."""
    return claim.instance is not None


def ended_at(claim: NodeClaim) -> float | None:
    """Return when a claim's instance ended, epoch seconds; None while it may run."""
    return claim.changed_at if claim.state in FINAL else None


def billed_s(claim: NodeClaim, until: float) -> int:
    """Seconds of a claim's instance that are billed until `until`, epoch seconds; never fewer at a later `until`.

    It counts from when the claim was written, which is moments before its launch. A minute is billed as soon as the
    instance runs.
    """
    if claim.instance is None or until <= claim.created_at:
        return 0
    end = ended_at(claim)
    last = until if end is None else min(until, end)
    return max(ceil(round(last - claim.created_at, 3)), LEAST_BILLED_S)


def cost_micros(claim: NodeClaim, since: float, until: float, rate: Rate) -> int:
    """Return the cost of a claim's instance from `since` to `until`, rounded up."""
    seconds = billed_s(claim, until) - billed_s(claim, since)
    return -(-seconds * rate.micros // HOUR_S)


def month_of(at: float) -> str:
    """The month of a moment, in UTC, such as 2026-11."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def month_start(at: float) -> int:
    """The epoch second at which the month of a moment began."""
    moment = datetime.fromtimestamp(at, UTC)
    return int(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp())


def month_end(at: float) -> int:
    """The epoch second at which the month of a moment ends: the first one of the next month."""
    moment = datetime.fromtimestamp(month_start(at), UTC)
    following = (
        moment.replace(year=moment.year + 1, month=1) if moment.month == 12 else moment.replace(month=moment.month + 1)
    )
    return int(following.timestamp())


class PurchasedTime(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """The instance time of a NodePool that was bought alike in one month: seconds, and millionths of a dollar.

    `is_estimated`: it was counted at an estimate. `capacity_type` is empty where it is not known.
    """

    node_pool: str = ""
    capacity_type: str = ""
    is_estimated: bool = False
    seconds: int = 0
    spent: int = 0


class MonthOfSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The spending of a cluster in one month, in millionths of a dollar: in all, by NodePool and by namespace.

    `estimated` is the part that was counted at an estimate. Namespaces add up to less than `spent`: nobody requested
    the rest. `purchases` lack what versions before them have posted.
    """

    month: str = ""
    spent: int = 0
    estimated: int = 0
    by_pool: dict[str, int] = {}
    by_namespace: dict[str, int] = {}
    purchases: tuple[PurchasedTime, ...] = ()


class SpendingLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster's ledger. `version` counts its writes; `posted_until` is an epoch second at a full hour.

    `hours` are the last postings, the oldest first, of which the forecast is made: the one before `posted_until` is the
    last of them. `lives` say how long nodes of each NodePool live.
    """

    version: int = 0
    posted_until: int = 0
    this_month: MonthOfSpending = MonthOfSpending()
    last_month: MonthOfSpending = MonthOfSpending()
    hours: tuple[int, ...] = ()
    lives: dict[str, NodeLives] = {}

    def spent_in(self, at: float) -> MonthOfSpending:
        """Return the posted spending of the month of a moment."""
        month = month_of(at)
        return self.this_month if self.this_month.month == month else MonthOfSpending(month)


MOST_HOURS = 5 * 7 * 24
"""Hourly postings that are kept: five weeks."""

RateOf = Callable[[NodeClaim], Rate]
"""The rate of a claim now: spot prices change by the hour."""

SharesOf = Callable[[NodeClaim], Mapping[str, float]]
"""The parts of a claim's node that pods of each namespace request; together at most 1."""


def last_hour(at: float) -> int:
    """The last full hour at a moment, epoch seconds."""
    return int(at // HOUR_S) * HOUR_S


def begin(at: float) -> SpendingLedger:
    """The ledger of a cluster that has none yet: it counts from the last full hour on."""
    return SpendingLedger(posted_until=last_hour(at), this_month=MonthOfSpending(month_of(last_hour(at))))


def is_due(ledger: SpendingLedger, at: float) -> bool:
    """True if there is a full hour that has not been posted yet."""
    return ledger.posted_until + HOUR_S <= at


def posted(
    ledger: SpendingLedger, claims: Iterable[NodeClaim], at: float, rate_of: RateOf, shares_of: SharesOf
) -> SpendingLedger:
    """The ledger with every full hour posted that is over at `at`.

    Args:
        ledger: as it was read.
        claims: all that have not ended, and those that ended and were not posted to their end.
        at: epoch seconds, before the claims were read: none that was made until then is missing.
        rate_of: what a claim costs per hour now; it counts for all hours that are posted, and an hour ago at most where
            nothing is late.
        shares_of: whose its node is.
    """
    known = sorted(filter(is_billed, claims), key=lambda claim: claim.name)
    rates = {claim.name: rate_of(claim) for claim in known}
    shares = {claim.name: shares_of(claim) for claim in known}
    until = last_hour(at)
    lives = _lives(ledger, known, until)
    while ledger.posted_until < until:
        ledger = _with_hour(ledger, known, rates, shares)
    return replace(ledger, version=ledger.version + 1, lives=lives)


def _with_hour(
    ledger: SpendingLedger,
    claims: Iterable[NodeClaim],
    rates: Mapping[str, Rate],
    shares: Mapping[str, Mapping[str, float]],
) -> SpendingLedger:
    since, until = ledger.posted_until, ledger.posted_until + HOUR_S
    month = ledger.spent_in(since)
    by_pool, by_namespace = dict(month.by_pool), dict(month.by_namespace)
    purchases = {(item.node_pool, item.capacity_type, item.is_estimated): item for item in month.purchases}
    spent = estimated = 0
    for claim in claims:
        rate = rates[claim.name]
        cost = cost_micros(claim, since, until, rate)
        if not cost:
            continue
        spent += cost
        estimated += 0 if rate.known else cost
        by_pool[claim.plan.node_pool] = by_pool.get(claim.plan.node_pool, 0) + cost
        kind = (claim.plan.node_pool, claim.known_instance.capacity_type, not rate.known)
        bought = purchases.get(kind, PurchasedTime(*kind))
        seconds = billed_s(claim, until) - billed_s(claim, since)
        purchases[kind] = replace(bought, seconds=bought.seconds + seconds, spent=bought.spent + cost)
        for namespace, share in shares[claim.name].items():
            by_namespace[namespace] = by_namespace.get(namespace, 0) + int(cost * share)
    return replace(
        ledger,
        posted_until=until,
        last_month=ledger.last_month if month.month == ledger.this_month.month else ledger.this_month,
        this_month=MonthOfSpending(
            month.month,
            month.spent + spent,
            month.estimated + estimated,
            dict(sorted(by_pool.items())),
            dict(sorted(by_namespace.items())),
            tuple(sorted(purchases.values())),
        ),
        hours=(*ledger.hours, spent)[-MOST_HOURS:],
    )


def _lives(ledger: SpendingLedger, claims: Iterable[NodeClaim], until: int) -> dict[str, NodeLives]:
    """Return how long nodes live, with nodes that ended in the hours posted now, and the ages of nodes that live."""
    ended: dict[str, list[float]] = {}
    ages: dict[str, list[float]] = {}
    for claim in claims:
        end = ended_at(claim)
        pool = claim.plan.node_pool
        if end is None or end >= until:
            ages.setdefault(pool, []).append(until - claim.created_at)
        elif end >= ledger.posted_until:
            ended.setdefault(pool, []).append(end - claim.created_at)
    pools = sorted(ledger.lives.keys() | ended.keys() | ages.keys())
    return {pool: ledger.lives.get(pool, NodeLives()).after(ended.get(pool, ()), ages.get(pool, ())) for pool in pools}


def running_micros(
    ledger: SpendingLedger, claims: Iterable[NodeClaim], at: float, rate_of: Callable[[NodeClaim], Rate]
) -> dict[str, int]:
    """Return the spending of this month since the last posting, in millionths of a dollar, by NodePool."""
    since = max(ledger.posted_until, month_start(at))
    spent: dict[str, int] = {}
    for claim in claims:
        if is_billed(claim):
            cost = cost_micros(claim, since, max(at, since), rate_of(claim))
            spent[claim.plan.node_pool] = spent.get(claim.plan.node_pool, 0) + cost
    return spent
