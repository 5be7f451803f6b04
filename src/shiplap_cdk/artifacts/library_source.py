"""Sources of the library as its layer holds them: for the lines of stack traces, so without docstrings."""

from __future__ import annotations

import ast


def without_docstrings(source: str) -> str:
    """Leave the lines of docstrings, and of strings that describe a constant, empty. All other lines keep their place.

    A body needs a statement, so `...` stands for a docstring that was the only one.
    """
    lines = source.split("\n")
    for block in ast.walk(ast.parse(source)):
        body = getattr(block, "body", None)
        for statement in body if isinstance(body, list) else ():
            if _is_description(statement) and _stands_alone(statement, lines):
                first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
                lines[first:last] = [""] * (last - first)
                if body == [statement]:
                    lines[first] = " " * statement.col_offset + "..."
    return "\n".join(lines)


def _is_description(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _stands_alone(statement: ast.stmt, lines: list[str]) -> bool:
    """True if the statement's lines hold nothing else."""
    before = lines[statement.lineno - 1].encode()[: statement.col_offset]
    after = lines[(statement.end_lineno or statement.lineno) - 1].encode()[statement.end_col_offset :]
    return not before.strip() and not after.strip()
