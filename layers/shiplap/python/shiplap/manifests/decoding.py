"""Turning a document into a typed manifest while naming every field that does not fit, not only the first.

The shapes come from the structs themselves. A null counts as absent, as on an API server.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Taint

T = TypeVar("T")
Path = tuple[str | int, ...]
Problem = tuple[Path, str]
"""Where in the object, and what is wrong there."""

_ALSO_ALLOWED: dict[type, frozenset[str]] = {
    ObjectMeta: frozenset({"generateName", "selfLink", "deletionGracePeriodSeconds", "managedFields"}),
    OwnerReference: frozenset({"apiVersion", "blockOwnerDeletion"}),
    Taint: frozenset({"timeAdded"}),
}
"""Fields of the API that Shiplap does not read in objects it otherwise shares with Kubernetes."""


def decode(data: Mapping[str, Any], kind: type[T]) -> tuple[T | None, list[Problem]]:
    """The typed manifest and all problems of shape; no manifest when a field has the wrong type or is missing.

    Unknown fields are problems, but are left out and do not keep the rest from being read.
    """
    reader = _Reader()
    cleaned = reader.read(_shape_of(cast("type", kind)), data, ())
    if reader.broken:
        return None, reader.problems
    return msgspec.convert(cleaned, kind), reader.problems


@cache
def _shape_of(kind: type) -> inspect.Type:
    """The shape of a class; msgspec works it out again every time, which takes longer than reading a document."""
    return inspect.type_info(kind)


def field_name(path: Path) -> str:
    """A path as users write it: `spec.template.spec.requirements[0].key`, `spec.tags[a.b/c]`."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


class _Reader:
    """Walks a document beside the type it should have; `broken` when it cannot be converted."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.broken = False

    def read(self, shape: inspect.Type, value: Any, path: Path) -> Any:
        match shape:
            case inspect.UnionType(types=types):
                return self._read_union(types, value, path)
            case inspect.StructType():
                return self._read_struct(shape, value, path) if self._is(dict, value, path) else None
            case inspect.DictType(value_type=of) if self._is(dict, value, path):
                return {
                    key: self.read(of, item, (*path, key))
                    for key, item in value.items()
                    if item is not None or isinstance(of, inspect.AnyType)
                }
            case inspect.VarTupleType(item_type=of) if self._is(list, value, path):
                return [self.read(of, item, (*path, number)) for number, item in enumerate(value)]
            case inspect.StrType():
                self._is(str, value, path)
            case inspect.BoolType():
                self._is(bool, value, path)
            case inspect.IntType():
                self._is(int, value, path)
            case inspect.FloatType() if not isinstance(value, int):
                self._is(float, value, path)
        return value

    def _read_union(self, types: tuple[inspect.Type, ...], value: Any, path: Path) -> Any:
        """An optional field, or a quantity, which may be text or a number."""
        kinds = [shape for shape in types if not isinstance(shape, inspect.NoneType)]
        if len(kinds) == 1:
            return self.read(kinds[0], value, path)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._refuse(path, f"expected a quantity, got {kind_of(value)}")
        elif isinstance(value, float) and not any(isinstance(shape, inspect.FloatType) for shape in kinds):
            self._refuse(path, f"expected a whole number or text, got {kind_of(value)}")
        return value

    def _read_struct(self, shape: inspect.StructType, value: Mapping[str, Any], path: Path) -> dict[str, Any]:
        fields = {field.encode_name: field for field in shape.fields}
        cleaned = {}
        for key, item in value.items():
            if key in fields:
                if item is not None:
                    cleaned[key] = self.read(fields[key].type, item, (*path, key))
            elif key not in _ALSO_ALLOWED.get(shape.cls, ()):
                close = difflib.get_close_matches(key, fields, 1)
                self.problems.append(((*path, key), "unknown field" + (f", did you mean {close[0]}?" if close else "")))
        for name, field in fields.items():
            if field.required and name not in cleaned:
                self._refuse((*path, name), "required field is missing")
        return cleaned

    def _is(self, wanted: type, value: Any, path: Path) -> bool:
        if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
            return True
        hint = "; put it in quotes" if wanted is str and isinstance(value, bool | int | float) else ""
        self._refuse(path, f"expected {_NAMES[wanted]}, got {kind_of(value)}{hint}")
        return False

    def _refuse(self, path: Path, reason: str) -> None:
        self.problems.append((path, reason))
        self.broken = True


_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}


def kind_of(value: object) -> str:
    """The kind of a YAML value in words, with the value itself when it is short."""
    name = _NAMES.get(type(value), type(value).__name__)
    return f"{name} ({value})" if isinstance(value, bool | int | float) else name
