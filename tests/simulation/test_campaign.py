"""A short campaign, the bundled scenarios, and what makes a run worth believing: it can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shiplap.simulation.campaign import run
from shiplap.simulation.scenario import load

SEEDS = (*range(25), 92, 333)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_whatever_goes_wrong(seed: int) -> None:
    outcome = run(load("mixed"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.launched
    assert outcome.faults


def test_a_draining_node_that_waits_for_its_users_is_no_unrest() -> None:
    """A pod that must not be disrupted came to it before it was cordoned."""
    outcome = run(load("mixed"), 25)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    play = load("mixed")
    assert run(play, 3).trace == run(play, 3).trace
    assert run(play, 3).trace != run(play, 4).trace


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    code = "from shiplap.simulation.campaign import run; from shiplap.simulation.scenario import load; "
    code += "print(run(load('mixed'), 5).trace)"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    assert told.stdout.strip() == run(load("mixed"), 5).trace
