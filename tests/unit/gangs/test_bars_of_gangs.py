"""The bars of the benchmark of gangs: those that hold, and those that are missed."""

from __future__ import annotations

import pytest

from benchmarks.policies.gangs import missed_bars
from benchmarks.shared.gangs_over_time import Played, Player, drawn_day

KNOWS = Played(started={"a": 10}, dollars={"a": 100.0})


@pytest.mark.parametrize(
    ("day", "missed"),
    [
        (Played(started={"a": 12}, dollars={"a": 100.0}), []),
        (
            Played(started={"a": 12}, given_up={"b": 12}, dollars={"a": 100.0, "b": 0.5}),
            ["0.50 USD for gangs that do not start where one request suffices, the bar is 0"],
        ),
        (Played(started={"a": 12}, given_up={"b": 12}, dollars={"a": 100.0, "b": 0.5}, stepwise={"b"}), []),
        (
            Played(started={"a": 12}, given_up={"b": 12}, dollars={"a": 98.0, "b": 2.0}, stepwise={"b"}),
            ["2.00% of the dollars for gangs that do not start, the bar is 1%"],
        ),
        (
            Played(started={"a": 13}, dollars={"a": 100.0}),
            ["1.30 times the minutes to start of the planner that knows, the bar is 1.25"],
        ),
    ],
)
def test_bars(day: Played, missed: list[str]) -> None:
    assert list(missed_bars([day], [KNOWS])) == missed


def test_halves_are_bought_by_a_planner_that_knows_no_gangs() -> None:
    day = drawn_day(1, minutes=40, gangs=8, mixed=0.0)
    whole, single = Player(day).play(), Player(day, whole=False).play()
    assert whole.in_vain_at_once == 0.0
    assert single.in_vain > whole.in_vain
    assert {*whole.started, *whole.given_up} == {*single.started, *single.given_up}
