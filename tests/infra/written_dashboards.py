"""The dashboard of a synthesised stack."""

from __future__ import annotations

import ast
from pathlib import Path

from shiplap.disruption.progress import CommandState
from shiplap.flows.schedule.launch import CAUSES

ROOT = Path(__file__).parents[2]


def written() -> set[str]:
    """The names of all metrics that the functions' code writes."""
    names = {*CAUSES.values(), *(f"Commands{state}" for state in CommandState)}
    for folder in ("layers/shiplap/python/shiplap/flows", "functions"):
        for path in (ROOT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "count":
                    names |= {item.value for item in ast.walk(call.args[0]) if isinstance(item, ast.Constant)}
    return names
