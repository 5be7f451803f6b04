"""Product code as syntax trees, wherever its files are: names of modules may change, what they say may not."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_FOLDERS = ("layers", "src", "functions")


class Code(NamedTuple):
    """The code of the library, the commands and the functions; calls by the last part of the called name."""

    calls: dict[str, list[tuple[ast.Module, ast.Call]]]
    functions: list[tuple[ast.Module, ast.FunctionDef]]
    classes: list[ast.ClassDef]
    constants: set[str]


@cache
def code() -> Code:
    """All of it, read once."""
    found = Code(defaultdict(list), [], [], set())
    for file in sorted(file for folder in _FOLDERS for file in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(file.read_text(), str(file))
        for node in ast.walk(tree):
            match node:
                case ast.Call():
                    found.calls[called(node)].append((tree, node))
                case ast.FunctionDef():
                    found.functions.append((tree, node))
                case ast.ClassDef():
                    found.classes.append(node)
                case ast.Constant(value=str() as text):
                    found.constants.add(text)
    return found


def all_calls() -> Iterator[tuple[ast.Module, ast.Call]]:
    """Every call, with its module."""
    return (entry for entries in code().calls.values() for entry in entries)


def calls(name: str) -> list[tuple[ast.Module, ast.Call]]:
    """Calls of a function or method of this name, with their modules."""
    return code().calls.get(name, [])


def called(call: ast.Call) -> str:
    """The last part of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def classes_below(root: str) -> set[str]:
    """Names of classes that derive from one of this name, at any depth, itself included."""
    bases = {node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases} for node in code().classes}
    found = {root}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found
