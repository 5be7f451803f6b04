"""Documents that are printed as one object, such as an answer and what it rests on."""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType


def joined(*documents: msgspec.Struct) -> msgspec.Struct:
    """Return one document with the fields of all, in their order. A later one replaces fields of an earlier one.

    Fields that a document leaves out where they have their default are left out here, too.
    """
    values: dict[str, Any] = {}
    for document in documents:
        omits = type(document).__struct_config__.omit_defaults
        for field in msgspec.structs.fields(document):
            value = getattr(document, field.name)
            values[field.name] = UNSET if omits and not field.required and value == field.default else value
    made: msgspec.Struct = joined_type(*map(type, documents))(**values)
    return made


@cache
def joined_type(*kinds: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the type of such a document; its name is that of the first type, as an answer."""
    fields: dict[str, tuple[Any, ...]] = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        omits = kind.__struct_config__.omit_defaults
        for field in msgspec.structs.fields(kind):
            may_lack = field.default is UNSET or (omits and not field.required)
            written = hints[field.name] | UnsetType if may_lack else hints[field.name]
            default = msgspec.field(name=field.encode_name, **({"default": UNSET} if may_lack else {}))
            fields[field.name] = (field.name, written, default)
    name = f"{kinds[0].__name__.removesuffix('Document')}Answer"
    docstring = {"__doc__": kinds[0].__doc__}
    return msgspec.defstruct(name, list(fields.values()), frozen=True, kw_only=True, namespace=docstring)
