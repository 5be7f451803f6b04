"""Tests the time that offerings rest after failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.instances.offerings.unavailability import (
    LONGEST_WAIT_S,
    after_failure,
    launch_budget,
    quota_of,
    remembered_until,
    wait_s,
)


def test_waits_double_from_three_minutes_to_an_hour() -> None:
    assert [wait_s(failures) for failures in (1, 2, 3, 4, 5, 6, 100)] == [180, 360, 720, 1440, 2880, 3600, 3600]


def test_nothing_known_starts_at_one() -> None:
    assert after_failure(0, 0.0, 50.0) == (1, 230.0)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(999.0, (2, 1000.0), id="still resting: the same outage"),
        pytest.param(1000.0, (3, 1720.0), id="fails again at once"),
        pytest.param(1360.0, (3, 2080.0), id="fails again within one more wait"),
        pytest.param(1360.5, (1, 1540.5), id="later: news"),
    ],
)
def test_a_failure_repeats_or_is_news(now: float, expected: tuple[int, float]) -> None:
    assert after_failure(2, 1000.0, now) == expected


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=30))
def test_however_failures_come_the_rest_is_bounded_and_never_shortened(gaps: list[float]) -> None:
    failures, until, now = 0, 0.0, 1_000_000.0
    for gap in gaps:
        now += gap
        before = until
        failures, until = after_failure(failures, until, now)
        assert now < until <= max(before, now + LONGEST_WAIT_S)
        assert until >= before
        assert failures >= 1
        assert remembered_until(failures, until) > until


@pytest.mark.parametrize(
    ("instance_type", "quota"),
    [
        ("m5.large", "standard"),
        ("c7i-flex.large", "standard"),
        ("im4gn.large", "standard"),
        ("g5.xlarge", "g"),
        ("gr6.4xlarge", "g"),
        ("p5.48xlarge", "p"),
        ("inf2.xlarge", "inf"),
        ("u-6tb1.112xlarge", "high-memory"),
        ("x2idn.16xlarge", "x"),
        ("zz9.large", "standard"),
    ],
)
def test_types_count_towards_the_quota_of_their_group(instance_type: str, quota: str) -> None:
    assert quota_of(instance_type) == f"quota:{quota}"


def test_budgets_halve_down_to_one() -> None:
    assert [launch_budget(failures) for failures in (0, 1, 2, 3, 6, 7, 1000)] == [100, 50, 25, 12, 1, 1, 1]
