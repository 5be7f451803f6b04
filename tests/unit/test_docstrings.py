"""Docstrings are sentences: hardly any begins with a clause that stands for a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLAUSE = re.compile(r"(What|Whether|Those|How|Why|Which|When|Where|Who)\b")
MOST_PER_CENT = 2


def docstrings(folder: Path) -> Iterator[str]:
    """Yield every docstring of a folder with its place."""
    for path in sorted(folder.rglob("*.py")):
        waiting: list[ast.AST] = [ast.parse(path.read_text())]
        while waiting:
            node = waiting.pop()
            waiting += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.relative_to(ROOT)}: {text}"


@pytest.mark.parametrize(
    "folder",
    [
        "layers/shiplap",
        "src/shiplap_cli",
        "src/shiplap_cdk",
        "src/shiplap_lab",
        "tests",
        "benchmarks",
        "tools",
        "action",
    ],
)
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    found = list(docstrings(ROOT / folder))
    clauses = [entry for entry in found if CLAUSE.match(entry.partition(": ")[2])]
    assert found
    assert len(clauses) * 100 <= MOST_PER_CENT * len(found), "\n".join(clauses[:20])
