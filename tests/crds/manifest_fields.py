"""The fields of upstream's CRDs, and those of the structs that manifests are decoded to, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from shiplap.manifests.custom_resources import CapacityBufferSpec, EC2NodeClassSpec, NodeOverlaySpec, NodePoolSpec
from shiplap.manifests.decoding import Constraint
from tests.crds.schemas import ENTRY, ITEM, Schema, inner_schemas

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


def names_of(shape: inspect.Type) -> set[str]:
    """The attributes of our type, at every depth."""
    match shape:
        case inspect.Metadata(type=of) | inspect.VarTupleType(item_type=of) | inspect.DictType(value_type=of):
            return names_of(of)
        case inspect.UnionType(types=types):
            return set().union(*map(names_of, types))
        case inspect.StructType(fields=fields):
            return set().union(*({field.name} | names_of(field.type) for field in fields))
    return set()


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
