"""Sleep under faults, before a judge who has rules of sleep of his own; and that he would notice."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from shiplap.policies.sleep.sleep_windows import DAYS, parse_window, spans_of
from shiplap.policies.sleep.sleeping_pods import SleepingPods
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge import sleep_rules
from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.sleep_judge import SleepRule
from shiplap_lab.policies.sleep_scenario import Night, night_of, sleep_of
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import planted
from shiplap_lab.simulation.run import Simulation
from tests.thoroughness import draws

pytestmark = pytest.mark.thorough

START = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())


def test_nights_keep_every_promise_and_nodes_leave_in_them() -> None:
    play = load("sleep")
    outcome = Simulation(play, 1, draw_faults(play.scenario, 1), play.scenario.hours).play()

    assert outcome.violations == ()
    assert outcome.metrics["PodsAsleep"] > 0
    assert outcome.metrics["NodesKeptAwake"] > 0
    assert outcome.metrics["CommandsDone"] > 0


def test_the_judge_notices_that_an_awake_pod_was_evicted_for_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_sleep(_: SleepingPods, __: Pod) -> str:
        return ""

    monkeypatch.setattr(SleepingPods, "awake_because", all_sleep)
    play = load("sleep")

    outcome = Simulation(play, 1, (), 1.0).play()

    assert [violation.promise for violation in outcome.violations[:1]] == [Promise.ASLEEP]


@pytest.mark.parametrize(
    ("mutant", "seed", "promise"),
    [
        ("rehearses nothing", 7, Promise.ASLEEP),
        ("ignores wakes", 44, Promise.ASLEEP),
        ("rehearses for ever", 1, Promise.EXPECTED),
    ],
)
def test_planted_defects_of_sleep_are_found(mutant: str, seed: int, promise: Promise) -> None:
    with planted(mutant):
        outcome = Simulation(load("sleep"), seed, (), 1.8).play()
    assert [violation.promise for violation in outcome.violations] == [promise]


def test_a_narrowed_pool_that_has_rehearsed_sleeps_in_its_own_hours() -> None:
    run = Simulation(load("sleep"), 0, (), 1.8)
    assert run.play().violations == ()
    rule = run.judge.leaving_rules["Asleep"]
    assert isinstance(rule, SleepRule)
    assert any(claim.startswith("dev-") for _, _, claim in rule.left)


def test_seeds_draw_rehearsals_annotations_and_wakes() -> None:
    sleep = sleep_of(load("sleep").scenario)
    nights = [night_of(sleep, seed) for seed in range(50)]

    for drawn in ({item.rehearsed for item in nights}, {bool(item.hours) for item in nights}):
        assert drawn == {True, False}
    assert 0 < sum(item.woken_at_s < inf for item in nights) < 25
    assert all(item.must_sleep == (item.rehearsed and item.woken_at_s == inf) for item in nights)
    assert night_of(None, 1) == Night()


WINDOWS_END_S = {True: 135 * 60, False: 150 * 60}
"""When the last window of `sleep` ends, in seconds after the beginning, by whether an annotation narrows it."""


@pytest.mark.parametrize("seed", [0, 1, 5, 10, 11])
def test_pods_that_slept_have_nodes_soon_after_a_wake_and_when_the_windows_end(seed: int) -> None:
    play = load("sleep")
    night = night_of(sleep_of(play.scenario), seed)
    run = Simulation(play, seed, (), play.scenario.hours)
    begun, waiting = run.loop.now(), dict[float, int]()
    run.observers.append(lambda: waiting.update({run.loop.now() - begun: len(run.pending())}))
    outcome = run.play()

    assert night.rehearsed
    assert outcome.violations == ()
    ends_s = WINDOWS_END_S[bool(night.hours)]
    assert max(number for at, number in waiting.items() if 38 * 60 < at < min(night.woken_at_s, ends_s)) >= 8, "asleep"
    awake = min(night.woken_at_s + 180, ends_s)
    last_wave_settled = 82 * 60
    assert all(not number for at, number in waiting.items() if at >= max(awake, last_wave_settled))
    assert all(not number for at, number in waiting.items() if awake <= at < 70 * 60)


def test_no_node_has_to_leave_in_a_night_in_which_the_api_server_is_away_for_long() -> None:
    sleep = sleep_of(load("sleep").scenario)
    assert night_of(sleep, 14).must_sleep
    assert night_of(sleep, 14, [Fault("api-down", 44, 20), Fault("lose", 44, 62)]).must_sleep
    assert not night_of(sleep, 14, [Fault("api-down", 44, 62)]).must_sleep


def test_the_judge_knows_when_nodes_may_leave() -> None:
    of_pools, of_ci = {"when": "daily 19:00-07:00 UTC"}, {"when": "daily 20:00-06:00 UTC", "namespaces": ["ci"]}
    sleep = {"nodePools": ["dev"], "windows": [of_pools, of_ci]}

    def may(hour: float, begun: float = 12.0, pool: str = "dev", **known: Any) -> list[Any]:
        moments = {key: START + value * 3600 if key == "wokenAt" else value for key, value in known.items()}
        return sleep_rules.may_leave(sleep | moments, START + begun * 3600, START + hour * 3600, 0.0, pool)

    assert may(21) == [of_pools, of_ci]
    assert may(18) == may(21, pool="prod") == []
    assert may(21, rehearsed=False) == may(30, rehearsed=False) == []
    assert may(43.5, rehearsed=False) == [of_pools]
    assert may(21, begun=-1000, rehearsed=False) == [of_pools, of_ci]
    assert may(21, hours={"dev": "daily 22:00-05:00 UTC"}) == [of_ci]
    assert may(23, hours={"dev": "daily 22:00-05:00 UTC"}) == [of_pools, of_ci]
    assert may(20.5, wokenAt=19.5) == may(30.9, wokenAt=19.5) == []
    assert may(19.52, wokenAt=19.5) == [of_pools]
    assert may(43.5, wokenAt=19.5) == [of_pools]
    assert may(21, wokenAt=12) == [of_pools, of_ci]


POD: dict[str, Any] = {"metadata": {"namespace": "web"}, "spec": {"nodeSelector": {"karpenter.sh/nodepool": "dev"}}}


def test_the_judge_knows_which_pods_sleep() -> None:
    sleep = {"nodePools": ["dev", "ci"], "mostNodes": 1}
    of_pools, of_ci, of_namespace = {"when": ""}, {"when": "", "nodePools": ["ci"]}, {"when": "", "namespaces": ["web"]}
    critical = {**POD, "spec": {**POD["spec"], "priorityClassName": "system-node-critical"}}

    assert sleep_rules.sleeps(sleep, [of_pools], "dev", POD)
    assert sleep_rules.sleeps(sleep, [of_namespace], "other", POD)
    assert not sleep_rules.sleeps(sleep, [], "dev", POD)
    assert not sleep_rules.sleeps(sleep, [of_ci], "dev", POD)
    assert not sleep_rules.sleeps(sleep, [of_pools], "ci", POD)
    assert not sleep_rules.sleeps(sleep, [of_pools, of_namespace], "dev", critical)


TIMES = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
DAILY = st.builds("{0} {1}-{2} UTC".format, st.sampled_from(["daily", *DAYS, "Mon-Fri", "Tue-Sun"]), TIMES, TIMES)
WEEKLY = st.builds("{0} {1} - {2} {3} UTC".format, st.sampled_from(DAYS), TIMES, st.sampled_from(DAYS), TIMES)


@settings(max_examples=draws(60))
@given(when=DAILY | WEEKLY, minutes=st.integers(0, 14 * 1440))
def test_the_judge_and_the_functions_read_windows_alike(when: str, minutes: int) -> None:
    at = START + minutes * 60 + 30
    words = when.split()
    if words[:2] == words[3:5]:
        return  # a week long: it is in doubt

    is_open = any(span.start <= at < span.end for span in spans_of(parse_window(when), at, at))

    assert bool(sleep_rules.open_windows({"windows": [{"when": when}]}, at, 0.0)) == is_open
