"""Ceilings: which launches pass, and what is never exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.policies.ceilings.ceilings import (
    CEILING_REACHED,
    CRITICAL_PRIORITY,
    HOURLY_PERIOD,
    MONTHLY_PERIOD,
    Ceiling,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
    WantedLaunch,
    admit,
    ceiling_problems,
    dollars,
    short_ceilings,
)
from tests.beyond_bounds import beyond_bounds

DOLLAR = 1_000_000


def hourly(limit: float, used: float = 0.0, **fields: object) -> CeilingUse:
    known = CeilingUse(CeilingScope.CLUSTER, HOURLY_PERIOD, int(limit * DOLLAR), int(used * DOLLAR), "prod")
    return replace(known, **{"mode": CeilingMode.STOP, "recovery_percent": 0} | fields)


def launch(name: str = "a", price: float = 1.0, **fields: object) -> WantedLaunch:
    return replace(WantedLaunch(name=name, node_pool="default", prices={"m5.large": int(price * DOLLAR)}), **fields)


def names(view: SpendingView, launches: Sequence[WantedLaunch]) -> list[str]:
    return [admitted.name for admitted in admit(view, launches).admitted]


def test_launches_pass_up_to_the_ceiling_and_no_further() -> None:
    view = SpendingView((hourly(3, used=1),))
    decided = admit(view, [launch("a"), launch("b"), launch("c")])
    assert [admitted.name for admitted in decided.admitted] == ["a", "b"]
    assert decided.refused == {"c": f"{CEILING_REACHED} cluster prod, $3.00 per hour: $3.00 in use, a node takes $1.00"}
    assert decided.after.ceilings[0].used == 3 * DOLLAR


WIDE = {"m5.large": DOLLAR, "m5.xlarge": 2 * DOLLAR, "m5.2xlarge": 4 * DOLLAR}


def test_no_launch_is_refused_for_the_dear_types_of_another() -> None:
    decided = admit(SpendingView((hourly(5),)), [launch(name, prices=WIDE) for name in "abc"])
    assert {item.name: item.most_micros // DOLLAR for item in decided.admitted} == {"a": 2, "b": 2, "c": 1}
    assert decided.refused == {}
    assert (decided.at_least.ceilings[0].used, decided.after.ceilings[0].used) == (3 * DOLLAR, 5 * DOLLAR)


def test_the_list_of_a_launch_for_recovery_takes_no_room_of_one_that_has_passed() -> None:
    recovery = launch("recovery", prices=WIDE, priority=CRITICAL_PRIORITY)
    decided = admit(SpendingView((hourly(4, recovery_percent=25),)), [launch("other", prices=WIDE), recovery])
    assert {item.name: item.most_micros // DOLLAR for item in decided.admitted} == {"recovery": 2, "other": 1}
    assert admit(SpendingView((hourly(4, recovery_percent=25),)), [recovery]).admitted[0].most_micros == 4 * DOLLAR


def test_a_ceiling_is_short_if_the_launches_could_take_it_above_its_line() -> None:
    two = [launch(name, prices=WIDE) for name in "ab"]
    for ceiling, is_short in (
        (hourly(8), False),
        (hourly(7), True),
        (hourly(8, recovery_percent=10), True),
        (hourly(7, mode=CeilingMode.WARN), False),
        (hourly(7, scope=CeilingScope.NODE_POOL, name="other"), False),
        (hourly(9, used=2), True),
    ):
        assert short_ceilings(SpendingView((hourly(100), ceiling)), two) == [ceiling] * is_short


def test_where_no_ceiling_is_short_every_launch_keeps_its_whole_list() -> None:
    decided = admit(SpendingView((hourly(8),)), [launch(name, prices=WIDE) for name in "ab"])
    assert [item.most_micros // DOLLAR for item in decided.admitted] == [4, 4]


def test_more_important_pods_come_first() -> None:
    assert names(SpendingView((hourly(1),)), [launch("a"), launch("b", priority=7)]) == ["b"]


def test_a_launch_is_narrowed_to_the_types_that_fit() -> None:
    wide = launch(prices={"m5.large": DOLLAR, "m5.xlarge": 2 * DOLLAR, "m5.2xlarge": 4 * DOLLAR})
    (admitted,) = admit(SpendingView((hourly(3),)), [wide]).admitted
    assert admitted.instance_types == ("m5.large", "m5.xlarge")
    assert admitted.most_micros == 2 * DOLLAR


@pytest.mark.parametrize(
    ("limit", "kept"), [(1, ()), (3, ("m5.large", "m5.xlarge")), (4, ("m5.large", "m5.xlarge", "m5.2xlarge"))]
)
def test_a_launch_keeps_the_types_that_its_list_needs(limit: int, kept: tuple[str, ...]) -> None:
    needy = launch(prices={"m5.large": DOLLAR, "m5.xlarge": 2 * DOLLAR, "m5.2xlarge": 4 * DOLLAR}, kept_to=2 * DOLLAR)
    admitted = admit(SpendingView((hourly(limit),)), [needy]).admitted
    assert [item.instance_types for item in admitted] == ([kept] if kept else [])
    assert not names(SpendingView((hourly(3),)), [replace(needy, kept_to=4 * DOLLAR)])


def test_of_equally_dear_launches_that_for_most_pods_comes_first() -> None:
    assert names(SpendingView((hourly(1),)), [launch("a", pods=1), launch("b", pods=3)]) == ["b"]
    assert names(SpendingView((hourly(2),)), [launch("a", pods=1), launch("b", 2.0, pods=9)]) == ["a"]


def test_what_is_kept_for_recovery_is_only_for_replacements_and_critical_pods() -> None:
    view = SpendingView((hourly(10, used=9, recovery_percent=10),))
    assert names(view, [launch()]) == []
    assert names(view, [launch(replaces=True)]) == ["a"]
    assert names(view, [launch(priority=CRITICAL_PRIORITY)]) == ["a"]
    assert "$1.00 kept for replacements" in admit(view, [launch()]).refused["a"]


def test_stop_refuses_replacements_above_the_ceiling_too() -> None:
    exempt = [launch("a", replaces=True), launch("b", priority=CRITICAL_PRIORITY)]
    assert names(SpendingView((hourly(10, used=10),)), exempt) == []
    for mode in (CeilingMode.PRIORITY, CeilingMode.CHEAPEST, CeilingMode.WARN):
        assert names(SpendingView((hourly(10, used=10, mode=mode),)), exempt) == ["b", "a"]


def test_what_was_lost_may_be_launched_again() -> None:
    """Pods of a node that is gone are made anew and are nobody's: the price of the node tells what they may cost."""
    view = SpendingView((hourly(10, used=9.5, recovery_percent=10),), lost_micros=DOLLAR // 2)
    assert names(view, [launch("a", 0.5), launch("b", 0.5)]) == ["a"]


def test_warn_refuses_nothing() -> None:
    view = SpendingView((hourly(1, used=5, mode=CeilingMode.WARN),))
    assert names(view, [launch()]) == ["a"]
    assert admit(view, [launch()]).after.ceilings[0].is_reached


def test_priority_lets_only_more_important_pods_pass() -> None:
    view = SpendingView((hourly(1, used=1, mode=CeilingMode.PRIORITY, above_priority=100),))
    assert names(view, [launch("a", priority=100), launch("b", priority=101)]) == ["b"]
    assert "only pods of a priority above 100 get nodes" in admit(view, [launch(priority=100)]).refused["a"]


def test_cheapest_lets_only_the_cheapest_offering_pass() -> None:
    view = SpendingView((hourly(1, used=1, mode=CeilingMode.CHEAPEST),))
    wide = launch(prices={"m5.large": DOLLAR, "m5.xlarge": 2 * DOLLAR})
    assert admit(view, [wide]).admitted[0].instance_types == ("m5.large",)
    refused = admit(view, [replace(wide, cheapest="m5.large as spot")]).refused["a"]
    assert "only m5.large as spot would be launched" in refused


def test_a_month_reserves_the_life_of_a_node() -> None:
    monthly = replace(hourly(10), period=MONTHLY_PERIOD)
    view = SpendingView((monthly,), month_left_s=20 * 3600, lives_s={"short": 2 * 3600})
    assert names(view, [launch("a"), launch("b", node_pool="short"), launch("c", 0.5)]) == ["c"]
    assert names(view, [launch("b", node_pool="short", prices={"m5.large": 5 * DOLLAR})]) == ["b"]
    assert view.reserved_s("short") == 7200


def test_the_worked_example_of_the_page() -> None:
    used = 84 * DOLLAR + 3 * 20_000 * 30
    month = CeilingUse(CeilingScope.CLUSTER, MONTHLY_PERIOD, 100 * DOLLAR, used, "production", CeilingMode.STOP)
    view = SpendingView((month,), 144 * 3600, {"default": 30 * 3600})
    decided = admit(view, [launch("a", 0.1), launch("b", 0.1)])
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "ceilings.md").read_text()
    assert list(decided.refused) == ["b"]
    assert decided.refused["b"] in page


