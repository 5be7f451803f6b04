"""Ceilings beside each other: a second cluster, NodePool, month and ceiling, none of which takes another's room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.flows.policies.ceilings_inputs import ceilings_in_use
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.shiplap_annotations import MAX_HOURLY_PRICE
from shiplap.policies.ceilings.ceiling_use import (
    LOST_FOR_S,
    ClusterSpending,
    change_of_account,
    cluster_spending,
    hourly_ceilings,
    hourly_micros,
    recount,
    spending_view,
)
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode, SpendingView, WantedLaunch, admit
from shiplap.ports import DecisionState
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import AccountSpending, CountedSpending
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, SpendingLedger, last_hour, month_end
from tests.builders.claims import node_claim

DOLLAR = 1_000_000
STOP = CeilingMode.STOP
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
NOW = NOVEMBER + 9 * 24 * HOUR_S


def runs(name: str, dollars: float, pool: str = "default", **fields: object) -> NodeClaim:
    """A node in service for an hour."""
    known = {"instance_id": f"i-{name}", "created_at": NOW - HOUR_S, "state": ClaimState.INITIALIZED}
    return node_claim(**{"name": name, "node_pool": pool, "hourly": dollars, **known, **fields})


class Account:
    """The account's counters, and what each of its clusters has added to them. Nothing is posted to ledgers."""

    def __init__(self, **clusters: Sequence[NodeClaim]) -> None:
        self.clusters = dict(clusters)
        self.counted = {name: CountedSpending() for name in clusters}
        self.counters = AccountSpending()

    def spending(self, cluster: str, now: float) -> ClusterSpending:
        return cluster_spending(self.clusters[cluster], None, now)

    def recount(self, now: float, *names: str) -> None:
        """A sweep of these clusters, or of all."""
        for name in names or self.clusters:
            change = recount(self.counted[name], self.spending(name, now), now)
            if change is not None:
                assert self.counters.allows(change)
                self.counters, self.counted[name] = self.counters.after(change), change.after

    def view(self, cluster: str, now: float, *ceilings: Ceiling, own: Sequence[Ceiling] = ()) -> SpendingView:
        known = self.spending(cluster, now)
        return spending_view(own, ceilings, cluster, known, self.counted[cluster], self.counters)

    def used(self, cluster: str, now: float, ceiling: Ceiling) -> int:
        """Return the use of a ceiling of the account, as a cluster knows it."""
        return self.view(cluster, now, ceiling).ceilings[0].used


MONTHLY = Ceiling(monthly=10_000, mode=STOP, recovery_percent=0)
HOURLY = Ceiling(hourly=10, mode=STOP, recovery_percent=0)


def test_each_cluster_sees_what_all_of_them_use() -> None:
    account = Account(left=[runs("a", 1.0), runs("b", 0.5)], right=[runs("c", 0.25)])
    account.recount(NOW)
    spent_and_reserved = [account.spending(name, NOW).total for name in account.clusters]
    for name in account.clusters:
        assert account.used(name, NOW, HOURLY) == 1_750_000
        assert account.used(name, NOW, MONTHLY) == sum(spent_and_reserved)


def test_a_new_month_begins_with_what_all_clusters_reserve_before_any_has_counted_itself() -> None:
    """Until its first sweep, each node of another cluster is reckoned to run until the month ends."""
    account = Account(left=[runs("a", 1.0)], right=[runs("b", 0.25), runs("c", 0.25)])
    account.recount(NOVEMBER - 60)
    now = NOVEMBER + 30
    whole = 1_500_000 * (month_end(now) - now) // HOUR_S
    assert account.used("left", now, MONTHLY) == account.used("right", now, MONTHLY) == whole


def test_what_a_cluster_counted_of_the_last_month_is_not_taken_from_the_new_one() -> None:
    account = Account(left=[runs("a", 1.0)], right=[runs("b", 0.25)])
    account.recount(NOVEMBER - 60)
    now = NOVEMBER + 2 * HOUR_S
    account.recount(now, "right")
    both = account.spending("left", now).total + account.spending("right", now).total
    assert (
        account.used("left", now, MONTHLY) == account.used("right", now, MONTHLY) + account.spending("left", now).total
    )
    assert account.used("left", now, MONTHLY) == both
    account.recount(now)
    assert account.used("left", now, MONTHLY) == account.used("right", now, MONTHLY) == both
    assert account.counters.totals["2026-11"] == both
    assert account.counters.totals["2026-10"] > 0
    assert account.counters.hourly == 1_250_000


