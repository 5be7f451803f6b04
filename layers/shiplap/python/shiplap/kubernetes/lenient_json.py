"""JSON of which a part is not what it should be, or is too large: each field is decoded for itself, if at all.

The fields of an object stay encoded until they are asked for, so an object of 1.5 MiB costs little more than its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

_MOST_WITH_NULLS = 2**16
"""Bytes of a field of which nulls are dropped before it is read again, which takes ten times as long as reading it."""


class Fields:
    """The fields of one JSON object; of anything else, none."""

    def __init__(self, fields: Mapping[str, msgspec.Raw]) -> None:
        self._fields = fields

    @classmethod
    def of(cls, body: bytes | msgspec.Raw) -> Fields:
        """The fields of this object."""
        try:
            return cls(_FIELDS.decode(body))
        except _UNREADABLE:
            return cls({})

    def inner(self, name: str) -> Fields:
        """The fields of the object that a field holds."""
        raw = self._fields.get(name)
        return Fields({}) if raw is None else Fields.of(raw)

    def text(self, name: str) -> str:
        """A field that holds text, or nothing."""
        found: str = self.read(name, str, "")
        return found

    def is_set(self, name: str) -> bool:
        """True if a field holds more than null, false, zero, an empty text, list or object."""
        raw = self._fields.get(name)
        return raw is not None and bytes(memoryview(raw)[:6]) not in (b"null", b"false", b"0", b'""', b"[]", b"{}")

    def read(self, name: str, kind: Any, otherwise: Kind) -> Kind:
        """A field of this kind without nulls; `otherwise` where it is missing or cannot be read."""
        raw = self._fields.get(name)
        if raw is None:
            return otherwise
        try:
            found: Kind = msgspec.json.decode(raw, type=kind)
        except _UNREADABLE:
            return _read_without_nulls(raw, kind, otherwise)
        return found


def _read_without_nulls(raw: msgspec.Raw, kind: Any, otherwise: Kind) -> Kind:
    if len(memoryview(raw)) > _MOST_WITH_NULLS:
        return otherwise
    try:
        found: Kind = msgspec.convert(without_nulls(msgspec.json.decode(raw), in_lists=True), kind)
    except _UNREADABLE:
        return otherwise
    return found


def without_nulls(value: Any, *, in_lists: bool = False) -> Any:
    """The value without null fields, which count as absent; AWS's SDKs print them in some languages, too.

    `in_lists` drops null entries of lists as well. An API object loses such an entry, so that the rest of it can be
    read. A manifest keeps it, so that it is refused.
    """
    if isinstance(value, dict):
        return {key: without_nulls(entry, in_lists=in_lists) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry, in_lists=in_lists) for entry in value if entry is not None or not in_lists]
    return value
