"""The planner has few constants that tune it and few bounds, and each says where it is from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiplap.scheduling.model.bounds import Bounds

SCHEDULING = Path(__file__).parents[2] / "layers/shiplap/python/shiplap/scheduling"
MOST_CONSTANTS = 60
MOST_BOUNDS = 22


def _is_number(value: ast.expr) -> bool:
    """True for numbers, arithmetic of numbers, and tuples of them; constants derived from others do not count."""
    if isinstance(value, ast.Constant):
        return type(value.value) in (int, float)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    if isinstance(value, ast.Tuple):
        return all(map(_is_number, value.elts))
    return False


def constants(body: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Yield the names of the numbers of a module or a class, each with True if a docstring follows it."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            [target, *_] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            for name in names:
                if isinstance(name, ast.Name) and _is_number(statement.value):
                    yield name.id, explained


def test_the_planner_has_few_constants() -> None:
    found = [
        (path.name, *entry)
        for path in sorted(SCHEDULING.rglob("*.py"))
        for entry in constants(ast.parse(path.read_text()).body)
    ]
    assert len(found) <= MOST_CONSTANTS
    assert [f"{path}: {name}" for path, name, explained in found if not explained] == []


def test_its_bounds_are_few_too() -> None:
    module = ast.parse((SCHEDULING / "model/bounds.py").read_text())
    [struct] = [statement for statement in module.body if isinstance(statement, ast.ClassDef)]
    found = list(constants(struct.body))
    assert [name for name, _ in found] == list(Bounds.__struct_fields__)
    assert len(found) <= MOST_BOUNDS
    assert [name for name, explained in found if not explained] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('A = 2\n"""Two."""', [("A", True)]),
        ("_A, B = 1 << 20, -1.5", [("_A", False), ("B", False)]),
        ("A: int = 3", [("A", False)]),
        ("STEPS = (1, 2)", [("STEPS", False)]),
        ("A = 2 * B", []),
        ('NAME = "text"', []),
        ("a = 1", [("a", False)]),
        ("A = True", []),
    ],
)
def test_numbers_are_counted_and_what_is_derived_is_not(source: str, found: list[tuple[str, bool]]) -> None:
    assert list(constants(ast.parse(source).body)) == found
