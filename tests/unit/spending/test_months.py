"""Months below a ceiling, hour by hour, with late postings, spot that gets dearer, and nodes that end by chance."""

from __future__ import annotations

import pytest

from benchmarks.ceilings import months, table_bytes


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
