"""Every function that serves ProvisioningRequests, killed before and after each of its effects.

A short life of a request is played: it is launched, booked, consumed and deleted, another one is found on nodes that
exist and never consumed. Whatever dies, nothing is launched twice, the answers come, bookings end, and all is well.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from shiplap_lab.scenarios.scenario import Play, ScenarioRequest, Wave, load
from tests.simulation.deaths import Death, Life, broken_by, deaths_of

pytestmark = pytest.mark.thorough

FUNCTIONS = ("schedule", "disrupt")
PARTS = 4


def life_of_requests() -> Play:
    play = load("gangs-requests")
    requests = (
        ScenarioRequest("train", "worker", 3, consumed_after=1.0, runs=2.0),
        ScenarioRequest("found", "worker", 1, at=2.0, is_check=True, consumed_after=-1),
    )
    waves = (Wave("web", 2), Wave("web", 1, at=6.0))
    changed = {"provisioning_requests": requests, "waves": waves, "chaos": 0, "placement": "nominate"}
    return replace(play, scenario=replace(play.scenario, settle_minutes=60.0, **changed))


LIFE_OF_REQUESTS = Life(life_of_requests(), 4, (), 0.1)


def deaths() -> dict[str, tuple[Death, ...]]:
    """Leave out deaths before requests are read: `test_crash_matrix.py` has those."""
    known = deaths_of(LIFE_OF_REQUESTS, FUNCTIONS)
    return {
        name: tuple(item for item in found if any("cluster.named_objects" in point for point in item.path))
        for name, found in known.items()
    }


def test_the_life_of_requests_comes_to_every_stage() -> None:
    outcome = LIFE_OF_REQUESTS.played()
    told = {msgspec.json.decode(line)["what"] for line in outcome.lines}
    assert {"asks for train-1", "ends train-1", "asks for found-1", "ends found-1", "settled"} <= told
    passed = {
        name: {point.partition(" ")[2] for item in found for point in item.path} for name, found in deaths().items()
    }
    assert passed["schedule"] >= {"state.commit", "compute.launch", "state.advance_all", "cluster.write_status"}
    assert passed["disrupt"] >= {"state.commit", "memory.save"}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_dies_requests_are_launched_once_answered_and_ended(function: str, part: int) -> None:
    known = deaths()[function]
    assert len(known) >= PARTS
    assert list(broken_by(LIFE_OF_REQUESTS, known[part::PARTS])) == []
