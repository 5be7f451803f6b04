"""Bodies in Kubernetes' protobuf format, in which kubectl's `create` commands and typed clients send objects."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from shiplap.errors import ClusterError
from shiplap_lab.api_server.bodies.api_types import ApiField, declared_fields, is_known

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BITS = 64


class _Envelope(msgspec.Struct):
    """Around each body: the kind of the object, and its bytes."""

    api_version: str = ""
    kind: str = ""
    raw: bytes = b""


def decoded_protobuf(body: bytes) -> dict[str, Any]:
    """The object of a body as JSON would write it.

    Raises:
        ClusterError: status 400, the body is cut off or holds a kind that Kubernetes does not have.
    """
    if not body.startswith(_MAGIC):
        raise _refused("it does not begin as one")
    envelope = _Envelope()
    try:
        for number, value in _entries(body[len(_MAGIC) :]):
            if number == 1 and isinstance(value, bytes):
                for inner, text in _entries(value):
                    if inner == 1:
                        envelope.api_version = _text(text)
                    elif inner == 2:
                        envelope.kind = _text(text)
            elif number == 2 and isinstance(value, bytes):
                envelope.raw = value
        if not is_known(envelope.kind):
            raise _refused(f"it is of kind {envelope.kind!r}")
        return {"apiVersion": envelope.api_version, "kind": envelope.kind, **_struct(envelope.kind, envelope.raw)}
    except (IndexError, ValueError, OverflowError) as error:
        raise _refused(str(error) or "it is cut off") from error


def _refused(reason: str) -> ClusterError:
    return ClusterError(f"the request body is no object in protobuf: {reason}", status=400)


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field. Raises IndexError or ValueError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if wire == _BYTES else ({_FIXED64: 8, _FIXED32: 4}.get(wire, -1), at)
        if size < 0 or at + size > len(data):
            raise ValueError("it is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _MOST_BITS:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is too long")


def _struct(kind: str, data: bytes) -> dict[str, Any]:
    fields = {field.number: field for field in declared_fields(kind) if field.number}
    found: dict[str, Any] = {}
    for number, raw in _entries(data):
        field = fields.get(number)
        if field is None:
            continue  # of a newer version
        if field.holds == "map":
            key, value = _pair(field, _bytes(raw))
            found.setdefault(field.name, {})[key] = value
            continue
        value = _value(field, raw)
        if field.is_inline:
            found |= value
        elif field.holds:
            found.setdefault(field.name, []).append(value)
        elif value is not None:
            found[field.name] = value
    return {name: value for name, value in found.items() if not _is_unset(fields, name, value)}


def _is_unset(fields: dict[int, ApiField], name: str, value: Any) -> bool:
    """True of the empty texts that protobuf writes of fields which nobody has set."""
    return value == "" and any(field.name == name and field.kind == "string" for field in fields.values())


def _pair(field: ApiField, data: bytes) -> tuple[str, Any]:
    entry = dict(_entries(data))
    return _text(entry.get(1, b"")), _value(field, entry.get(2, b""))


def _value(field: ApiField, raw: int | bytes) -> Any:
    decode = _SCALARS.get(field.kind)
    return decode(raw) if decode else _struct(field.kind, _bytes(raw))


def _int(raw: int | bytes) -> int:
    number = int(raw)
    return number - 2**64 if number >= 2**63 else number


def _int_or_string(raw: int | bytes) -> int | str:
    entry = dict(_entries(_bytes(raw)))
    return _text(entry.get(3, b"")) if entry.get(1) else _int(entry.get(2, 0))


def _time(raw: int | bytes) -> str | None:
    seconds = dict(_entries(_bytes(raw))).get(1)
    if not isinstance(seconds, int) or seconds >= 2**63:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bytes(raw: int | bytes) -> bytes:
    if not isinstance(raw, bytes):
        raise ValueError("a field has another type")
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "int": _int,
    "bool": bool,
    "string": _text,
    "bytes": lambda raw: b64encode(_bytes(raw)).decode(),
    "Quantity": lambda raw: _text(dict(_entries(_bytes(raw))).get(1, b"0")),
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _time,
    "any": lambda _raw: None,
}
