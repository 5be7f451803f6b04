"""The file learned capacity travels in between accounts and machines: what `shiplap capacity export` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.reported_amounts import DAY_S
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Minimum, Observation
from shiplap.kubernetes.quantity import LARGEST

_YEAR_10000 = 253_402_300_800


class LearnedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that `shiplap capacity export` prints."""

    entries: tuple[LearnedCapacity, ...]


def read_learned(path: Path) -> tuple[LearnedCapacity, ...]:
    """The entries of a file, in its order.

    Raises:
        InvalidInput: the file cannot be read or is not an export.
    """
    try:
        document = path.read_bytes()
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error)) from error
    return parse_learned(path, document)


def parse_learned(path: Path, document: bytes) -> tuple[LearnedCapacity, ...]:
    """As `read_learned`, of a document that was read from `path`. Raises InvalidInput."""
    try:
        entries = msgspec.json.decode(document, type=LearnedFile).entries
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(str(path), f"not an export of learned capacity: {error}") from error
    for place, entry in enumerate(entries):
        for number, seen in enumerate(entry.recent):
            _check(path, f"entries[{place}].recent[{number}]", seen)
        for field in ("minimum_capacity", "minimum_allocatable"):
            for resource, minima in getattr(entry, field).items():
                for number, minimum in enumerate(minima):
                    _check_minimum(path, f"entries[{place}].{field}.{resource}[{number}]", minimum)
        for number, report in enumerate(entry.reported):
            where = f"entries[{place}].reported[{number}]"
            check_amounts(path, f"{where}.capacity", report.capacity)
            check_amounts(path, f"{where}.allocatable", report.allocatable)
            _check_moment(path, f"{where}.seen_at", report.seen_at)
        if entry.imported is not None:
            check_amounts(path, f"entries[{place}].imported.capacity", entry.imported.capacity)
            check_amounts(path, f"entries[{place}].imported.allocatable", entry.imported.allocatable)
    return entries


def _check(path: Path, where: str, seen: Observation) -> None:
    """Raises InvalidInput for amounts and times that no node reports."""
    for field in ("capacity", "allocatable", "predicted"):
        check_amounts(path, f"{where}.{field}", getattr(seen, field))
    _check_moment(path, f"{where}.observed_at", seen.observed_at)


def _check_moment(path: Path, where: str, moment: float) -> None:
    if not 0 <= moment < _YEAR_10000:
        raise InvalidInput(str(path), f"expected seconds since 1970, is {moment}", field=where)


def check_amounts(path: Path, where: str, amounts: Mapping[str, int]) -> None:
    """Raises InvalidInput for an amount that no node reports."""
    for resource, amount in amounts.items():
        _check_amount(path, f"{where}.{resource}", amount)


def _check_minimum(path: Path, where: str, minimum: Minimum) -> None:
    _check_amount(path, f"{where}.amount", minimum.amount)
    if not 0 <= minimum.day < _YEAR_10000 // DAY_S:
        raise InvalidInput(str(path), f"expected days since 1970, is {minimum.day}", field=f"{where}.day")


def _check_amount(path: Path, where: str, amount: int) -> None:
    if not 0 <= amount <= LARGEST:
        raise InvalidInput(str(path), f"must be from 0 to {LARGEST}, is {amount}", field=where)


def dump_learned(entries: Iterable[LearnedCapacity]) -> bytes:
    """The entries as such a file, sorted by AMI, instance type and kubelet settings, indented for people."""
    ordered = sorted(entries, key=lambda entry: (entry.ami, entry.instance_type, entry.kubelet_hash))
    return (
        msgspec.json.format(msgspec.json.encode(LearnedFile(tuple(ordered)), order="deterministic"), indent=2) + b"\n"
    )
