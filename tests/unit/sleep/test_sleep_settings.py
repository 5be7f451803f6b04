"""Tests the sleep settings in shiplap.yaml: it refuses settings with which nothing would ever wake."""

from __future__ import annotations

import pytest

from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings


def told(*windows: WindowSettings, pools: tuple[str, ...] = ("dev", "test")) -> list[str]:
    return [reason for _, reason in SleepSettings(pools, 3, windows).problems()]


ENDLESS = "would sleep for more than 7 days on end: let it be awake for a minute"


@pytest.mark.parametrize(
    "when", ["daily 00:00-24:00 UTC", "daily 07:00-07:00 Europe/Berlin", "Mon 00:00 - Mon 00:00 UTC"]
)
def test_a_window_that_never_ends_is_refused_for_all_that_it_is_of(when: str) -> None:
    assert told(WindowSettings(when)) == [f"NodePool dev {ENDLESS}", f"NodePool test {ENDLESS}"]
    assert told(WindowSettings(when, node_pools=("test",))) == [f"NodePool test {ENDLESS}"]
    assert told(WindowSettings(when, namespaces=("ci", "a"))) == [f"namespace a {ENDLESS}", f"namespace ci {ENDLESS}"]


def test_windows_that_together_never_end_are_refused() -> None:
    nights, days = WindowSettings("daily 19:00-07:00 UTC"), WindowSettings("daily 07:00-19:00 UTC", node_pools=("dev",))
    assert told(nights, days, WindowSettings("daily 07:00-19:00 UTC", namespaces=("ci",))) == [
        f"NodePool dev {ENDLESS}"
    ]


def test_a_minute_awake_is_enough_and_what_cannot_be_read_is_told_of_by_itself() -> None:
    assert told(WindowSettings("daily 00:01-24:00 UTC"), WindowSettings("Fri 18:00 - Thu 08:00 UTC", ("x",), ())) == [
        "'x' is not armed: name it under `nodePools` of `sleep` too"
    ]
    unreadable, endless = WindowSettings("at night"), WindowSettings("daily 00:00-24:00 UTC")
    first, *others = told(unreadable, endless)
    assert first.startswith("'at night' is not a window")
    assert others == [f"NodePool dev {ENDLESS}", f"NodePool test {ENDLESS}"]


def test_a_sleep_that_no_node_would_leave_for_is_refused() -> None:
    short = "sleeps for less than 15 minutes, for which no node leaves: make it longer"
    assert told(WindowSettings("daily 22:00-22:14 Europe/Berlin", node_pools=("dev",))) == [f"NodePool dev {short}"]
    assert told(WindowSettings("2026-12-24 12:00 - 2026-12-24 12:10 UTC", namespaces=("ci",))) == [
        f"namespace ci {short}"
    ]
    assert told(WindowSettings("daily 22:00-22:15 UTC")) == []


def test_a_short_window_that_another_one_goes_on_from_is_no_short_sleep() -> None:
    assert told(WindowSettings("Sun 23:50-24:00 UTC"), WindowSettings("Mon 00:00-07:00 UTC")) == []
