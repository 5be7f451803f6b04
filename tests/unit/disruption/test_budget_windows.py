"""Tests the times at which a disruption budget applies, and the number of nodes that it allows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from shiplap.disruption.budgets import UNLIMITED, allowance, is_active
from shiplap.disruption.commands import Reason
from shiplap.manifests.custom_resources import Budget
from shiplap.manifests.shiplap_annotations import DISRUPTION_TIME_ZONE
from tests.builders.pools import pool


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "duration", "moment", "active"),
    [
        ("0 9 * * *", "8h", "2026-11-20T09:00:00", True),
        ("0 9 * * *", "8h", "2026-11-20T16:59:59", True),
        ("0 9 * * *", "8h", "2026-11-20T17:00:00", False),
        ("0 9 * * *", "8h", "2026-11-20T08:59:59", False),
        ("0 22 * * *", "8h", "2026-11-20T03:00:00", True),
        ("0 9 * * mon-fri", "8h", "2026-11-21T10:00:00", False),
        ("0 9 * * mon-fri", "8h", "2026-11-20T10:00:00", True),
        ("0 0 1 * *", "24h", "2026-12-01T13:00:00", True),
        ("0 0 1 * *", "24h", "2026-12-02T00:00:00", False),
        ("0 0 13 * fri", "24h", "2026-11-20T12:00:00", True),
        ("0 0 13 * fri", "24h", "2026-11-13T12:00:00", True),
        ("0 0 13 * fri", "24h", "2026-11-14T12:00:00", False),
        ("0 9 * 6,12 *", "8h", "2026-11-20T10:00:00", False),
        ("0 9 * 6,12 *", "8h", "2026-12-20T10:00:00", True),
        ("@daily", "30m", "2026-11-20T00:29:00", True),
        ("@daily", "30m", "2026-11-20T00:30:00", False),
        ("*/15 * * * *", "5m", "2026-11-20T00:19:00", True),
        ("*/15 * * * *", "5m", "2026-11-20T00:21:00", False),
    ],
)
def test_a_window_opens_at_each_hit_of_its_schedule(schedule: str, duration: str, moment: str, active: bool) -> None:
    assert is_active(Budget(schedule=schedule, duration=duration), at(moment)) is active


@pytest.mark.parametrize(
    ("moment", "active"),
    [("2026-11-20T08:00:00", True), ("2026-11-20T07:59:00", False), ("2026-07-20T07:00:00", True)],
)
def test_a_schedule_is_read_in_its_time_zone(moment: str, active: bool) -> None:
    assert is_active(Budget(schedule="0 9 * * *", duration="1h"), at(moment), "Europe/Berlin") is active


@pytest.mark.parametrize(
    ("zone", "schedule", "moment", "active"),
    [
        # New York skips 02:00 to 03:00 on 11 March 2029; 07:00 UTC is 03:00 there.
        ("America/New_York", "30 2 * * *", "2029-03-11T07:05:00", False),
        ("America/New_York", "30 2 * * *", "2029-03-11T07:35:00", False),
        ("America/New_York", "30 2 * * *", "2029-03-12T06:35:00", True),
        ("America/New_York", "0 3 * * *", "2029-03-11T07:05:00", True),
        ("America/New_York", "30 1 * * *", "2029-03-11T06:35:00", True),
        # It has 01:00 to 02:00 twice on 4 November 2029, first four hours behind UTC and then five.
        ("America/New_York", "30 1 * * *", "2029-11-04T05:35:00", True),
        ("America/New_York", "30 1 * * *", "2029-11-04T06:35:00", True),
        ("America/New_York", "30 1 * * *", "2029-11-04T07:35:00", False),
        ("America/New_York", "0 2 * * *", "2029-11-04T06:05:00", False),
        ("America/New_York", "0 2 * * *", "2029-11-04T07:05:00", True),
        # Lord Howe Island moves its clocks by half an hour: 02:00 to 02:30 is skipped on 7 October 2029.
        ("Australia/Lord_Howe", "15 2 * * *", "2029-10-06T15:20:00", False),
        ("Australia/Lord_Howe", "15 2 * * *", "2029-10-06T15:50:00", False),
        ("Australia/Lord_Howe", "45 2 * * *", "2029-10-06T15:50:00", True),
        # And 01:30 to 02:00 comes twice on 1 April 2029.
        ("Australia/Lord_Howe", "45 1 * * *", "2029-03-31T14:50:00", True),
        ("Australia/Lord_Howe", "45 1 * * *", "2029-03-31T15:20:00", True),
        # Beirut skips midnight on 25 March 2029.
        ("Asia/Beirut", "0 0 * * *", "2029-03-24T22:05:00", False),
        ("Asia/Beirut", "0 1 * * *", "2029-03-24T22:05:00", True),
        # Havana sets its clocks back from 01:00 to 00:00 on 4 November 2029; Asuncion once did so at midnight.
        ("America/Havana", "30 0 * * *", "2029-11-04T04:35:00", True),
        ("America/Havana", "30 0 * * *", "2029-11-04T05:35:00", True),
        ("America/Asuncion", "30 23 * * *", "2020-03-22T02:35:00", True),
        ("America/Asuncion", "30 23 * * *", "2020-03-22T03:35:00", True),
        # Kathmandu is a quarter of an hour off every other clock.
        ("Asia/Kathmandu", "0 9 * * *", "2029-03-24T03:20:00", True),
        ("Asia/Kathmandu", "0 9 * * *", "2029-03-24T03:10:00", False),
    ],
)
def test_changes_of_clocks_skip_and_repeat_hits_as_those_of_a_cron_job(
    zone: str, schedule: str, moment: str, active: bool
) -> None:
    assert is_active(Budget(schedule=schedule, duration="10m"), at(moment), zone) is active


def test_the_smallest_active_budget_counts() -> None:
    closes = {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}
    both = pool(budgets=({"nodes": "50%"}, {"nodes": "3"}, closes))
    assert allowance(both, Reason.EMPTY, 10, 1, at("2026-11-20T08:00:00")).nodes == 2
    closed = allowance(both, Reason.EMPTY, 10, 1, at("2026-11-20T10:00:00"))
    assert closed.nodes == 0
    assert "budgets[2] of NodePool default" in closed.blocking


@pytest.mark.parametrize(
    ("budget", "disrupting", "words"),
    [
        ({"nodes": "0"}, 0, "budgets[0] of NodePool default allows no disruption now (0)"),
        ({"nodes": "0%"}, 2, "budgets[0] of NodePool default allows no disruption now (0%)"),
        ({"nodes": "1"}, 1, "budgets[0] of NodePool default allows 1 of 10 nodes at a time, 1 is leaving or not ready"),
        (
            {"nodes": "15%"},
            3,
            "budgets[0] of NodePool default allows 15% of 10 nodes, that is 2 at a time, 3 are leaving or not ready",
        ),
        ({"nodes": "3"}, 0, "budgets[0] of NodePool default allows 3 of 10 nodes at a time"),
    ],
)
def test_a_budget_says_what_it_allows_and_what_uses_it_up(budget: dict[str, Any], disrupting: int, words: str) -> None:
    assert allowance(pool(budgets=(budget,)), Reason.EMPTY, 10, disrupting, 0.0).blocking == words


def test_percentages_are_rounded_up() -> None:
    assert allowance(pool(budgets=({"nodes": "10%"},)), Reason.DRIFTED, 3, 0, 0.0).nodes == 1


def test_a_budget_binds_only_the_reasons_it_names() -> None:
    only = pool(budgets=({"nodes": "0", "reasons": ["Drifted"]},))
    assert allowance(only, Reason.DRIFTED, 10, 0, 0.0).nodes == 0
    assert allowance(only, Reason.EMPTY, 10, 0, 0.0).nodes == UNLIMITED
    assert allowance(only, Reason.EMPTY, 1_000_000, 0, 0.0).nodes > 1_000_000, "more than any pool has"


@pytest.mark.parametrize(
    "other",
    [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "0", "schedule": "0 9 * * *", "duration": "1h"}],
    ids=["of another reason", "not active"],
)
def test_a_budget_that_does_not_apply_hides_none_behind_it(other: dict[str, Any]) -> None:
    assert allowance(pool(budgets=(other, {"nodes": "3"})), Reason.EMPTY, 10, 1, at("2026-11-20T12:00:00")).nodes == 2


def test_of_two_budgets_that_allow_as_much_the_first_is_named() -> None:
    both = pool(budgets=({"nodes": "3"}, {"nodes": "30%"}))
    assert "budgets[0] of" in allowance(both, Reason.EMPTY, 10, 0, 0.0).blocking


@pytest.mark.parametrize(
    ("budget", "zone"),
    [
        ({"nodes": "many"}, ""),
        ({"nodes": "101%"}, ""),
        ({"nodes": "1", "schedule": "@wrongly", "duration": "1h"}, ""),
        ({"nodes": "1", "schedule": "@daily"}, ""),
        ({"nodes": "1", "schedule": "@daily", "duration": "1d"}, ""),
        ({"nodes": "1", "schedule": "@daily", "duration": "1h"}, "Mars/Olympus"),
        ({"nodes": "1", "schedule": "@daily", "duration": "1h"}, "../etc/passwd"),
    ],
)
def test_what_cannot_be_read_allows_nothing_for_any_reason(budget: dict[str, Any], zone: str) -> None:
    unread = pool(
        budgets=({**budget, "reasons": ["Drifted"]},), annotations={DISRUPTION_TIME_ZONE: zone} if zone else {}
    )
    verdict = allowance(unread, Reason.EMPTY, 10, 0, 0.0)
    assert verdict.nodes == 0
    assert "cannot be read" in verdict.blocking
