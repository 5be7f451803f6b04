"""The threat model in docs/explanation/security.md: every actor is there, and every test that a row names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """The cells of each row of the table; a row without an actor belongs to the one above."""
    text = (ROOT / "docs" / "explanation" / "security.md").read_text()
    table = text.partition("## Threat model")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:1] == "|"]
    return cells[2:]


def test_every_actor_of_the_model_is_there() -> None:
    actors = [row[0] for row in rows() if row[0]]
    assert actors == [
        "a tenant with pods",
        "an author of manifests",
        "a kubelet",
        "any principal of the account",
        "a hostile API server",
        "an author of a kubeconfig",
        "an author of a manifest file",
    ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[1])[:60])
def test_what_is_defended_names_tests_that_exist(row: list[str]) -> None:
    _, _, defended_by, not_defended, tests = row
    named = _NAMED.findall(tests)
    if defended_by == "nothing":
        assert not_defended != "none"
        assert not named
        return
    assert len(named) == len(tests.split("<br>")) > 0
    for file, name in named:
        found = {
            item.name for item in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(item, ast.FunctionDef)
        }
        assert name in found, f"{file} has no {name}"