def test_a_node_that_ends_gives_its_room_back_to_the_other_cluster_within_a_sweep() -> None:
    account = Account(left=[runs("a", 1.0), runs("b", 1.0)], right=[runs("c", 1.0)])
    account.recount(NOW)
    before = account.used("right", NOW, MONTHLY)
    ended = replace(account.clusters["left"][0], state=ClaimState.GONE, changed_at=NOW + 60.0)
    account.clusters["left"] = [ended, account.clusters["left"][1]]
    account.recount(NOW + 120)
    assert account.used("right", NOW + 120, HOURLY) == 2 * DOLLAR
    rest = (month_end(NOW) - NOW) // HOUR_S * DOLLAR
    assert before - account.used("right", NOW + 120, MONTHLY) == pytest.approx(rest, rel=0.01)


def test_what_is_reserved_no_more_is_given_back_though_the_price_per_hour_stays() -> None:
    """A node that is being emptied reserves ten minutes, and costs as much per hour."""
    account = Account(left=[runs("a", 1.0)], right=[runs("c", 1.0)])
    account.recount(NOW)
    leaving = replace(account.clusters["left"][0], state=ClaimState.DRAINING, failure="Drifted")
    account.clusters["left"] = [leaving]
    before = account.used("right", NOW + 60, MONTHLY)
    account.recount(NOW + 60)
    assert account.used("right", NOW + 60, HOURLY) == 2 * DOLLAR
    assert account.used("right", NOW + 60, MONTHLY) < before - 100 * DOLLAR


def test_a_price_per_hour_is_given_back_though_little_is_reserved() -> None:
    """One small node of many, and the last minutes of a month: what a month has is almost the same."""
    many = [runs("a", 1000.0), runs("b", 0.5)]
    for now, nodes in ((NOW, many), (month_end(NOW) - 60, [runs("a", 1.0), runs("b", 1.0)])):
        account = Account(left=nodes, right=[runs("c", 1.0)])
        account.recount(now)
        before = account.used("right", now, HOURLY)
        account.clusters["left"] = [nodes[0]]
        account.recount(now + 30)
        assert account.used("right", now + 30, HOURLY) == before - hourly_micros(nodes[1])


def test_a_sweep_over_midnight_does_not_keep_the_new_month_from_being_counted() -> None:
    """It has read the claims in the last month, and writes what it found in the new one."""
    account = Account(left=[runs("a", 1.0)])
    before = account.spending("left", NOVEMBER - 2)
    change = recount(account.counted["left"], before, NOVEMBER + 5)
    assert change is not None
    account.counters, account.counted["left"] = account.counters.after(change), change.after
    account.recount(NOVEMBER + 60)
    assert account.counters.totals["2026-11"] == account.spending("left", NOVEMBER + 60).total


def test_a_claim_that_failed_takes_nothing() -> None:
    failed = runs("b", 4.0, "batch", state=ClaimState.FAILED, instance_id="", most_hourly=4.0)
    known = cluster_spending([runs("a", 1.0, "batch"), failed], None, NOW)
    assert known == cluster_spending([runs("a", 1.0, "batch")], None, NOW)


def test_what_grows_is_counted_at_the_next_full_hour_and_what_shrinks_at_once() -> None:
    account = Account(left=[runs("a", 1.0)])
    account.recount(NOW + 60)
    known = account.counted["left"]
    account.clusters["left"] = [runs("a", 1.0), runs("b", 1.0)]
    account.recount(NOW + 120)
    assert account.counted["left"] is known
    account.recount(last_hour(NOW + 60) + HOUR_S)
    assert account.counters.hourly == 2 * DOLLAR


# Several ceilings


def launch(name: str = "a", dollars: float = 1.0, pool: str = "default", **fields: object) -> WantedLaunch:
    return replace(WantedLaunch(name=name, node_pool=pool, prices={"m5.large": int(dollars * DOLLAR)}), **fields)


@pytest.mark.parametrize("limits", [(3.0, 5.0), (5.0, 3.0)])
def test_the_tightest_of_two_ceilings_decides(limits: tuple[float, float]) -> None:
    """An hourly and a monthly one of the cluster stand behind them, and have room."""
    ceilings = [Ceiling(hourly=limit, mode=STOP, recovery_percent=0) for limit in limits]
    account = Account(left=[runs("a", 1.0)], right=[runs("b", 0.5)])
    account.recount(NOW)
    view = account.view("left", NOW, *ceilings, own=[HOURLY, MONTHLY])
    assert view.dearest("default", launch().standing) == 1_500_000
    verdicts = admit(view, [launch("a"), launch("b")])
    assert [item.name for item in verdicts.admitted] == ["a"]
    assert "account, $3.00 per hour" in verdicts.refused["b"]
    spending = account.spending("left", NOW)
    change = change_of_account(
        account.counted["left"], spending, view, {"default": DOLLAR}, verdicts.slack, account.counters, NOW
    )
    assert change.most_hourly == account.counters.hourly + DOLLAR // 2
    assert change.most_total is None


