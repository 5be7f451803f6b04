"""Sleep under faults, before a judge who has rules of sleep of his own; and that he would notice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from shiplap.sleep.sleep_windows import DAYS, parse_window, spans_of
from shiplap.sleep.sleeping_pods import SleepingPods
from shiplap_lab.judge import sleep_rules
from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.run import Simulation

START = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp())


def test_nights_keep_every_promise_and_nodes_leave_in_them() -> None:
    play = load("nights")
    outcome = Simulation(play, 1, draw_faults(play.scenario, 1), play.scenario.hours).play()

    assert outcome.violations == ()
    assert outcome.metrics["PodsAsleep"] > 0
    assert outcome.metrics["NodesKeptAwake"] > 0
    assert outcome.metrics["CommandsDone"] > 0


def test_the_judge_notices_that_an_awake_pod_was_evicted_for_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_sleep(_: SleepingPods, __: Pod) -> str:
        return ""

    monkeypatch.setattr(SleepingPods, "awake_because", all_sleep)
    play = load("nights")

    outcome = Simulation(play, 1, (), 1.0).play()

    assert [violation.promise for violation in outcome.violations[:1]] == [Promise.ASLEEP]


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


@settings(max_examples=60)
@given(when=DAILY | WEEKLY, minutes=st.integers(0, 14 * 1440))
def test_the_judge_and_the_functions_read_windows_alike(when: str, minutes: int) -> None:
    at = START + minutes * 60 + 30
    words = when.split()
    if words[:2] == words[3:5]:
        return  # a week long: it is in doubt

    is_open = any(span.start <= at < span.end for span in spans_of(parse_window(when), at, at))

    assert bool(sleep_rules.open_windows({"windows": [{"when": when}]}, at, 0.0)) == is_open
