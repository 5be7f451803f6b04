"""Every field of the CRDs of upstream's newest release is a field of ours, with the same bounds, and no other is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from shiplap.manifests.custom_resources import CapacityBufferSpec, EC2NodeClassSpec, NodeOverlaySpec, NodePoolSpec
from shiplap.manifests.decoding import Constraint
from tests.crds.schemas import ENTRY, ITEM, Schema, inner_schemas, schema_of

SPECS = {
    "NodePool": NodePoolSpec,
    "EC2NodeClass": EC2NodeClassSpec,
    "NodeOverlay": NodeOverlaySpec,
    "CapacityBuffer": CapacityBufferSpec,
}
BY_RULE = {"taints", "startupTaints"}
"""Fields whose type Shiplap shares with Kubernetes' Node; rules of the NodePool check what is in them."""
OURS = {"requirements.[].minValues": "shared with NodePools; refused by a rule of NodeOverlays"}
"""Fields of a shared type that one of the CRDs does not have."""

_BOUNDS = {
    "minimum": "least",
    "maximum": "most",
    "maxLength": "longest",
    "maxItems": "most_entries",
    "maxProperties": "most_entries",
    "minItems": "fewest",
    "minLength": "shortest",
}
_LARGEST = 2**31 - 1


def fields_there(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every place of a schema but those that hold anything."""
    for step, inner in inner_schemas(schema):
        here = f"{path}.{step}".lstrip(".")
        if inner.get("x-kubernetes-preserve-unknown-fields") and step == ENTRY:
            continue
        yield here, inner
        if step not in BY_RULE:
            yield from fields_there(inner, here)


def fields_here(shape: inspect.Type, path: str = "") -> Iterator[tuple[str, Constraint]]:
    """Every place of our type, with what is demanded there."""
    match shape:
        case inspect.Metadata(type=of):
            yield from fields_here(of, path)
        case inspect.UnionType(types=types):
            for of in types:
                yield from fields_here(of, path)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _place(field.type, f"{path}.{field.encode_name}", field.encode_name in BY_RULE)
        case inspect.VarTupleType(item_type=of):
            yield from _place(of, f"{path}.{ITEM}")
        case inspect.DictType(value_type=of) if not isinstance(of, inspect.AnyType):
            yield from _place(of, f"{path}.{ENTRY}")


def _place(shape: inspect.Type, path: str, is_by_rule: bool = False) -> Iterator[tuple[str, Constraint]]:
    yield path.lstrip("."), _constraint_of(shape)
    if not is_by_rule:
        yield from fields_here(shape, path.lstrip("."))


def _constraint_of(shape: inspect.Type) -> Constraint:
    if isinstance(shape, inspect.UnionType):
        found = [_constraint_of(of) for of in shape.types if isinstance(of, inspect.Metadata)]
        return found[0] if found else Constraint()
    carried: dict[str, Any] = (shape.extra or {}) if isinstance(shape, inspect.Metadata) else {}
    constraint: Constraint = carried.get("constraint", Constraint())
    return constraint


@pytest.mark.parametrize("kind", SPECS)
def test_the_same_fields(kind: str) -> None:
    there = {path for path, _ in fields_there(schema_of(kind))}
    here = {path for path, _ in fields_here(inspect.type_info(SPECS[kind]))}
    assert there - here == set()
    assert here - there <= OURS.keys()
    assert len(there) >= 10


@pytest.mark.parametrize("kind", SPECS)
def test_the_same_bounds(kind: str) -> None:
    here = dict(fields_here(inspect.type_info(SPECS[kind])))
    compared = 0
    for path, schema in fields_there(schema_of(kind)):
        constraint = here[path]
        for keyword, name in _BOUNDS.items():
            if keyword in schema and (schema.get("type"), keyword) != ("array", "maxLength"):
                assert getattr(constraint, name) == schema[keyword], (path, keyword)
                compared += 1
        if "enum" in schema:
            assert sorted(constraint.choices) == sorted(schema["enum"]), path
        assert bool(constraint.pattern) == ("pattern" in schema and schema.get("type") != "array"), path
        if schema.get("format") == "int32" and "maximum" not in schema:
            assert constraint.most == _LARGEST, path
    assert compared >= 2
