"""Kubernetes' API types, read from their Go source: the JSON fields of each struct, with the type of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\t(?P<field>\w+\s+)?(?P<type>[^\s`]+)\s+`[^`]*json:"(?P<name>[^",]*)', re.MULTILINE)
_CONTAINERS = re.compile(r"^(\*|\[\]|map\[[^\]]+\])+")


class GoField(NamedTuple):
    """`kind` is the Go type of the value, or of the values in a list or map, without its package."""

    name: str
    kind: str


@cache
def structs_of(files: Iterable[Path]) -> Mapping[str, tuple[GoField, ...]]:
    """The fields of every struct in some Go files, by its name; fields of inlined structs are their holder's."""
    source = {
        name: [(match["type"], match["name"], match["field"] is None) for match in _FIELD.finditer(body)]
        for path in files
        for name, body in _STRUCT.findall(path.read_text(encoding="utf-8"))
    }

    def fields(struct: str) -> tuple[GoField, ...]:
        found: list[GoField] = []
        for kind, name, is_embedded in source.get(struct, ()):
            plain = _CONTAINERS.sub("", kind).rpartition(".")[2]
            if name:
                found.append(GoField(name, plain))
            elif is_embedded:  # Go inlines it with and without `,inline` in its tag
                found += fields(plain)
        return tuple(found)

    return {name: fields(name) for name in source}
