"""The tables of scenarios name only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "conformance"


@pytest.mark.parametrize(("table", "least"), [("SCENARIOS.md", 80), ("DISRUPTION_SCENARIOS.md", 45)])
def test_every_test_in_the_table_exists(table: str, least: int) -> None:
    named = 0
    for line in (FOLDER / table).read_text(encoding="utf-8").splitlines():
        found = re.match(r"\| [\d, ]+ \| `([\w./]+\.py)`(.*)", line)
        if found is None:
            continue
        source = (FOLDER / found[1]).read_text(encoding="utf-8")
        for name in re.findall(r"`(test_\w+)`", found[2]):
            assert f"def {name}(" in source, f"{found[1]} has no {name}"
            named += 1
    assert named > least