def test_a_ceiling_of_a_pool_bounds_no_other() -> None:
    full = hourly(1, used=1, scope=CeilingScope.NODE_POOL, name="batch")
    assert names(SpendingView((full,)), [launch("a", node_pool="batch"), launch("b")]) == ["b"]
    of_namespace = hourly(1, used=1, scope=CeilingScope.NAMESPACE)
    assert names(SpendingView((of_namespace,)), [launch()]) == ["a"]


PRICES = st.integers(1, 4 * DOLLAR)
LAUNCHES = st.lists(
    st.builds(
        lambda index, prices, priority, replaces, pool: launch(
            f"n{index}",
            prices={f"t{place}": price for place, price in enumerate(prices)},
            priority=priority,
            replaces=replaces,
            node_pool=pool,
        ),
        st.integers(0, 10_000),
        st.lists(PRICES, min_size=1, max_size=4),
        st.sampled_from((0, 100, CRITICAL_PRIORITY)),
        st.booleans(),
        st.sampled_from(("batch", "web")),
    ),
    max_size=8,
    unique_by=lambda item: item.name,
)
CEILINGS = st.lists(
    st.builds(
        CeilingUse,
        st.sampled_from((CeilingScope.ACCOUNT, CeilingScope.CLUSTER, CeilingScope.NODE_POOL)),
        st.sampled_from((HOURLY_PERIOD, MONTHLY_PERIOD)),
        st.integers(1, 20 * DOLLAR),
        st.integers(0, 20 * DOLLAR),
        st.sampled_from(("batch", "web")),
        st.sampled_from(CeilingMode),
        st.sampled_from((0, 100)),
        st.sampled_from((0, 10, 50)),
    ),
    min_size=1,
    max_size=3,
)


