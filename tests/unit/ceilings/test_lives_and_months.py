"""What nodes reserve of a month: for as long as nodes of their own NodePool live, and never beyond the month's end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shiplap.instances.offerings.instance_rates import rate_of
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.ceilings.ceiling_use import LEAVING_S, change_of_account, cluster_spending, spending_view
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode, WantedLaunch, admit
from shiplap.spending.account_counters import AccountSpending, CountedSpending
from shiplap.spending.ledger import HOUR_S, SpendingLedger, begin, posted
from shiplap.spending.node_lives import FEWEST_ENDED, NodeLives
from tests.builders.claims import node_claim

DAY_S = 24 * HOUR_S
DOLLAR = 1_000_000
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
LIVED_S = 5 * DAY_S
WEB_LIFE = NodeLives().after([LIVED_S] * FEWEST_ENDED, ()).p95_s() or 0


def ledger_at(now: float) -> SpendingLedger:
    """Nodes of `web` live for some five days; nothing is known of those of other NodePools."""
    known = begin(now)
    return SpendingLedger(
        known.version, known.posted_until, known.this_month, lives={"web": NodeLives().after([LIVED_S] * 30, ())}
    )


def runs(pool: str, now: float, state: ClaimState = ClaimState.INITIALIZED) -> NodeClaim:
    return node_claim(name=pool, node_pool=pool, hourly=1.0, instance_id=f"i-{pool}", created_at=now, state=state)


@pytest.mark.parametrize("left_s", [1 * DAY_S, 2 * HOUR_S, 300, 20 * DAY_S])
def test_a_running_node_reserves_until_its_pool_or_the_month_ends(left_s: int) -> None:
    """Whichever is sooner; of a pool whose lives are not known, the rest of the month."""
    now = NOVEMBER + 30 * DAY_S - left_s
    spending = cluster_spending([runs("web", now), runs("batch", now)], ledger_at(now), now)

    assert LIVED_S <= WEB_LIFE < 6 * DAY_S
    assert spending.month_left_s == left_s
    assert spending.reserved == {
        "web": -(-DOLLAR * min(WEB_LIFE, left_s) // HOUR_S),
        "batch": -(-DOLLAR * left_s // HOUR_S),
    }


@pytest.mark.parametrize("left_s", [2 * DAY_S, 300])
def test_a_node_that_leaves_reserves_its_last_minutes_and_none_of_the_next_month(left_s: int) -> None:
    now = NOVEMBER + 30 * DAY_S - left_s
    leaving = runs("web", now, ClaimState.DRAINING)
    spending = cluster_spending([leaving], ledger_at(now), now)

    assert spending.reserved == {"web": -(-DOLLAR * min(LEAVING_S, left_s) // HOUR_S)}


@pytest.mark.parametrize("left_s", [20 * DAY_S, 1 * DAY_S])
def test_the_account_counts_launches_by_the_lives_for_which_they_were_admitted(left_s: int) -> None:
    """Of two NodePools: what they add to the counter is what they took of the account's monthly ceiling."""
    now = NOVEMBER + 30 * DAY_S - left_s
    spending = cluster_spending([], ledger_at(now), now)
    ceiling = Ceiling(monthly=9999.0, mode=CeilingMode.STOP)
    view = spending_view([], [ceiling], "left", spending, CountedSpending(), AccountSpending())
    launched = {"web": 2 * DOLLAR, "batch": 3 * DOLLAR}
    wanted = [WantedLaunch(name=pool, node_pool=pool, prices={"m5": price}) for pool, price in launched.items()]

    verdicts = admit(view, wanted)
    change = change_of_account(CountedSpending(), spending, view, launched, verdicts.slack, AccountSpending(), now)

    assert change.after.total == verdicts.after.ceilings[0].used
    lasting = {"web": min(WEB_LIFE, left_s), "batch": left_s}
    assert change.after.total == sum(-(-price * lasting[pool] // HOUR_S) for pool, price in launched.items())
    assert change.after.hourly == 5 * DOLLAR


def posted_each_hour(ledger: SpendingLedger, claims: list[NodeClaim], hours: list[int]) -> SpendingLedger:
    for hour in hours:
        ledger = posted(
            ledger, claims, NOVEMBER + hour * HOUR_S, lambda claim: rate_of(claim, 0.0), lambda _: {"default": 1.0}
        )
    return ledger


@pytest.mark.parametrize("hours", [[1, 2, 3, 4], [4], [1, 1, 2, 2, 4], [2, 4]])
def test_a_life_counts_once_however_long_its_claim_is_read(hours: list[int]) -> None:
    """Claims are closed some hundred at a time: many that have ended are read with several postings, or a late one."""

    def ended(name: str, pool: str, minutes: int) -> NodeClaim:
        lasting = {"created_at": NOVEMBER, "changed_at": NOVEMBER + minutes * 60.0}
        known = {"node_pool": pool, "instance_id": f"i-{name}", "hourly": 1.0, "state": ClaimState.GONE}
        return node_claim(name=name, **known, **lasting)

    claims = [ended("a", "web", 30), ended("b", "web", 70), ended("c", "batch", 30), runs("batch", NOVEMBER)]

    lives = posted_each_hour(begin(NOVEMBER), claims, hours).lives

    assert {pool: (sum(known.ended), sum(known.running)) for pool, known in lives.items()} == {
        "web": (2, 0),
        "batch": (1, 1),
    }


def test_a_life_that_ended_when_an_hour_did_counts_once() -> None:
    """In the hour that begins then."""
    gone = node_claim(
        name="a",
        node_pool="web",
        instance_id="i-a",
        state=ClaimState.GONE,
        created_at=NOVEMBER,
        changed_at=NOVEMBER + HOUR_S,
    )
    for hours, counted in (([1], 0), ([1, 2], 1), ([2], 1), ([1, 2, 3], 1)):
        lives = posted_each_hour(begin(NOVEMBER), [gone], hours).lives
        assert sum(lives["web"].ended) == counted
