"""Gangs under faults: every promise is kept, and requests for gangs are for all or nothing."""

from __future__ import annotations

import pytest

from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.run import Simulation

pytestmark = pytest.mark.thorough


def test_gangs_keep_every_promise_and_are_asked_for_as_a_whole() -> None:
    play = load("gangs")
    run = Simulation(play, 1, draw_faults(play.scenario, 1), play.scenario.hours)
    outcome = run.play()

    assert outcome.violations == ()
    whole = sorted({request.at_least for request in run.compute.requests if request.at_least})
    assert whole[-2:] == [4, 7]
    assert all(request.at_least in (0, request.wanted) for request in run.compute.requests)


def test_requests_under_faults_are_answered_and_end() -> None:
    play = load("gangs-requests")
    outcome = Simulation(play, 3200, draw_faults(play.scenario, 3200), play.scenario.hours).play()

    assert outcome.violations == ()
    told = "\n".join(outcome.lines)
    for request in play.scenario.provisioning_requests:
        assert f"asks for {request.name}-1" in told
        assert f"ends {request.name}-" in told
