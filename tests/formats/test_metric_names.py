"""Names, units and dimensions of metrics: dashboards and alarms of users name them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from tests.formats.golden import Golden
from tests.formats.sources import calls, classes_below, code

_NAME = re.compile(r"[A-Z][A-Za-z]+")


def names_of(expression: ast.expr) -> Iterator[str]:
    """Constant names that an expression can be; a pattern for one that is put together."""
    match expression:
        case ast.Constant(value=str() as name):
            yield name
        case ast.IfExp(body=body, orelse=orelse):
            yield from names_of(body)
            yield from names_of(orelse)
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)


def counted() -> dict[str, list[Any]]:
    """Metrics by name, with what each of their calls says of unit and dimensions."""
    found: dict[str, list[Any]] = {}
    for _, call in calls("count"):
        for name in names_of(call.args[0]) if call.args else ():
            if _NAME.fullmatch(name.replace("*", "")):
                said = (_unit(call), _dimensions(call))
                if said not in found.setdefault(name, []):
                    found[name].append(said)
    return {
        name: [{"unit": unit, "dimensions": list(dimensions)} for unit, dimensions in sorted(said)]
        for name, said in found.items()
    }


def _unit(call: ast.Call) -> str:
    given = call.args[2:3] + [keyword.value for keyword in call.keywords if keyword.arg == "unit"]
    return given[0].value if given and isinstance(given[0], ast.Constant) else "Count"  # type: ignore[return-value]


def _dimensions(call: ast.Call) -> tuple[str, ...]:
    """Keys of a literal; a call stands for the dimensions of a cluster, the only ones that have a function."""
    for keyword in call.keywords:
        if keyword.arg == "dimensions":
            if isinstance(keyword.value, ast.Dict):
                return tuple(sorted(key.value for key in keyword.value.keys if isinstance(key, ast.Constant)))  # type: ignore[misc]
            return tuple(sorted({"cluster", "pool", "tier"})) if isinstance(keyword.value, ast.Name) else ("cluster",)
    return ()


IN_TABLES = (
    "CommandsDone",
    "CommandsRemoving",
    "CommandsUndone",
    "FailedForAddresses",
    "FailedForCapacity",
    "FailedForConfiguration",
    "FailedForQuota",
    "FailedForThrottling",
    "FailedForUnknown",
    "SnapshotsNotKept",
    "SnapshotsTooLarge",
    "SnapshotsUnreadable",
)
"""Metrics whose calls take the name from a table, or put it together."""


def test_metrics_that_are_counted(golden: Golden) -> None:
    put_together = {name for name in IN_TABLES if name.startswith("Commands")}
    assert set(IN_TABLES) - put_together <= code().constants
    assert {name.removeprefix("Commands") for name in put_together} <= code().constants
    golden.holds("metrics", counted() | {name: [{"unit": "Count", "dimensions": []}] for name in IN_TABLES})


def test_errors_that_are_counted_by_their_class(golden: Golden) -> None:
    """An invocation that ends with an error counts a metric of the class's name."""
    golden.holds("metrics-of-errors", classes_below("ShiplapError"))
