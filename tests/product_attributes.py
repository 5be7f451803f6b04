"""Finds the fields of structs that product code reads: the names of all attributes in its source."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PRODUCT = ("layers/shiplap/python/shiplap", "functions", "src/shiplap_cli")


@cache
def attributes_read() -> frozenset[str]:
    """Names that stand behind a dot where a value is read, as `weight` does in `pool.spec.weight`."""
    return frozenset(
        node.attr
        for folder in _PRODUCT
        for path in (_ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )
