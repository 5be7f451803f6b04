"""The JSON schemas of what commands print with `-o json`, from the types of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import msgspec
from msgspec import inspect

from shiplap_cdk.field_docs import struct_shapes
from shiplap_cli.command_entry import CommandEntry

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def answer_schema(path: str, entry: CommandEntry) -> dict[str, Any]:
    """Return the schema of the answers of a command, by the words that call it. More fields may come with a version."""
    types = answer_types(entry)
    made, parts = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    written = dict(_written_structs(map(inspect.type_info, types)))
    for name, part in parts.items():
        if name in written:
            part["required"] = written[name]
    head = {"$schema": _DIALECT, "title": f"shiplap {path} -o json"}
    whole = head | (made[0] if len(made) == 1 else {"anyOf": list(made)}) | {"$defs": parts}
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))
    return schema


def answer_types(entry: CommandEntry) -> list[Any]:
    """Return the types of the answers of a command."""
    own = f"shiplap_cli.commands.{entry.function.partition(':')[0]}"
    found = []
    for name in entry.answers.split():
        module, _, kind = name.rpartition(":")
        beside = f"{own.rpartition('.')[0]}.{module}"
        place = own if not module else module if module.startswith("shiplap_") else beside
        found.append(getattr(import_module(place), kind))
    return found


def schema_text(path: str, entry: CommandEntry) -> str:
    """Return the schema as `--schema` prints it."""
    return msgspec.json.format(msgspec.json.encode(answer_schema(path, entry)), indent=2).decode() + "\n"


def _written_structs(shapes: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the structs in shapes, by name, with the fields that are always written."""
    for shape in struct_shapes(shapes):
        if isinstance(shape.cls, type):  # a generic one has a name of its own, and leaves nothing out
            omits = shape.cls.__struct_config__.omit_defaults
            always = [each for each in shape.fields if each.required or not (omits or _is_unset(each))]
            yield shape.cls.__name__, [each.encode_name for each in always]


def _is_unset(field: inspect.Field) -> bool:
    """True if the default of a field is UNSET, which `inspect` shows as none."""
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
