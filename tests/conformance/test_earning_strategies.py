"""Each strategy of the packer earns its place: there is a batch whose plan is worse without it."""

from __future__ import annotations

import pytest

from benchmarks.planning.packing_strategies import important_left_out, planned, snapshot_at
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.strategies import STRATEGIES

SEED = 4603
BATCHES = {
    "without search": 172,
    "other orders": 90,
    "left out first": 46,
    "free pods last": 107,
    "step by step": 69,
    "joining": 189,
    "by priority": 34,
}
"""Places of batches in the benchmark by the strategy that earns something there."""


def _rank(plan: Plan, snapshot: Snapshot) -> tuple[int, int, float]:
    return important_left_out(plan, snapshot), len(plan.unschedulable), plan.hourly


@pytest.mark.parametrize("name", [strategy.name for strategy in STRATEGIES])
def test_a_plan_is_worse_without_a_strategy(name: str) -> None:
    found = snapshot_at(SEED, BATCHES[name])
    assert found is not None
    _, snapshot = found
    whole = planned(snapshot, STRATEGIES)
    without = planned(snapshot, tuple(strategy for strategy in STRATEGIES if strategy.name != name))
    assert _rank(whole, snapshot) < _rank(without, snapshot)