@given(ceilings=CEILINGS, launches=LAUNCHES, left=st.integers(0, 7200), lost=st.integers(0, DOLLAR))
def test_no_launch_takes_a_stopped_ceiling_above_its_limit(
    ceilings: list[CeilingUse], launches: list[WantedLaunch], left: int, lost: int
) -> None:
    view = SpendingView(tuple(ceilings), left, {"batch": 1800}, lost)
    decided = admit(view, launches)
    assert {item.name for item in decided.admitted} | decided.refused.keys() == {item.name for item in launches}
    pools = {item.name: item.node_pool for item in launches}
    for ceiling, after in zip(ceilings, decided.after.ceilings, strict=True):
        taken = sum(
            view.charge(ceiling, pools[item.name], item.most_micros)
            for item in decided.admitted
            if ceiling.bounds(pools[item.name])
        )
        assert after.used == ceiling.used + taken
        if ceiling.mode is CeilingMode.STOP and taken:
            assert after.used <= ceiling.limit


@given(ceilings=CEILINGS, launches=LAUNCHES, left=st.integers(0, 7200))
def test_within_the_slack_the_answer_stays_allowed(
    ceilings: list[CeilingUse], launches: list[WantedLaunch], left: int
) -> None:
    """Other use meanwhile, up to the slack, keeps every admitted launch below its line."""
    view = SpendingView(tuple(ceilings), left)
    decided = admit(view, launches)
    grown = tuple(
        replace(ceiling, used=ceiling.used + (slack or 0))
        for ceiling, slack in zip(ceilings, decided.slack, strict=True)
    )
    kept = [
        replace(item, prices={"t": passed.most_micros})
        for passed in decided.admitted
        for item in launches
        if item.name == passed.name
    ]
    assert len(admit(replace(view, ceilings=grown), kept).admitted) == len(kept)


