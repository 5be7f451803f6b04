"""One name for one thing: modules and public classes are told apart by their names alone."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
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


def test_names_of_test_modules_are_unique() -> None:
    """pytest imports them by their names alone: of two with one name it collects the first only."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []
