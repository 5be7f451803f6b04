"""The file learned capacity travels in between accounts and machines: what `shiplap capacity export` prints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.types import LearnedCapacity


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entries: tuple[LearnedCapacity, ...]


def read(path: Path) -> tuple[LearnedCapacity, ...]:
    """The entries of a file, in its order.

    Raises:
        InvalidInput: the file cannot be read or is not an export.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).entries
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidInput(str(path), f"not an export of learned capacity: {error}") from error


def dump(entries: Iterable[LearnedCapacity]) -> bytes:
    """The entries as such a file, sorted by AMI, instance type and kubelet settings, indented for people."""
    ordered = sorted(entries, key=lambda entry: (entry.ami, entry.instance_type, entry.kubelet_hash))
    return msgspec.json.format(msgspec.json.encode(_File(tuple(ordered)), order="deterministic"), indent=2) + b"\n"
