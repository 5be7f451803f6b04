"""Tests the report of the spot risk benchmark on its bar, which is met, and on its target, which is not."""

from __future__ import annotations

import pytest

from benchmarks.policies import spot_risk
from benchmarks.policies.spot_risk import Compared, Figures


def test_worthless_evidence_that_costs_too_much_misses_the_bar() -> None:
    markets = [
        Compared("bursts, cheap, seed 1", 0.05, 0.0047, 0.005),
        Compared("bursts, deep, seed 2", -0.05, 0.0, 0.0051),
    ]
    assert spot_risk.missed_bars(markets[:1]) == []
    assert spot_risk.missed_bars(markets) == [
        "bursts, deep, seed 2: exchanged evidence costs +0.51% of dollars (bar: +0.5%)"
    ]


def test_the_target_is_only_printed() -> None:
    reached, dearer, too_few = (Compared("", -0.3, 0.0, 0.0), Compared("", -0.4, 0.001, 0.0), Compared("", -0.29, 0, 0))
    text = spot_risk.target_text([reached, dearer, too_few])
    assert text == "target of -30% interruptions at no more dollars: reached in 1 of 3"


@pytest.mark.parametrize(("dollars", "missed"), [(100.5, False), (100.6, True)])
def test_the_benchmark_fails_where_the_bar_is_missed(
    dollars: float, missed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Played:
        def __init__(self, *arguments: object) -> None:
            self.arm = arguments[3]

        def play(self, _: int) -> Figures:
            spent = dollars if self.arm == "exchanged" else 100.0
            return Figures(interruptions=1.0, node_hours=10.0, dollars=spent, planned=100.0)

    monkeypatch.setattr("sys.argv", ["spot_risk", "--kinds", "bursts", "--fillings", "0"])
    monkeypatch.setattr(spot_risk, "Account", Played)
    monkeypatch.setattr(spot_risk, "SpotMarket", lambda *_: None)
    assert spot_risk.main() == missed
    assert capsys.readouterr().out.splitlines()[-1].startswith("missed: bursts" if missed else "the bar holds")
