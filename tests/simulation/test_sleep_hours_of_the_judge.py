"""The judge of sleep reads windows in any time zone, and lets pods wait that sleep when a run ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.policies.sleep.sleep_windows import DAYS, parse_window, spans_of
from shiplap_lab.judge import sleep_rules
from shiplap_lab.judge.sleep_judge import SleepRule
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.run import Simulation
from tests.thoroughness import draws


def second(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def is_open(when: str, at: float) -> bool:
    return bool(sleep_rules.open_windows({"windows": [{"when": when}]}, at, 0.0))


@pytest.mark.parametrize(
    ("when", "opens", "closes"),
    [
        ("Mon-Thu 19:00-07:00 Europe/Berlin", "2026-01-05 18:00", "2026-01-06 06:00"),
        ("Sat 22:00-07:00 Europe/Berlin", "2026-03-28 21:00", "2026-03-29 05:00"),
        ("Sat 22:00-07:00 Europe/Berlin", "2026-10-24 20:00", "2026-10-25 06:00"),
        ("Sun 02:30-07:00 Europe/Berlin", "2026-03-29 01:00", "2026-03-29 05:00"),
        ("Sun 02:30-07:00 Europe/Berlin", "2026-10-25 00:30", "2026-10-25 06:00"),
        ("Fri 19:00 - Mon 07:00 America/New_York", "2026-03-07 00:00", "2026-03-09 11:00"),
        ("2026-12-24 12:00 - 2026-12-27 07:00 Asia/Kolkata", "2026-12-24 06:30", "2026-12-27 01:30"),
        ("Sat-Sun,Wed 8:00 - 24:00 UTC", "2026-01-07 08:00", "2026-01-08 00:00"),
    ],
)
def test_a_window_opens_and_closes_by_the_clock_of_its_zone(when: str, opens: str, closes: str) -> None:
    begin, end = second(opens), second(closes)
    assert [is_open(when, at) for at in (begin - 1, begin, end - 1, end)] == [False, True, True, False]


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
TIMES = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
WINDOWS = st.one_of(
    st.builds(
        "{0} {1}-{2} {3}".format, st.sampled_from(["daily", *DAYS, "Sat-Mon", "Mon-Wed,Fri"]), TIMES, TIMES, ZONES
    ),
    st.builds("{0} {1} - {2} {3} {4}".format, st.sampled_from(DAYS), TIMES, st.sampled_from(DAYS), TIMES, ZONES),
)


@settings(max_examples=draws(60), deadline=None)
@given(
    when=WINDOWS,
    day=st.sampled_from(["2026-01-05", "2026-03-28", "2026-04-04", "2026-10-24", "2026-11-01"]),
    minutes=st.integers(0, 2 * 1440),
)
def test_the_judge_and_the_functions_read_windows_of_all_zones_alike(when: str, day: str, minutes: int) -> None:
    at = second(day) + minutes * 60 + 30
    assert is_open(when, at) == any(span.start <= at < span.end for span in spans_of(parse_window(when), at, at))


def test_a_pod_that_any_pool_would_take_sleeps_when_all_of_them_do() -> None:
    window, pod = {"when": "daily 19:00-07:00 UTC"}, {"metadata": {"namespace": "web"}, "spec": {}}
    sleep: dict[str, Any] = {"nodePools": ["dev", "ci"], "all": ["ci", "dev"], "mostNodes": 1, "windows": [window]}
    assert sleep_rules.sleeps(sleep, [window], "dev", pod)
    assert not sleep_rules.sleeps(sleep | {"all": ["ci", "dev", "web"]}, [window], "dev", pod)
    assert not sleep_rules.sleeps(sleep, [window | {"nodePools": ["dev"]}], "dev", pod)
    assert SleepRule(sleep, lambda: second("2026-01-05 20:00"), 0.0).lets_wait(pod)
    assert not SleepRule(sleep, lambda: second("2026-01-05 18:00"), 0.0).lets_wait(pod)


def test_a_run_that_ends_in_a_window_counts_the_pods_that_sleep() -> None:
    play = load("sleep")
    windows = [{"when": "daily 23:35-07:00 Europe/Berlin", "nodePools": ["dev"]}]
    assert play.scenario.sleep is not None
    written = {**play.scenario.sleep, "windows": windows, "hours": {}, "rehearsed": 1.0, "woken": 0.0}
    scenario = replace(play.scenario, sleep=written)
    outcome = Simulation(replace(play, scenario=scenario), 1, (), 1.2).play()
    assert outcome.violations == ()
    assert outcome.asleep >= 9
