"""Product code as text and syntax trees, wherever its files are: names of modules may change, what they say may not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FOLDERS = ("layers", "src", "functions")


@cache
def trees() -> tuple[ast.Module, ...]:
    """The modules of the library, the commands and the functions."""
    files = sorted(file for folder in _FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return tuple(ast.parse(file.read_text(), str(file)) for file in files)


@cache
def nodes() -> tuple[tuple[ast.Module, ast.AST], ...]:
    """Every node of every tree, with its tree."""
    return tuple((tree, node) for tree in trees() for node in ast.walk(tree))


def constants() -> set[str]:
    """Every string that is written in product code."""
    return {node.value for _, node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@cache
def all_calls() -> tuple[tuple[ast.Module, ast.Call], ...]:
    """Every call, with its module."""
    return tuple((tree, node) for tree, node in nodes() if isinstance(node, ast.Call))


def calls(name: str) -> Iterator[tuple[ast.Module, ast.Call]]:
    """Calls of a function or method of this name."""
    yield from _calls_by_name().get(name, ())


@cache
def _calls_by_name() -> dict[str, list[tuple[ast.Module, ast.Call]]]:
    found: dict[str, list[tuple[ast.Module, ast.Call]]] = {}
    for tree, call in all_calls():
        found.setdefault(called(call), []).append((tree, call))
    return found


@cache
def functions() -> tuple[tuple[ast.Module, ast.FunctionDef], ...]:
    """Every function and method, with its module."""
    return tuple((tree, node) for tree, node in nodes() if isinstance(node, ast.FunctionDef))


def called(call: ast.Call) -> str:
    """The last part of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def classes_below(root: str) -> set[str]:
    """Names of classes that derive from one of this name, at any depth, itself included."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for _, node in nodes()
        if isinstance(node, ast.ClassDef)
    }
    found = {root}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found
