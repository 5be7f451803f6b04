"""The flat form of nested records: one document without nesting, with the same names in every release.

Functions are updated one by one and rolled back by alias, so releases meet each other's items and records. A nested
record is therefore written with the fields of its parts beside its own, and a part may be formed anew without changing
what is stored. A missing field has its default; an unknown field is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter, itemgetter
from types import UnionType
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec.structs import FieldInfo, fields, replace

Record = TypeVar("Record", bound=msgspec.Struct)

_Values = Callable[[Any], tuple[Any, ...]]


class _Part(msgspec.Struct, frozen=True, eq=False):
    """A struct that field `field` of the record holds, with the values of its fields in the part and in the flat form.

    An optional part is None when its fields have the values `absent`; other parts have no such values.
    """

    field: str
    kind: Callable[..., msgspec.Struct]
    values: _Values
    flat_values: _Values
    absent: tuple[Any, ...] | None


class StoredForm(Generic[Record]):
    """The flat form of one kind of record, which may hold structs, but these hold none.

    `flat_type` is the struct of the form; its fields are named as they are encoded. The fields in `always`, which are
    the record's own, are written even if they have their default.
    """

    def __init__(self, record: type[Record], *, always: Collection[str] = ()) -> None:
        own = [field for field in fields(record) if _kind_of(field) is None]
        flat = [_flat_field(field, always) for field in own]
        parts = []
        for holder in fields(record):
            kind = _kind_of(holder)
            if kind is not None:
                inner, optional = fields(kind), isinstance(holder.type, UnionType)
                flat += [_flat_field(field, always, optional=optional) for field in inner]
                parts.append(_part(holder.name, kind, inner, optional=optional))
        ordered = sorted(range(len(flat)), key=lambda place: len(flat[place]))  # struct fields without a default first
        self.flat_type: type[msgspec.Struct] = msgspec.defstruct(
            f"Flat{record.__name__}", [flat[place] for place in ordered], frozen=True, omit_defaults=True
        )
        self._record, self._parts, self._always = record, parts, tuple(always)
        self._own, self._own_values = [field.name for field in own], _values([field.name for field in own])
        self._flat_own_values = _values([field.encode_name for field in own])
        self._in_order = itemgetter(*ordered)

    def flat(self, record: Record) -> msgspec.Struct:
        """A record in its flat form."""
        values = self._own_values(record)
        for part in self._parts:
            inner = getattr(record, part.field)
            values += part.values(inner) if inner is not None else part.absent or ()
        return self.flat_type(*self._in_order(values))

    def nested(self, flat: msgspec.Struct) -> Record:
        """The inverse of `flat`."""
        given = dict(zip(self._own, self._flat_own_values(flat), strict=True))
        for part in self._parts:
            values = part.flat_values(flat)
            given[part.field] = None if values == part.absent else part.kind(*values)
        for name in self._always:
            if given[name] is msgspec.UNSET:
                del given[name]
        return self._record(**given)


def with_types(record: type[msgspec.Struct], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A struct like `record` in which some fields have other types: a record that holds flat forms."""
    return with_fields(record, "", {}, types)


def with_fields(
    record: type[msgspec.Struct], at: str, instead: Mapping[str, Any], types: Mapping[str, Any]
) -> type[msgspec.Struct]:
    """A struct as of `with_types` with optional fields, by name and type, where `record` has the field `at`."""
    made: list[tuple[Any, ...]] = []
    for field in fields(record):
        if field.name == at:
            made += ((name, kind | None, None) for name, kind in instead.items())
        else:
            made.append(_flat_field(replace(field, type=types.get(field.name, field.type)), ()))
    return msgspec.defstruct(f"Stored{record.__name__}", made, frozen=True, kw_only=True, omit_defaults=True)


def fields_of(record: msgspec.Struct) -> dict[str, Any]:
    """The values of a struct by the names of its fields."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _kind_of(field: FieldInfo) -> type[msgspec.Struct] | None:
    """The struct that a field holds, None if it holds something else."""
    for kind in get_args(field.type) if isinstance(field.type, UnionType) else (field.type,):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind
    return None


def _flat_field(field: FieldInfo, always: Collection[str], *, optional: bool = False) -> tuple[Any, ...]:
    """Name, type and default, as `defstruct` wants them; the fields of an optional part need a default."""
    if field.encode_name in always:
        return field.encode_name, field.type | msgspec.UnsetType, msgspec.UNSET
    if field.required and not optional:
        return field.encode_name, field.type
    if field.default_factory is not msgspec.NODEFAULT:
        return field.encode_name, field.type, msgspec.field(default_factory=field.default_factory)
    return field.encode_name, field.type, _default(field)


def _default(field: FieldInfo) -> Any:
    """The value of a field that is not given; of a required one the empty value."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.type() if field.required else field.default


def _part(holder: str, kind: type[msgspec.Struct], inner: Sequence[FieldInfo], *, optional: bool) -> _Part:
    absent = tuple(_default(field) for field in inner) if optional else None
    names, flat_names = [field.name for field in inner], [field.encode_name for field in inner]
    return _Part(holder, kind, _values(names), _values(flat_names), absent)


def _values(names: Sequence[str]) -> _Values:
    """Reads these attributes, at least two."""
    return attrgetter(*names)
