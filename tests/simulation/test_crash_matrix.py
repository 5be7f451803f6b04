"""Every function, killed before and after each of its effects, at every stage of a node's life; promises are kept.

One short life of a cluster is played: pods come, their nodes join, spot takes nodes back, pods go, nodes are replaced
and emptied. The points at which each function could die are recorded, so an effect that is new is covered by itself.
Then the same life is played with each of these deaths, and must come to its end by sweeps, timers and redelivery alone.
"""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play, PodGroup, Wave, load
from shiplap_lab.simulation.run import RunOutcome, Simulation
from tests.simulation.deaths import Death, Life, broken_by, deaths_of

pytestmark = pytest.mark.thorough

SEED = 4
HOURS = 0.3
LIFE = (Fault("interrupt", 5.0, 0.2, "*", 1.0),)
FUNCTIONS = ("schedule", "lifecycle", "interrupt", "disrupt")
MOST_AT_ONCE = 400
"""Lives per function: the matrix stays a matter of seconds. Nothing is left out while there are fewer."""
PARTS = 4
"""Of the lives of a function, so that parallel workers share them evenly."""


@cache
def life() -> Play:
    """Small, and the same each time."""
    play = load("mixed")
    groups = (PodGroup("web", "900m", "1500Mi", max_unavailable=1), PodGroup("batch", "1", "3Gi"))
    waves = (Wave("web", 4), Wave("batch", 3, at=2.0), Wave("batch", 0, at=8.0), Wave("web", 2, at=9.0))
    changed = {"groups": groups, "waves": waves, "rhythms": (), "chaos": 0, "placement": "nominate", "watched": 0.0}
    scenario = replace(play.scenario, settle_minutes=45.0, **changed)
    pools = tuple(pool for pool in play.manifests["demo"].node_pools if pool.metadata.name == "spot")
    return replace(play, scenario=scenario, manifests={"demo": replace(play.manifests["demo"], node_pools=pools)})


LIFE_OF_NODES = Life(life(), SEED, LIFE, HOURS)


def deaths() -> dict[str, tuple[Death, ...]]:
    """For each function a death for every way of getting to a point."""
    return deaths_of(LIFE_OF_NODES, FUNCTIONS)


def test_the_life_comes_to_every_stage() -> None:
    outcome = LIFE_OF_NODES.played()
    told = [msgspec.json.decode(line) for line in outcome.lines]
    assert {"launched", "spot warning", "disrupted", "instance ended", "settled"} <= {fact["what"] for fact in told}
    passed = {
        name: {point.partition(" ")[2] for item in found for point in item.path} for name, found in deaths().items()
    }
    assert passed["schedule"] >= {"cluster.view", "state.read", "state.commit", "compute.launch", "state.advance_all"}
    assert passed["lifecycle"] >= {
        "cluster.nominate",
        "cluster.patch_node",
        "cluster.evict",
        "compute.terminate",
        "state.advance",
        "bus.publish",
        "timers.remind",
    }
    assert passed["interrupt"] >= {"state.claim_of_instance", "state.advance"}
    assert passed["disrupt"] >= {"state.commit", "memory.load", "memory.save"}


def test_the_quiet_hour_without_its_idle_minutes_has_the_same_effects() -> None:
    short, long = (Simulation(life(), SEED, LIFE, HOURS, skips_quiet=skips).play() for skips in (True, False))
    assert _effects(short) == _effects(long)
    assert (short.spent, short.settled_at, short.ended_at) == (long.spent, long.settled_at, long.ended_at)
    assert short.steps < long.steps * 0.6


def _effects(outcome: RunOutcome) -> list[dict[str, object]]:
    """Return the events with their times, without invocations."""
    events = [msgspec.json.decode(line) for line in outcome.lines]
    return [event for event in events if "invocation" not in event]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_dies_wherever_every_promise_is_kept(function: str, part: int) -> None:
    known = deaths()[function]
    assert PARTS <= len(known) <= MOST_AT_ONCE
    broken = list(broken_by(LIFE_OF_NODES, known[part::PARTS]))
    assert broken == []