def test_of_what_was_lost_no_more_is_launched_again_than_the_tightest_ceiling_has() -> None:
    """Each of two ceilings keeps a part for recovery, and one of them has less of it left than was lost."""
    ceilings = [Ceiling(hourly=limit, mode=STOP, recovery_percent=50) for limit in (6.0, 4.0)]
    gone = runs("b", 1.5, state=ClaimState.DRAINING, failure="SpotInterruption")
    view = Account(left=[runs("a", 2.0), gone]).view("left", NOW, *ceilings)
    assert view.lost_micros == 1_500_000
    assert view.dearest("default", launch().standing) == DOLLAR // 2


def test_launches_of_one_decision_share_what_the_tightest_ceiling_leaves() -> None:
    """Other launches may use meanwhile what is left once all launches of the decision are there."""
    view = Account(left=[]).view("left", NOW, *(replace(HOURLY, hourly=limit) for limit in (4.0, 9.0)))
    assert admit(view, [launch("a"), launch("b", 2.0)]).slack == (DOLLAR, 6 * DOLLAR)
    assert admit(view, [launch("a"), launch("b", 2.0), launch("c", 8.0)]).slack == (DOLLAR, 6 * DOLLAR)


# Several NodePools

SPEC = {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}


def of_pools(*claims: NodeClaim, ledger: SpendingLedger | None = None) -> SpendingView:
    """A cluster with a monthly ceiling for each of two NodePools and two namespaces."""
    ceilings = [Ceiling(monthly=2000, mode=STOP, node_pool=pool, recovery_percent=0) for pool in ("batch", "web")]
    ceilings += [Ceiling(monthly=2000, namespace=name) for name in ("ci", "shop")]
    known = cluster_spending(claims, ledger, NOW)
    return spending_view(ceilings, (), "left", known, CountedSpending(), AccountSpending())


def test_the_ceiling_of_a_node_pool_and_of_a_namespace_counts_no_other() -> None:
    month = MonthOfSpending(
        "2026-11", 900, by_pool={"batch": 500, "web": 300, "old": 100}, by_namespace={"ci": 7, "shop": 11}
    )
    batch, web, ci, shop = of_pools(ledger=SpendingLedger(posted_until=NOW, this_month=month)).ceilings
    assert [item.used for item in (batch, web, ci, shop)] == [500, 300, 7, 11]
    batch, web, *_ = of_pools(runs("a", 1.0, "batch"), runs("b", 0.25, "batch"), runs("c", 2.0, "web")).ceilings
    seconds = month_end(NOW) - NOW
    assert batch.used == pytest.approx(1_250_000 * seconds / HOUR_S, abs=5)
    assert web.used == pytest.approx(2_000_000 * seconds / HOUR_S, abs=5)


def test_a_full_node_pool_refuses_its_own_launches_alone() -> None:
    full = of_pools(*(runs(f"a{number}", 1.0, "batch") for number in range(4)))
    verdicts = admit(full, [launch("a", pool="batch"), launch("b", pool="web"), launch("c", pool="other")])
    assert [item.name for item in verdicts.admitted] == ["b", "c"]
    assert "NodePool batch" in verdicts.refused["a"]
    after = [item.used for item in verdicts.after.ceilings]
    before = [item.used for item in full.ceilings]
    assert [now > was for now, was in zip(after, before, strict=True)] == [False, True, False, False]


def test_hourly_limits_of_node_pools_count_their_own_nodes_that_stay() -> None:
    claims = [runs("a", 1.0, "batch"), runs("b", 2.0, "web"), runs("c", 4.0, "web", state=ClaimState.DRAINING)]
    uses = hourly_ceilings({"web": 1, "batch": 2, "empty": 3}, cluster_spending(claims, None, NOW))
    assert [(item.name, item.limit, item.used) for item in uses] == [
        ("batch", 2, DOLLAR),
        ("empty", 3, 0),
        ("web", 1, 2 * DOLLAR),
    ]


