"""JSON patches: RFC 6902's operations, and refusals that leave the target alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from shiplap.errors import ClusterError
from shiplap_lab.api_server.bodies.json_patches import json_patch

TARGET = {"spec": {"replicas": 1, "list": [1, 2, 3], "a/b": {"c~d": 0}}}


def operation(op: str, path: str, *value: Any, **fields: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **fields, **({"value": value[0]} if value else {})}


@pytest.mark.parametrize(
    ("op", "spec"),
    [
        (operation("replace", "/spec/replicas", 5), {"replicas": 5}),
        (operation("add", "/spec/new", None), {"new": None}),
        (operation("add", "/spec/list/1", 9), {"list": [1, 9, 2, 3]}),
        (operation("add", "/spec/list/-", 9), {"list": [1, 2, 3, 9]}),
        (operation("replace", "/spec/list/0", 9), {"list": [9, 2, 3]}),
        (operation("remove", "/spec/list/2"), {"list": [1, 2]}),
        (operation("replace", "/spec/a~1b/c~0d", 1), {"a/b": {"c~d": 1}}),
        (operation("copy", "/spec/new", **{"from": "/spec/list"}), {"new": [1, 2, 3]}),
        (operation("test", "/spec/replicas", 1), {}),
    ],
)
def test_an_operation_changes_a_copy(op: dict[str, Any], spec: dict[str, Any]) -> None:
    before = deepcopy(TARGET)
    assert json_patch(TARGET, [op]) == {"spec": {**TARGET["spec"], **spec}}
    assert before == TARGET


def test_a_value_moves_and_the_whole_is_replaced() -> None:
    moved = json_patch({"a": 1}, [operation("move", "/b", **{"from": "/a"})])
    assert moved == {"b": 1}
    assert json_patch({"a": 1}, [operation("replace", "", {"c": 2})]) == {"c": 2}


@pytest.mark.parametrize(
    "operations",
    [
        {},
        ["add"],
        [{"op": "add"}],
        [operation("add", "/spec/new")],
        [operation("add", "spec", 1)],
        [operation("add", "/spec/list/9", 1)],
        [operation("remove", "/spec/none")],
        [operation("remove", "/spec/list/-1")],
        [operation("replace", "/spec/none", 1)],
        [operation("add", "/spec/replicas/deep", 1)],
        [operation("add", "/none/deep", 1)],
        [operation("test", "/spec/replicas", 2)],
        [operation("copy", "/spec/new")],
        [operation("copy", "/spec/new", **{"from": "/none"})],
        [operation("tickle", "/spec", 1)],
        [operation("test", "/spec/replicas", 1)] * 1001,
    ],
)
def test_what_is_no_patch_is_refused(operations: Any) -> None:
    with pytest.raises(ClusterError) as caught:
        json_patch(TARGET, operations)
    assert caught.value.status == 422
