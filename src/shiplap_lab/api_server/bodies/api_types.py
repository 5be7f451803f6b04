"""Kubernetes' types: the fields of each, and what an object holds that its type does not allow.

`tools/api_types.py` writes them from Kubernetes' Go types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_SCALARS = frozenset({"int", "bool", "string", "bytes", "Time", "MicroTime", "Quantity", "IntOrString", "any"})
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkKMGTPE]i?)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_WORDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class ApiField(msgspec.Struct, frozen=True):
    """A field of a type. `holds` is empty for one value, else list or map."""

    name: str

    number: int
    """In protobuf; 0 of one that protobuf does not write."""

    kind: str
    """The type of the value, or of those in the list or map."""

    holds: str = ""

    merge: str | None = None
    """How a strategic merge patch merges the list: by this key, or as a set where it is empty."""

    keys: tuple[str, ...] | None = None
    """By which fields server-side apply tells the list's items apart, by the whole item where there are none."""

    @property
    def is_inline(self) -> bool:
        """True if JSON writes the fields of the value in the place of this one."""
        return self.name.startswith("+")


@cache
def _types() -> dict[str, dict[str, str]]:
    text = files(__package__).joinpath("api_types.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def is_known(kind: str) -> bool:
    """True if Kubernetes itself has the type; those of CRDs are none of them."""
    return kind in _types()


@cache
def declared_fields(kind: str) -> tuple[ApiField, ...]:
    """The fields of a type as Go and protobuf have them."""
    return tuple(_parsed(name, text) for name, text in _types()[kind].items())


@cache
def json_fields(kind: str) -> Mapping[str, ApiField]:
    """The fields of a type as JSON has them, by name."""
    found: dict[str, ApiField] = {}
    for field in declared_fields(kind):
        found |= json_fields(field.kind) if field.is_inline else {field.name: field}
    return found


def _parsed(name: str, text: str) -> ApiField:
    number, kind, *rest = text.split()
    holds = "map" if kind == "map" else "list" if kind.startswith("[]") else ""
    if holds == "map":
        kind, *rest = rest
    options = dict(option.split("=") for option in rest)
    keys = options.get("keys")
    return ApiField(
        name,
        int(number),
        kind.removeprefix("[]"),
        holds,
        options.get("merge"),
        None if keys is None else tuple(filter(None, keys.split(","))),
    )


class Mistakes(msgspec.Struct, frozen=True):
    """Fields that a type does not have, and values that are of another type than theirs."""

    unknown: list[str]
    wrong: list[str]


def mistakes_of(kind: str, item: Mapping[str, Any]) -> Mistakes:
    """Return what is wrong with an object, or with a patch of one: directives of patches are no fields."""
    found = Mistakes([], [])
    _look(kind, item, "", found)
    return found


def _look(kind: str, item: Any, path: str, found: Mistakes) -> None:
    if item is None:
        return
    if kind not in _SCALARS:
        if not isinstance(item, dict):
            found.wrong.append(_mismatch(item, path, kind))
            return
        fields = json_fields(kind)
        for name, value in item.items():
            where = f"{path}.{name}" if path else name
            if name in fields:
                _look_into(fields[name], value, where, found)
            elif not name.startswith("$"):
                found.unknown.append(where)
    elif problem := _scalar_problem(kind, item, path):
        found.wrong.append(problem)


def _look_into(field: ApiField, value: Any, path: str, found: Mistakes) -> None:
    if not field.holds or value is None:
        _look(field.kind, value, path, found)
    elif field.holds == "list":
        if not isinstance(value, list):
            found.wrong.append(_mismatch(value, path, f"[]{field.kind}"))
            return
        for index, each in enumerate(value):
            _look(field.kind, each, f"{path}[{index}]", found)
    elif not isinstance(value, dict):
        found.wrong.append(_mismatch(value, path, f"map[string]{field.kind}"))
    else:
        for key, each in value.items():
            if not key.startswith("$"):
                _look(field.kind, each, f"{path}.{key}", found)


def _scalar_problem(kind: str, value: Any, path: str) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "int":
            fits = number and abs(value) < 2**63
        case "bool":
            fits = isinstance(value, bool)
        case "IntOrString":
            fits = isinstance(value, str) or (number and abs(value) < 2**31)
        case "Quantity":
            fits = isinstance(value, str) or number or isinstance(value, float)
            if fits and not _QUANTITY.fullmatch(str(value)):
                return f"{path}: quantities must match the regular expression {_QUANTITY.pattern!r}, {value!r} does not"
        case "Time" | "MicroTime":
            fits = isinstance(value, str)
            if fits and not _TIME.fullmatch(value):
                return f"{path}: {value!r} is no time such as 2026-01-31T12:00:00Z"
        case "any":
            fits = True
        case _:
            fits = isinstance(value, str)
    return "" if fits else _mismatch(value, path, kind)


def _mismatch(value: Any, path: str, kind: str) -> str:
    return f"json: cannot unmarshal {_WORDS.get(type(value), 'value')} into Go struct field {path} of type {kind}"
