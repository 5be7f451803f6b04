"""Explanations of fields: a bare text below a field in the source of a struct, as everywhere in this project."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec


@cache
def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the explanation of each field that has one, by its name as it is written, inherited fields included."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if isinstance(owner, type) and issubclass(owner, msgspec.Struct) and owner is not msgspec.Struct:
            found |= dict(_in_source(owner))
    written = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return {written[name]: text for name, text in found.items() if name in written}


def _in_source(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    try:
        source = inspect.getsource(kind)
    except OSError:  # made by a call, as the parts that join keys of optional features
        return
    statements = [item for item in ast.parse(textwrap.dedent(source)).body if isinstance(item, ast.ClassDef)]
    for field, below in (pair for item in statements for pair in pairwise(item.body)):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, " ".join(text.value.split())


def structs_of(kind: Any) -> dict[str, type[msgspec.Struct]]:
    """Return all structs that a type is made of, itself included, by the names that a JSON schema gives them."""
    return {shape.cls.__name__: shape.cls for shape in struct_shapes([msgspec.inspect.type_info(kind)])}


def struct_shapes(shapes: Iterable[Any]) -> Iterator[msgspec.inspect.StructType]:
    """Yield the structs in shapes of `msgspec.inspect`, those within them included, each once."""
    seen: set[Any] = set()
    waiting = list(shapes)
    while waiting:
        shape = waiting.pop()
        if isinstance(shape, msgspec.inspect.StructType):
            if shape.cls in seen:
                continue
            seen.add(shape.cls)
            yield shape
            waiting += [each.type for each in shape.fields]
        else:
            for part in ("type", "item_type", "key_type", "value_type"):
                waiting += [getattr(shape, part)] if hasattr(shape, part) else []
            for part in ("types", "item_types"):
                waiting += list(getattr(shape, part, ()))
