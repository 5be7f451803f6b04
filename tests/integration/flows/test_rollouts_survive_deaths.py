"""A drift with rollouts, in which each function dies once before and after each of its effects."""

from __future__ import annotations

from functools import cache

import pytest

from shiplap_lab.fakes.faults import Crash
from tests.integration.flows.rollouts_stage import RolloutStage

STAYS = {"shiplap.dev/rollout": "stay"}
PARTS = 4


def running() -> RolloutStage:
    """Two Deployments on one node: one of a single pod, one whose budget allows no eviction."""
    stage = RolloutStage()
    stage.guard("api", maxUnavailable=0)
    stage.deploy("web", annotations=STAYS, cpu="100m")
    stage.deploy("api", 2, annotations=STAYS, cpu="100m")
    stage.settle()
    stage.faults.clear()
    return stage


@cache
def deaths() -> tuple[tuple[str, int], ...]:
    """Each point that is passed, and how often: the first three times and the last one count."""
    stage = running()
    stage.drift()
    stage.settle()
    points = stage.faults.points
    return tuple(
        (point, nth)
        for point in sorted(set(points))
        for nth in sorted({1, 2, 3, points.count(point)})
        if nth <= points.count(point)
    )


def die(point: str, nth: int) -> tuple[int, dict[str, int], dict[str, int]]:
    """Play a drift in which a function dies: crashes, seconds without an endpoint, restarts."""
    stage = running()
    when, _, effect = point.partition(" ")
    died = list[str]()

    def crash() -> None:
        died.append(point)
        raise Crash(point)

    stage.faults.on("before" if when == "before" else "after", effect, crash, nth=nth)
    before = stage.nodes_of("web") | stage.nodes_of("api")
    stage.drift()
    stage.settle()
    assert (stage.nodes_of("web") | stage.nodes_of("api")).isdisjoint(before), point
    return len(died), dict(stage.missing), {name: stage.restarts(name) for name in ("api", "web")}


def test_the_life_comes_to_a_restart() -> None:
    points = {point for point, _ in deaths()}
    assert {
        f"{when} cluster.{effect}" for when in ("before", "after") for effect in ("annotate_template", "workload")
    } < points
    assert {"after cluster.publish", "before state.advance", "after compute.terminate"} < points


@pytest.mark.parametrize("point", ["before cluster.annotate_template", "after cluster.annotate_template"])
@pytest.mark.parametrize("nth", [1, 2])
def test_whoever_dies_at_a_restart_restarts_once(point: str, nth: int) -> None:
    assert die(point, nth) == (1, {}, {"api": 1, "web": 1})


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_wherever_a_function_dies_nobody_is_missing_and_nothing_restarted_twice(part: int) -> None:
    broken = [(death, end) for death in deaths()[part::PARTS] if (end := die(*death)) != (1, {}, {"api": 1, "web": 1})]
    assert broken == []
