"""Schedules of budgets."""

from __future__ import annotations

import re

import pytest

from shiplap.manifests.times import parse_cron


def test_five_fields() -> None:
    cron = parse_cron("*/15 9-17/4 1,15 jan-MAR Mon-fri")
    assert cron.minutes == {0, 15, 30, 45}
    assert cron.hours == {9, 13, 17}
    assert cron.days == {1, 15}
    assert cron.months == {1, 2, 3}
    assert cron.weekdays == {1, 2, 3, 4, 5}
    assert (cron.any_day, cron.any_weekday) == (False, False)


def test_open_fields_and_open_steps() -> None:
    cron = parse_cron("5/20 ? * * ?")
    assert cron.minutes == {5, 25, 45}
    assert cron.hours == set(range(24))
    assert (cron.any_day, cron.any_weekday) == (True, True)


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("@annually", "0 0 1 1 *"),
        ("@yearly", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_words(word: str, fields: str) -> None:
    assert parse_cron(word) == parse_cron(fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@wrongly", "known words are"),
        ("@every 1h", "known words are"),
        ("* * * *", "expected five fields"),
        ("* * * * * *", "expected five fields"),
        ("", "expected five fields"),
        ("60 * * * *", "the minute '60' is not a number from 0 to 59"),
        ("* 24 * * *", "the hour '24'"),
        ("* * 0 * *", "the day of the month '0'"),
        ("* * * 13 *", "the month '13'"),
        ("* * * mon *", "the month 'mon'"),
        ("* * * * 7", "the day of the week '7'"),
        ("* * * * freitag", "the day of the week 'freitag' is not a number from 0 to 6, nor one of sun, mon, tue"),
        ("CRON_TZ=Europe/Berlin 0 9 * * 5", "annotation shiplap.dev/disruption-time-zone names the time zone"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "a step that is not a whole number above 0"),
        ("*/x * * * *", "a step that is not a whole number above 0"),
        ("1, * * * *", "the minute ''"),
        ("-1 * * * *", "the minute ''"),
        ("x * * * *", "the minute 'x'"),
    ],
)
def test_what_is_no_schedule(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_cron(text)
