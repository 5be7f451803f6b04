"""Tests take their objects from `tests/builders`, and nothing private and nothing of another test module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
KINDS = {
    *("pod", "pods", "node", "nodes", "claim", "claims", "pool", "pools"),
    *("node_class", "node_classes", "cluster", "clusters", "node_claim", "node_pool"),
}
MOST_LOCAL_BUILDERS = 20
"""Functions of test modules that still build such an object; a builder may only go."""
POLLS_PROGRAMS = ("e2e", "dynamodb_local")
"""Folders whose tests wait for real programs."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax of every module of the tests and benchmarks, by its path in the repository."""
    files = [*TESTS.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in files}


@cache
def nodes() -> dict[Path, list[ast.ImportFrom | ast.Import | ast.Call]]:
    """Return the imports and the calls of every module."""
    return {
        path: [item for item in ast.walk(tree) if isinstance(item, ast.ImportFrom | ast.Import | ast.Call)]
        for path, tree in trees().items()
    }


def imports() -> Iterator[tuple[Path, str, str]]:
    """Yield each name that a module imports, with the module that it is taken from."""
    for path, found in nodes().items():
        for item in found:
            if isinstance(item, ast.ImportFrom):
                yield from ((path, item.module or "", name.name) for name in item.names)
            elif isinstance(item, ast.Import):
                yield from ((path, name.name, "") for name in item.names)


def test_objects_are_built_in_one_place() -> None:
    local = [
        f"{path}: {item.name}"
        for path, tree in trees().items()
        if path.parts[0] == "tests" and path.parts[1] != "builders"
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.name.lstrip("_") in KINDS and not item.decorator_list
    ]
    assert len(local) <= MOST_LOCAL_BUILDERS, "\n".join(local)


def test_no_private_name_is_imported() -> None:
    private = [found for found in imports() if found[2].startswith("_") and not found[2].startswith("__")]
    assert private == []


def test_no_test_module_is_imported() -> None:
    taken = [
        (path, module, name)
        for path, module, name in imports()
        if path.parts[0] == "tests" and any(part.startswith("test_") for part in (*module.split("."), name))
    ]
    assert taken == []


def test_no_test_sleeps() -> None:
    slept = [
        f"{path}:{item.lineno}"
        for path, found in nodes().items()
        if path.parts[0] == "tests" and path.parts[1] not in POLLS_PROGRAMS
        for item in found
        if isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and ast.unparse(item.func) in ("time.sleep", "asyncio.sleep")
    ]
    assert slept == []
