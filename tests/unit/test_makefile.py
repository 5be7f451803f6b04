"""Tests the commands that targets of the Makefile would run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["simulate-long"], "shiplap lab simulate mixed --seeds 20000"),
        (["simulate-long", "SCENARIO=unkind", "SEEDS=5"], "shiplap lab simulate unkind --seeds 5"),
        (["deploy-local"], "shiplap lab dev --once --scenario flex-first"),
        (["deploy-local", "SCENARIO=races"], "shiplap lab dev --once --scenario races"),
    ],
)
def test_each_target_has_a_scenario_of_its_own(arguments: list[str], command: str) -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "SCENARIO"))}
    told = subprocess.run(["make", "-n", *arguments], cwd=ROOT, env=ours, capture_output=True, text=True, check=True)  # noqa: S603, S607
    assert command in told.stdout
