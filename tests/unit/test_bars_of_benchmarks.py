"""Tests the reports of benchmarks on their bars for prices: bars that hold, and bars that are missed."""

from __future__ import annotations

import pytest

from shiplap.scheduling.model.scheduling_plan import Plan

pytest.importorskip("highspy", reason="HiGHS, which computes the benchmarks' bounds, is not installed")

from benchmarks.disruption import consolidation
from benchmarks.planning import gpu_batches, packing_cost
from benchmarks.planning.packing_cost import Solutions, Solved


@pytest.mark.parametrize(
    ("gaps", "missed"),
    [
        ([1.0, 3.0, 6.0], []),
        ([1.0, 3.1, 6.0], ["the median is +3.10 %, the bar +3 %"]),
        ([1.0, 2.0, 6.1], ["the worst is +6.10 %, the bar +6 %"]),
    ],
)
def test_batches_with_gpus(gaps: list[float], missed: list[str]) -> None:
    assert gpu_batches.missed_bars(gaps) == missed


def test_consolidation_holds_each_bar_at_some_price_of_a_move() -> None:
    assert consolidation.missed_bars([(574.5, 3007), (567.4, 4000)]) == []
    assert consolidation.missed_bars([(560.9, 3248)]) == ["at most 574.5 USD/h after at most 3,007 moves"]
    assert consolidation.missed_bars([(574.6, 3007), (567.4, 4001)]) == [
        "at most 574.5 USD/h after at most 3,007 moves",
        "at most 567.4 USD/h after at most 4,000 moves",
    ]


def test_prices_of_plans_without_and_with_search() -> None:
    def solved(plain: float, improved: float, name: str = "10,000 diverse, fake") -> Solutions:
        first, second = (Solved(Plan(hourly=hourly), 0.1) for hourly in (plain, improved))
        return Solutions(name, 100.0, first, second)

    assert packing_cost.missed_bars([solved(108.0, 103.0), solved(200.0, 200.0, "1,000 diverse, fake")]) == []
    assert packing_cost.missed_bars([solved(108.1, 103.1)]) == [
        "10,000 diverse, fake: no search +8.10 % over the bound, the bar is +8 %",
        "10,000 diverse, fake: improved +3.10 % over the bound, the bar is +3 %",
    ]
