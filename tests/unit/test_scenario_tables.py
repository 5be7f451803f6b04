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
        if not re.match(r"\| [\d, ]+ \| `[\w./]+\.py`", line):
            continue
        file = source = ""
        for token in re.findall(r"`([\w./]+\.py|test_\w+)`", line):
            if token.endswith(".py"):
                file, source = token, (FOLDER / token).read_text(encoding="utf-8")
            else:
                assert f"def {token}(" in source, f"{file} has no {token}"
                named += 1
    assert named > least


def test_every_test_named_by_suite_exists() -> None:
    text = (FOLDER / "DISRUPTION_SCENARIOS.md").read_text(encoding="utf-8").partition("## By suite")[2]
    named = re.findall(r"`([\w./]+\.py)::(test_\w+)`", text)
    for file, name in named:
        assert f"def {name}(" in (FOLDER / file).read_text(encoding="utf-8"), f"{file} has no {name}"
    assert len(named) > 70
    for row in [line for line in text.splitlines() if line.startswith("| ")]:
        assert len(row.split(" | ")) == 3, row


def test_every_test_in_the_table_of_aws_exists() -> None:
    named = 0
    for line in (FOLDER / "AWS_SCENARIOS.md").read_text(encoding="utf-8").splitlines():
        for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)\*?`", line):
            source = (FOLDER / file).read_text(encoding="utf-8")
            assert f"def {name}" in source, f"{file} has no {name}"
            named += 1
        for file in re.findall(r"`(tests/[\w/]+\.py)`", line):
            assert (FOLDER.parents[1] / file).exists(), f"there is no {file}"
    assert named > 90
    assert "*open*" not in (FOLDER / "AWS_SCENARIOS.md").read_text(encoding="utf-8")


def test_every_suite_of_the_aws_provider_has_its_row() -> None:
    text = (FOLDER / "AWS_SCENARIOS.md").read_text(encoding="utf-8").partition("## By suite")[2]
    text, _, scenarios = text.partition("## By scenario")
    assert len([line for line in scenarios.splitlines() if "`" in line and line.startswith("| ")]) >= 25
    rows = [line for line in text.splitlines() if line.startswith(("| apis", "| c", "| r", "| b", "| p"))]
    assert len(rows) == 33
    for row in rows:
        assert len(row.split(" | ")) == 3, row
        assert "`" in row or re.search(r"\d", row.rpartition(" | ")[2]), f"no test and no scenario: {row}"
