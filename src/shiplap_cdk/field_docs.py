"""Explanations of fields: a bare text below a field in the source of a struct, as everywhere in this project."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
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
    found: dict[str, type[msgspec.Struct]] = {}
    _collect(msgspec.inspect.type_info(kind), found)
    return found


def _collect(info: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls.__name__ in found:
            return
        found[info.cls.__name__] = info.cls
        parts: list[Any] = [field.type for field in info.fields]
    else:
        parts = [getattr(info, name, None) for name in ("type", "item_type", "key_type", "value_type")]
        parts += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    for part in parts:
        if isinstance(part, msgspec.inspect.Type):
            _collect(part, found)
