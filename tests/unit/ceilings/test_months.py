"""Months below a ceiling, hour by hour, with late postings, spot that gets dearer, and nodes that end by chance."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from benchmarks.policies import ceilings
from benchmarks.policies.ceilings import Month, months, table_bytes


@pytest.mark.parametrize("learned", [True, False])
def test_a_month_is_passed_only_by_what_running_nodes_got_dearer(learned: bool) -> None:
    for month in months(300, 3, learned=learned):
        assert month.refused > 0
        assert month.launched > 0
        assert month.late == 0
        assert month.over <= month.repriced + 0.01
        assert month.spent > 0.5 * month.ceiling  # what is reserved in vain is given back


def test_an_account_of_five_thousand_nodes_stays_below_ten_megabytes() -> None:
    assert table_bytes(10, 5000, 20, 200) < 10_000_000
    assert table_bytes(1, 5000, 200, 2000) < 400_000 + 5000 * 24  # one ledger fits into an item


KEPT = Month(ceiling=100.0, spent=102.0, repriced=2.0, launched=5, refused=1, late=0)


@pytest.mark.parametrize(
    ("month", "error", "size", "missed"),
    [
        (KEPT, 0.05, 10_000_000, "all bars hold"),
        (replace(KEPT, late=2), 0.05, 1, "missed: 4 launches once spent and reserved had reached the ceiling (bar: 0)"),
        (replace(KEPT, spent=102.4), 0.05, 1, "missed: $0.40 over a ceiling beyond what spot got dearer by (bar: 0)"),
        (KEPT, 0.051, 1, "missed: a forecast is 5.1% off (bar: 5%)"),
        (KEPT, 0.05, 10_010_000, "missed: table state holds 10.01 MB (bar: 10 MB)"),
    ],
)
def test_the_benchmark_fails_where_a_bar_is_missed(
    month: Month,
    error: float,
    size: int,
    missed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["ceilings"])
    monkeypatch.setattr(ceilings, "months", lambda *_, **__: [month])
    monkeypatch.setattr(ceilings, "forecast_error", lambda _: error)
    monkeypatch.setattr(ceilings, "table_bytes", lambda *_: size)
    assert ceilings.main() == (0 if missed == "all bars hold" else 1)
    assert capsys.readouterr().out.splitlines()[-1] == missed
