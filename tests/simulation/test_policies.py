"""Policies of consolidation side by side over a day: the small version of `benchmarks/policies.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from shiplap_lab.scenarios.scenario import load

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from policies import DEFAULT, KARPENTER, Figures, missed, play_policy, policies


def test_a_day_costs_no_more_than_by_karpenters_rules_with_no_more_moves_and_no_more_time_pending() -> None:
    play = load("month")
    fewer = [replace(item, low=item.low // 2, high=item.high // 2, step_minutes=60.0) for item in play.scenario.rhythms]
    play = replace(play, scenario=replace(play.scenario, rhythms=tuple(fewer)))
    figures = {policy.name: play_policy(policy, play, 7, 24.0) for policy in policies(())}
    ours, theirs = figures[DEFAULT], figures[KARPENTER]
    assert 0 < ours.bound < ours.dollars
    assert min(ours.moves, theirs.moves) > 0
    assert ours.pending > 0
    assert missed(ours, theirs) == []


def test_what_is_worse_is_said_in_words() -> None:
    ours, theirs = Figures(10.0, 5.0, 30, 2.0), Figures(9.0, 5.0, 40, 1.5)
    assert missed(ours, theirs) == ["10.00 USD instead of 9.00", "2.00 pod hours pending instead of 1.50"]
    assert missed(theirs, theirs) == []