@pytest.mark.parametrize(
    ("ceiling", "field", "said"),
    [
        (Ceiling(), "monthly", "give one of hourly and monthly"),
        (Ceiling(hourly=1, monthly=2), "monthly", "give one of hourly and monthly"),
        (Ceiling(hourly=0), "hourly", "above 0"),
        (Ceiling(monthly=1, mode=CeilingMode.PRIORITY), "abovePriority", "is needed with mode priority"),
        (Ceiling(monthly=1, above_priority=5), "abovePriority", "belongs to mode priority"),
        (Ceiling(monthly=1, recovery_percent=51), "recoveryPercent", "from 0 to 50"),
        (Ceiling(hourly=1, node_pool="batch"), "hourly", "shiplap.dev/max-hourly-price"),
        (Ceiling(monthly=1, namespace="shop", mode=CeilingMode.STOP), "mode", "only warns"),
        (Ceiling(hourly=1, namespace="shop"), "hourly", "monthly ceilings only"),
        (Ceiling(monthly=1, namespace="shop", node_pool="batch"), "namespace", "write two"),
    ],
)
def test_mistakes_name_the_field_and_the_way_out(ceiling: Ceiling, field: str, said: str) -> None:
    bounds = [((0, *where), reason) for where, reason in beyond_bounds(ceiling)]
    problems = [*bounds, *ceiling_problems([ceiling], of_account=False)]
    assert [where for where, _ in problems] == [(0, field)]
    assert said in problems[0][1]


def test_the_account_has_no_ceilings_of_pools() -> None:
    (problem,) = ceiling_problems([Ceiling(monthly=1, node_pool="batch")], of_account=True)
    assert problem == ((0, "nodePool"), "belongs to the ceilings of a cluster")
    assert not list(ceiling_problems([Ceiling(monthly=1, mode=CeilingMode.STOP)], of_account=True))


STOP_AT_100 = Ceiling(monthly=100, mode=CeilingMode.STOP)


@pytest.mark.parametrize(
    ("ceiling", "said"),
    [
        (Ceiling(monthly=200, mode=CeilingMode.CHEAPEST), "is never reached: the ceiling of mode stop at $100.00"),
        (Ceiling(monthly=101, mode=CeilingMode.PRIORITY, above_priority=1), "write less than $100.00 here"),
        (Ceiling(monthly=50, mode=CeilingMode.STOP), "there are two ceilings of mode stop here"),
        (Ceiling(monthly=100, mode=CeilingMode.CHEAPEST), ""),
        (Ceiling(monthly=200), ""),
        (Ceiling(hourly=200, mode=CeilingMode.CHEAPEST), ""),
        (Ceiling(monthly=200, mode=CeilingMode.CHEAPEST, node_pool="batch"), ""),
    ],
)
def test_ceilings_that_contradict_each_other_are_told_of(ceiling: Ceiling, said: str) -> None:
    problems = [*ceiling_problems([STOP_AT_100, ceiling], of_account=False)]
    assert [where for where, _ in problems] == ([(1, "monthly")] if said else [])
    assert all(said in reason for _, reason in problems)


def test_several_warnings_and_priorities_are_steps() -> None:
    steps = [Ceiling(monthly=amount) for amount in (10, 20)]
    steps += [Ceiling(monthly=10 + place, mode=CeilingMode.PRIORITY, above_priority=place) for place in (1, 2)]
    assert not list(ceiling_problems([*steps, STOP_AT_100], of_account=False))


def test_amounts_are_read_as_dollars() -> None:
    assert [dollars(amount) for amount in (0, 1, 1_234_567_891)] == ["$0.00", "$0.01", "$1,234.57"]
    assert Ceiling(monthly=1.5).limit_micros == 1_500_000
