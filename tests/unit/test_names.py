"""One name for one thing: modules and public classes are told apart by their names alone."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("layers/shiplap/python/shiplap", "src/shiplap_lab", "src/shiplap_cli", "src/shiplap_cdk")

# A fake has the name of the port or the adapter that it stands in for, and a flow's entry that of all entries.
PARALLEL = ("ports", "aws", "fakes")


def _modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py")


def _is_parallel(path: Path) -> bool:
    return not set(path.relative_to(ROOT).parts).isdisjoint(PARALLEL)


def _is_entry(path: Path) -> bool:
    return path.stem == "entry" and path.parents[1].name == "flows"


def test_names_of_modules_are_unique() -> None:
    places = defaultdict(list)
    for path in _modules():
        if not _is_entry(path):
            places[path.stem].append(path)

    twice = {name: found for name, found in places.items() if sum(not _is_parallel(path) for path in found) > 1}

    assert len(places) > 300
    assert twice == {}
    assert all(
        len({part for path in found for part in path.relative_to(ROOT).parts if part in PARALLEL}) == len(found)
        for found in places.values()
        if len(found) > 1
    )


def test_folders_have_at_most_fifteen_modules() -> None:
    counted: dict[Path, int] = defaultdict(int)
    for path in _modules():
        counted[path.parent] += 1

    assert {folder: count for folder, count in counted.items() if count > 15} == {}


def test_names_of_public_classes_are_unique() -> None:
    places = defaultdict(list)
    for path in _modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))

    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_exceptions_of_docstrings_exist() -> None:
    """A reader who wants to catch what a docstring names has to find it."""
    known, said = set(dir(builtins)), []
    for path in [*_modules(), *sorted((ROOT / "functions").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                known |= {alias.asname or alias.name for alias in node.names}
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                said += [(path.stem, name) for name in _raised(ast.get_docstring(node) or "")]

    assert len(said) > 300
    assert [(module, name) for module, name in said if name.split(".")[0] not in known] == []


def _raised(docstring: str) -> Iterator[str]:
    """The exceptions that a docstring names: in a sentence, or one a line in a section."""
    yield from re.findall(r"Raises ([A-Z][\w.]*\w|\w+\.[A-Z]\w+)", docstring)
    for section in re.findall(r"^Raises:\n((?: .*\n?)+)", docstring, re.MULTILINE):
        for names in re.findall(r"^ {4}([\w., ]+):", section, re.MULTILINE):
            yield from names.split(", ")


def test_names_of_test_modules_are_unique() -> None:
    """pytest imports them by their names alone: of two with one name it collects the first only."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []
