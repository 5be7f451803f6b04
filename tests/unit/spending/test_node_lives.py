"""Tests the lives of nodes, learned from nodes that ended and from nodes that still run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shiplap.spending.node_lives import CLASSES, NodeLives

HOUR_S, DAY_S = 3600, 86_400


def test_a_few_lives_say_nothing() -> None:
    assert NodeLives().after([HOUR_S] * 19, []).p95_s() is None


def test_nineteen_of_twenty_lives_are_no_longer() -> None:
    known = NodeLives().after([HOUR_S] * 95 + [DAY_S] * 5, []).p95_s()
    assert known is not None
    assert HOUR_S <= known <= HOUR_S * 9 / 8


def test_nodes_that_still_run_count_with_their_age() -> None:
    """Twenty short lives beside as many nodes that are a day old: the pool is not one of short lives."""
    assert NodeLives().after([HOUR_S] * 20, [DAY_S] * 20).p95_s() is None


def test_young_nodes_say_nothing_about_long_lives() -> None:
    known = NodeLives().after([HOUR_S] * 40, [60] * 40).p95_s()
    assert known is not None
    assert known <= HOUR_S * 9 / 8


def test_ages_are_those_of_now() -> None:
    once = NodeLives().after([HOUR_S] * 30, [DAY_S] * 30)
    assert once.after([], [60]).p95_s() == NodeLives().after([HOUR_S] * 30, [60]).p95_s()


def test_lives_longer_than_a_month_are_not_reserved_by_their_length() -> None:
    assert NodeLives().after([40 * DAY_S] * 50, []).p95_s() is None


def test_old_counts_fade() -> None:
    old = NodeLives().after([DAY_S] * 2001, [])
    assert sum(old.ended) == 1000
    assert NodeLives().after([HOUR_S] * 2001, []).after([DAY_S] * 900, []).p95_s() is not None


@given(lives=st.lists(st.integers(1, 20 * DAY_S), min_size=20, max_size=200))
def test_where_all_have_ended_it_is_the_quantile_of_their_lives(lives: list[int]) -> None:
    known = NodeLives().after(lives, []).p95_s()
    assert known is not None
    assert sum(life <= known for life in lives) >= 0.95 * len(lives) - 1e-9
    shorter = max((bound for bound in CLASSES if bound < known), default=0)
    assert sum(life <= shorter for life in lives) < 0.95 * len(lives) + 1e-9
