"""Gangs under faults: every promise is kept, and requests for gangs are for all or nothing."""

from __future__ import annotations

import pytest

from shiplap_lab.judge.promises import Promise
from shiplap_lab.policies.gangs_play import MUTANTS
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import planted
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


FOUND = {
    "plans provisioned requests anew": "was provisioned, and is not any more",
    "books for a minute": "its booking has ended before its time",
    "books for hours": "was to end its booking",
    "books a part": "is provisioned with room for 3 of 4 pods",
    "books before nodes come": ", which does not exist",
    "gives booked room away": ", which leaves: ",
    "asks for requests twice": "asks for 4 pods, and has room launched for",
    "plans no request": "while there was room for it",
    "keeps what was booked": "has been paid for without a pod for",
}
"""What the judge says of each planted defect: one for each of its rules."""


def test_every_planted_defect_of_gangs_has_its_rule() -> None:
    assert FOUND.keys() == MUTANTS.keys()


SEEDS = range(1, 9)
"""Each defect shows in more than half of these worlds. Which worlds, moves with every change of a flow."""


@pytest.mark.parametrize("mutant", ["", *FOUND])
def test_the_judge_notices_planted_defects_of_requests_and_nothing_else(mutant: str) -> None:
    with planted(mutant):
        outcomes = (Simulation(load("gangs-requests"), seed, (), 0.8).play() for seed in SEEDS)
        found = next((outcome.violations[0] for outcome in outcomes if outcome.violations), None)

    if not mutant:
        assert found is None
        return
    assert found is not None
    assert found.promise is (Promise.GANGS if mutant == "keeps what was booked" else Promise.REQUESTS)
    assert FOUND[mutant] in found.detail
