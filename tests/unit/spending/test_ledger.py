"""The ledger: seconds of instance time in exact money, whatever is late, lost or doubled."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shiplap.instances.offerings.instance_rates import Rate, micros_of, rate_of, unknown_rate
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.spending.ledger import (
    HOUR_S,
    PurchasedTime,
    SpendingLedger,
    begin,
    billed_s,
    cost_micros,
    is_due,
    month_end,
    month_of,
    month_start,
    posted,
    running_micros,
)
from tests.builders.claims import node_claim, running_claim

START = int(datetime(2026, 11, 10, tzinfo=UTC).timestamp())


claim = partial(running_claim, hourly=0.36, created_at=START, changed_at=START)


def ended(at: float, **fields: Any) -> NodeClaim:
    return claim(state=ClaimState.GONE, changed_at=at, **fields)


def nobody(_: NodeClaim) -> dict[str, float]:
    return {}


def test_instance_time_is_billed_by_the_second() -> None:
    assert [billed_s(claim(), START + second) for second in (60, 61, 3599)] == [60, 61, 3599]


def test_a_minute_is_billed_at_least_and_only_once() -> None:
    short = ended(START + 5)
    assert billed_s(short, START + 1) == billed_s(short, START + 9999) == 60
    assert billed_s(short, START) == 0
    assert cost_micros(short, START + 60, START + 9999, Rate(360_000)) == 0


def test_a_claim_without_an_instance_costs_nothing() -> None:
    failed = ended(START + 500, instance_id="", instance_type="")
    planned = node_claim(name="b", hourly=1.0, created_at=START)
    assert billed_s(failed, START + 900) == billed_s(planned, START + 900) == 0


def test_an_hour_costs_its_price() -> None:
    assert cost_micros(claim(), START, START + HOUR_S, Rate(micros_of(0.096))) == 96_000


def test_prices_round_up_without_the_noise_of_floating_point() -> None:
    assert micros_of(0.1 + 0.2) == 300_000
    assert micros_of(0.0000011) == 2


def test_an_unknown_price_counts_at_its_estimate_and_a_fifth_more() -> None:
    unpriced = claim(hourly=0.0, requests={"cpu": 3500})
    assert rate_of(unpriced, 0.5) == Rate(600_000, known=False)
    assert rate_of(unpriced) == Rate(4 * 60_000, known=False)
    assert unknown_rate(0.0, 0) == Rate(60_000, known=False)
    assert rate_of(claim(), 9.0) == Rate(360_000)


def test_months_are_those_of_utc() -> None:
    december = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    assert month_of(december) == "2026-12"
    assert month_start(december) == datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    assert month_end(december) == datetime(2027, 1, 1, tzinfo=UTC).timestamp() == december + 1


def test_a_full_hour_is_posted_once() -> None:
    ledger = begin(START)
    assert not is_due(ledger, START + HOUR_S - 1)
    assert is_due(ledger, START + HOUR_S)
    after = posted(ledger, [claim()], START + HOUR_S + 70, rate_of, nobody)
    assert (after.posted_until, after.this_month.spent, after.version) == (START + HOUR_S, 360_000, 1)
    again = posted(after, [claim()], START + HOUR_S + 90, rate_of, nobody)
    assert again.this_month == after.this_month


def test_spot_counts_at_the_price_of_its_hour() -> None:
    node = claim(capacity_type="spot")
    first = posted(begin(START), [node], START + HOUR_S, lambda _: Rate(100_000), nobody)
    second = posted(first, [node], START + 2 * HOUR_S, lambda _: Rate(150_000), nobody)
    assert second.this_month.spent == 250_000
    assert second.hours == (100_000, 150_000)


def test_estimates_are_told_apart() -> None:
    after = posted(begin(START), [claim(), claim("b", hourly=0.0)], START + HOUR_S, rate_of, nobody)
    assert after.this_month.estimated == 60_000
    assert after.this_month.spent == 420_000


def test_the_new_month_begins_with_nothing_and_the_last_one_is_kept() -> None:
    end = month_end(START)
    ledger = posted(begin(end - HOUR_S), [claim()], end, rate_of, nobody)
    assert ledger.spent_in(end - 1).spent == 360_000
    assert ledger.spent_in(end).spent == 0
    assert running_micros(ledger, [claim()], end + 1800, rate_of) == {"default": 180_000}
    later = posted(ledger, [claim()], end + HOUR_S, rate_of, nobody)
    assert later.spent_in(end).spent == 360_000
    assert later.last_month.spent == 360_000


def test_what_runs_since_the_last_month_costs_this_month_from_its_first_second() -> None:
    end = month_end(START)
    unposted = begin(end - 5 * HOUR_S)
    assert running_micros(unposted, [claim()], end + 100, rate_of) == {"default": 10_000}


def test_namespaces_get_the_parts_of_nodes_that_their_pods_request() -> None:
    after = posted(begin(START), [claim()], START + HOUR_S, rate_of, lambda _: {"shop": 0.5, "web": 0.25})
    assert after.this_month.by_namespace == {"shop": 180_000, "web": 90_000}
    assert after.this_month.by_pool == {"default": 360_000}


LIVES = st.lists(
    st.tuples(st.integers(0, 5 * HOUR_S), st.none() | st.integers(0, 4 * HOUR_S), st.integers(1, 3_000_000)), max_size=6
)


@given(lives=LIVES, looks=st.lists(st.integers(0, 9 * HOUR_S), min_size=1, max_size=8))
def test_postings_and_what_runs_since_add_up_to_the_lives_of_all_nodes(
    lives: list[tuple[int, int | None, int]], looks: list[int]
) -> None:
    """However often and late it is posted, the sum differs by roundings only: a millionth per claim and hour."""
    prices = {str(index): Rate(micros) for index, (_, _, micros) in enumerate(lives)}

    def seen_at(at: float) -> list[NodeClaim]:
        born = ((str(index), START + start, life) for index, (start, life, _) in enumerate(lives))
        return [
            ended(since + life, name=name, created_at=since)
            if life is not None and since + life <= at
            else claim(name, created_at=since, changed_at=since)
            for name, since, life in born
            if since <= at
        ]

    ledger = begin(START)
    for look in sorted(looks):
        at = START + look
        if is_due(ledger, at):
            ledger = posted(ledger, seen_at(at), at, lambda node: prices[node.name], nobody)
    at = START + max(looks)
    since = running_micros(ledger, seen_at(at), at, lambda node: prices[node.name])
    total = ledger.this_month.spent + sum(since.values())
    exact = sum(cost_micros(node, START, at, prices[node.name]) for node in seen_at(at))
    assert 0 <= total - exact <= 10 * len(lives)


@given(looks=st.lists(st.integers(0, 100 * HOUR_S), min_size=2, max_size=9))
def test_the_ledger_only_grows(looks: list[int]) -> None:
    ledgers = [begin(START)]
    for look in sorted(looks):
        ledgers.append(posted(ledgers[-1], [claim()], START + look, rate_of, nobody))
    for before, after in pairwise(ledgers):
        assert before.posted_until <= after.posted_until
        assert before.this_month.spent <= after.this_month.spent


def test_an_old_document_is_read_with_its_defaults() -> None:
    assert SpendingLedger() == SpendingLedger(version=0, posted_until=0)


def test_what_was_bought_alike_is_counted_together() -> None:
    claims = [
        claim(name="a", node_pool="general", capacity_type="spot"),
        claim(name="b", node_pool="general", capacity_type="spot", created_at=START + HOUR_S),
        claim(name="c", node_pool="general", capacity_type="on-demand"),
        claim(name="d", node_pool="batch", capacity_type="spot", hourly=0.0),
    ]
    ledger = posted(begin(START), claims, START + 2 * HOUR_S, lambda each: rate_of(each, 0.1), nobody)
    assert ledger.this_month.purchases == (
        PurchasedTime("batch", "spot", True, 2 * HOUR_S, 240_000),
        PurchasedTime("general", "on-demand", False, 2 * HOUR_S, 720_000),
        PurchasedTime("general", "spot", False, 3 * HOUR_S, 1_080_000),
    )
    assert sum(bought.spent for bought in ledger.this_month.purchases) == ledger.this_month.spent
