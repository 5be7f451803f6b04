"""Copies of the source tree without policies: their files are found by their names, and their lines in the registry."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations, count
from math import comb
from pathlib import Path

import pytest

from tests.thoroughness import FEWEST

ROOT = Path(__file__).parents[2]

_LINKED = ("build", "node_modules", ".venv")
"""Folders that hold nothing of the tree's own, and are too large to copy."""

_MADE = ("cdk.out", "dist", *_LINKED)

_REGISTRY = Path("layers/shiplap/python/shiplap/policies/registry.py")


def belongs(path: Path, policy: str) -> bool:
    """True if a file is the policy's: a folder above it, or the file itself, has the policy's name or begins with it.

    Test modules are named `test_<policy>…`. Dashes count as underscores.
    """
    names = (part.replace("-", "_").partition(".")[0].removeprefix("test_") for part in path.parts)
    return any(name == policy or name.startswith(f"{policy}_") for name in names)


def left_out_together(policies: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the policies that each of few trees lacks: of any two policies one tree has the second without the first.

    So each policy is missed beside each other one, and five trees do for seven policies. Each policy is left out of
    another half of the trees, of which none contains another (Sperner's theorem says how many there are).
    """
    trees = next(number for number in count(1) if comb(number, max(number // 2, 1)) >= len(policies))
    lacking = dict(zip(policies, combinations(range(trees), max(trees // 2, 1)), strict=False))
    return tuple(tuple(policy for policy in policies if tree in lacking[policy]) for tree in range(trees))


def tree_without(policies: Sequence[str], to: Path) -> Path:
    """Copy the source tree into a folder, without the files of policies and without their lines in the registry."""

    def of_policies(folder: str, names: Sequence[str]) -> set[str]:
        return {
            name for name in names if name == "__pycache__" or any(belongs(Path(name), policy) for policy in policies)
        }

    for entry in sorted(ROOT.iterdir()):
        if entry.is_file():
            shutil.copy2(entry, to / entry.name)
        elif not entry.name.startswith(".") and entry.name not in _MADE:
            shutil.copytree(entry, to / entry.name, ignore=of_policies, symlinks=True)
    for folder in _LINKED:
        if (ROOT / folder).exists():
            (to / folder).symlink_to(ROOT / folder)
    if (ROOT / ".mypy_cache").exists():  # types are then checked in seconds
        shutil.copytree(ROOT / ".mypy_cache", to / ".mypy_cache")
    registry = to / _REGISTRY
    contracts = to / "pyproject.toml"
    for policy in policies:
        registry.write_text(without_entry(registry.read_text(), policy))
        contracts.write_text(without_modules(contracts.read_text(), policy))
    return to


def without_entry(registry: str, policy: str) -> str:
    """Return the source of the registry without the entry of a policy."""
    entries = [
        node
        for node in ast.walk(ast.parse(registry))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PolicyEntry"
    ]
    (entry,) = (node for node in entries if isinstance(node.args[0], ast.Constant) and node.args[0].value == policy)
    lines = registry.splitlines(keepends=True)
    return "".join((*lines[: entry.lineno - 1], *lines[entry.end_lineno :]))


def without_modules(contracts: str, policy: str) -> str:
    """Return the contracts of imports without the lines that name modules of a policy."""
    named = re.compile(r'\s*"(shiplap[\w.]*)",\n')
    kept = (
        line
        for line in contracts.splitlines(keepends=True)
        if not ((found := named.fullmatch(line)) and belongs(Path(*found[1].split(".")), policy))
    )
    return "".join(kept)


def run_in(tree: Path, *command: str, limit_s: float) -> None:
    """Run a program of the environment in a tree; the test fails with the end of its output if the program fails.

    Properties draw the fewest examples: what a policy's files are needed for shows in any of them, and the whole
    tree's tests draw all.
    """
    paths = (tree / "layers/shiplap/python", tree / "src", tree)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    for name in [name for name in environment if name.startswith(("PYTEST_", "COV_", "SHIPLAP_TESTS"))]:
        del environment[name]
    environment |= FEWEST
    done = subprocess.run(  # noqa: S603 - our own tools
        [Path(sys.executable).parent / command[0], *command[1:]],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]} without the policies:\n{(done.stdout + done.stderr)[-6000:]}", pytrace=False)