def test_of_node_pools_those_with_a_price_per_hour_above_nothing_are_shown() -> None:
    """One that may cost nothing is closed, one without the annotation has no ceiling."""
    pools = tuple(
        msgspec.convert({"metadata": {"name": name, "annotations": marks}, "spec": SPEC}, NodePool)
        for name, marks in (("closed", {MAX_HOURLY_PRICE: "0"}), ("free", {}), ("web", {MAX_HOURLY_PRICE: "4"}))
    )
    settings = ClusterSettings(name="left", region="eu-west-1", manifests=Manifests(node_pools=pools))
    known = cluster_spending([runs("a", 1.0, "web"), runs("b", 2.0, "free")], None, NOW)
    (shown,) = ceilings_in_use(settings, DecisionState(0), known)
    assert (shown.name, shown.share) == ("web", 0.25)


def test_a_launch_reserves_the_life_of_its_own_pool() -> None:
    view = SpendingView((), month_left_s=1000, lives_s={"short": 100, "long": 700, "longer": 9000})
    assert [view.reserved_s(pool) for pool in ("short", "long", "longer", "new")] == [100, 700, 1000, 1000]


# What was lost


def lost(*claims: NodeClaim, now: float = NOW) -> int:
    return cluster_spending(claims, None, now).lost


def test_a_lost_node_may_be_replaced_until_it_is_or_for_a_while() -> None:
    """Two nodes are lost. Each that is launched takes its price off, and what is left ends with its time."""
    first = runs("a", 1.0, state=ClaimState.TERMINATING, failure="SpotInterruption")
    second = runs("b", 0.5, pool="web", state=ClaimState.GONE, failure="InstanceEnded", changed_at=NOW - 60.0)
    replacing = runs("c", 0.75, state=ClaimState.LAUNCHED)
    assert lost(first, second) == 1_500_000
    assert lost(first, second, replacing) == 750_000
    assert lost(first, second, replacing, replace(replacing, name="d")) == 0
    assert lost(first, second, replace(replacing, state=ClaimState.INITIALIZED)) == 1_500_000
    assert lost(second, now=NOW - 60 + LOST_FOR_S - 1) == 500_000
    assert lost(second, now=NOW - 60 + LOST_FOR_S) == 0


def test_a_lost_node_is_replaced_below_a_ceiling_that_has_no_room_for_others() -> None:
    """Its pods are made anew without a mark, so that its price says what they may cost; a second launch has to wait."""
    ceiling = Ceiling(hourly=4.0, mode=STOP, recovery_percent=50)
    gone = runs("b", 1.0, state=ClaimState.GONE, failure="SpotInterruption", changed_at=NOW - 60.0)
    account = Account(left=[runs("a", 1.5), gone], right=[runs("c", 0.5)])
    account.recount(NOW)
    view = account.view("left", NOW, ceiling)
    assert [item.name for item in admit(view, [launch("a", 1.0), launch("b", 1.0)]).admitted] == ["a"]
    assert admit(account.view("right", NOW, ceiling), [launch("a", 1.0)]).admitted == ()


def test_a_replacement_uses_up_what_was_lost() -> None:
    view = SpendingView(Account(left=[]).view("left", NOW, replace(HOURLY, hourly=1.0)).ceilings, lost_micros=DOLLAR)
    after = admit(view, [launch("a", 0.75, replaces=True)]).after
    assert after.lost_micros == DOLLAR // 4
    assert admit(view, [launch("a", 0.75)]).after.lost_micros == DOLLAR // 4


# Without a price


@pytest.mark.parametrize(
    ("fields", "micros"),
    [
        ({"most_hourly": 0.5}, 600_000),
        ({"most_hourly": 0.0, "allocatable": {"cpu": 3920}}, 240_000),
        ({"most_hourly": 0.5, "hourly": 0.25}, 250_000),
        ({"most_hourly": 0.5, "hourly": 0.25, "instance_id": "", "state": ClaimState.LAUNCHING}, 500_000),
    ],
    ids=["the most it may cost and a fifth", "its vCPUs and a fifth", "its price", "not launched yet"],
)
def test_a_node_without_a_price_counts_as_much_as_it_may_cost(fields: dict[str, object], micros: int) -> None:
    """In all sums, beside a node that has a price."""
    unpriced = runs("a", 0.0, "batch", **fields)
    now = NOW + HOUR_S // 2
    known = cluster_spending([unpriced, runs("b", 1.0, "web")], None, now)
    assert known.hourly == {"batch": micros, "web": DOLLAR}
    assert known.reserved["batch"] == -(-micros * (month_end(now) - now) // HOUR_S)
    launched = {"batch": micros // 2} if unpriced.instance is not None else {}
    assert known.spent == launched | {"web": DOLLAR // 2}
