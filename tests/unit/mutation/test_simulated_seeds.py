"""Tests the seeds of scenarios that are played against a mutant."""

from __future__ import annotations

import pytest

from shiplap_lab.scenarios.scenario import load, names
from tools.mutation import simulated_seeds
from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import CoveredTest
from tools.mutation.simulated_seeds import SCENARIOS, SimulatedSeeds

PATH = "shiplap/flows/x.py"
SOURCE = """
MOST = 3

def f(a):
    if a > MOST:
        return 1
    return 2
"""


@pytest.fixture(autouse=True)
def product(tmp_path, monkeypatch):
    """One file."""
    file = tmp_path / PATH
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    monkeypatch.setattr(simulated_seeds, "PRODUCT", tmp_path)


def at(line: int, function: str = "f") -> Mutant:
    return Mutant("key", PATH, function, line, 0, 1, "a", "b", "kind")


def seed(test: str, seconds: float, *lines: int) -> CoveredTest:
    return CoveredTest(test, seconds, {PATH: lines})


def chosen(mutant: Mutant, most: int, *seeds: CoveredTest) -> list[str]:
    return [item.test for item in SimulatedSeeds(seeds).of(mutant, most)]


def test_only_seeds_that_run_the_line_are_played() -> None:
    seeds = (seed("mixed::0", 1.0, 5, 6), seed("mixed::1", 1.0, 5, 7), seed("races::0", 1.0, 99))
    assert chosen(at(6), 50, *seeds) == ["mixed::0"]
    assert chosen(at(5), 50, *seeds) == ["mixed::0", "mixed::1"]
    assert chosen(at(7), 50, seeds[0]) == []


def test_scenarios_take_turns_the_cheapest_first_and_undisturbed_comes_before_them() -> None:
    seeds = (
        seed("mixed::0", 0.3, 6),
        seed("mixed::1", 0.1, 6),
        seed("races::0", 0.2, 6),
        seed("undisturbed::0", 2.0, 6),
        seed("mixed::2", 0.4, 6),
    )
    assert chosen(at(6), 2, *seeds) == ["undisturbed::0", "mixed::1", "races::0", "mixed::0"]


def test_seeds_are_played_while_they_fit_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_seeds, "MOST_S", 0.35)
    seeds = (seed("mixed::0", 0.1, 6), seed("mixed::1", 0.2, 6), seed("mixed::2", 0.3, 6))
    assert chosen(at(6), 50, *seeds) == ["mixed::0", "mixed::1"]
    assert chosen(at(6), 50, seed("mixed::0", 9.0, 6)) == ["mixed::0"]


def test_a_constant_is_tried_by_seeds_that_use_it() -> None:
    seeds = (seed("mixed::0", 0.1, 5), seed("mixed::1", 0.1, 7))
    assert chosen(at(2, function=""), 50, *seeds) == ["mixed::0"]


def test_all_scenarios_that_are_played_are_bundled() -> None:
    assert set(SCENARIOS) <= set(names())
    assert all(load(name).scenario.images == () for name in SCENARIOS)
    assert "undisturbed" in SCENARIOS
