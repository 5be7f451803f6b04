"""Learned capacity between Regions and accounts, where the same image has other ids.

An image is known by its owner, name and architecture. The owner is Amazon's alias where there is one, because the
accounts that own EKS's images differ between Regions. Learned capacity names no zones, so none have to be mapped.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.learned_capacity import is_observed
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity
from shiplap_cli.inputs.learned.learned_file import check_amounts
from shiplap_cli.judged_reports import judged

_BATCH = 100
FORMAT: Final = "shiplap.dev/learned-capacity/v1"


class ImageIdentity(msgspec.Struct, frozen=True, order=True):
    """An AMI wherever it is: `owner` is Amazon's alias (`amazon`) or the id of an account."""

    owner: str
    name: str
    architecture: str


class TravellingEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The smallest amounts of one (image, instance type, kubelet settings), canonical units, and how many nodes."""

    image: ImageIdentity
    instance_type: str
    kubelet_hash: str
    capacity: dict[str, int]
    allocatable: dict[str, int]
    nodes: int


class TravellingFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output of `shiplap capacity export --portable`. `left_out` counts entries whose AMI EC2 does not know."""

    format: Literal["shiplap.dev/learned-capacity/v1"]
    left_out: int
    entries: tuple[TravellingEntry, ...]


def travelling_file(learned: Iterable[LearnedCapacity], images: Mapping[str, ImageIdentity]) -> TravellingFile:
    """Return the reports of this install's nodes; imported entries, and reports that are set aside, stay here.

    Args:
        learned: the entries.
        images: the identity of each AMI id that EC2 knows.
    """
    found: dict[tuple[ImageIdentity, str, str], ImportedCapacity] = {}
    left_out = 0
    for entry in filter(is_observed, learned):
        image = images.get(entry.ami)
        if image is None:
            left_out += 1
            continue
        key = (image, entry.instance_type, entry.kubelet_hash)
        seen = judged(entry, 0.0)
        amounts = ImportedCapacity(seen.capacity, seen.allocatable, entry.count)
        found[key] = amounts if key not in found else _smaller(found[key], amounts)
    entries = [
        TravellingEntry(*key, amounts.capacity, amounts.allocatable, amounts.nodes)
        for key, amounts in sorted(found.items(), key=lambda item: item[0])
    ]
    return TravellingFile(FORMAT, left_out, tuple(entries))


def _smaller(one: ImportedCapacity, other: ImportedCapacity) -> ImportedCapacity:
    def least(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
        return {name: min(a.get(name, b.get(name, 0)), b.get(name, a.get(name, 0))) for name in sorted({*a, *b})}

    return ImportedCapacity(
        least(one.capacity, other.capacity), least(one.allocatable, other.allocatable), one.nodes + other.nodes
    )


def write_travelling(file: TravellingFile) -> bytes:
    """As JSON for people."""
    return msgspec.json.format(msgspec.json.encode(file, order="deterministic"), indent=2) + b"\n"


def is_travelling(document: bytes) -> bool:
    """True if a document is a file of portable capacity, and not an export with AMI ids."""
    return FORMAT.encode() in document


def read_document(path: Path) -> bytes:
    """A file, or standard input for `-`. Raises InvalidInput."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error)) from error


def read_travelling(path: Path, document: bytes) -> TravellingFile:
    """Raises InvalidInput: it is no such file, or holds amounts that no node reports."""
    try:
        read = msgspec.json.decode(document, type=TravellingFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(str(path), f"not portable learned capacity: {error}") from error
    for place, entry in enumerate(read.entries):
        check_amounts(path, f"entries[{place}].capacity", entry.capacity)
        check_amounts(path, f"entries[{place}].allocatable", entry.allocatable)
    return read


def arrived(
    entries: Sequence[TravellingEntry], ids: Mapping[ImageIdentity, Sequence[str]]
) -> tuple[tuple[LearnedCapacity, ...], int]:
    """Entries for this Region's AMI ids, as imported ones, and how many could not be mapped."""
    found, left_out = [], 0
    for entry in entries:
        here = ids.get(entry.image, ())
        left_out += not here
        amounts = ImportedCapacity(entry.capacity, entry.allocatable, entry.nodes)
        found += [LearnedCapacity(ami, entry.instance_type, entry.kubelet_hash, imported=amounts) for ami in here]
    return tuple(found), left_out


def as_imported(entries: Iterable[LearnedCapacity]) -> tuple[LearnedCapacity, ...]:
    """Entries of an export with AMI ids, as what another install has learned, without reports that are set aside."""
    return tuple(
        LearnedCapacity(
            entry.ami,
            entry.instance_type,
            entry.kubelet_hash,
            imported=ImportedCapacity(seen.capacity, seen.allocatable, entry.count),
        )
        for entry in entries
        if is_observed(entry)
        for seen in (judged(entry, 0.0),)
    )


def identities(ec2: Any, ids: Sequence[str]) -> dict[str, ImageIdentity]:
    """The AMIs of these ids that EC2 knows. Raises AwsError."""
    found: dict[str, ImageIdentity] = {}
    for start in range(0, len(ids), _BATCH):
        for image in _described(ec2, Filters=[{"Name": "image-id", "Values": list(ids[start : start + _BATCH])}]):
            found[image["ImageId"]] = _identity(image, str(image["OwnerId"]))
    return found


def ids_here(ec2: Any, images: Iterable[ImageIdentity]) -> dict[ImageIdentity, list[str]]:
    """The AMI ids of images in the client's Region, sorted. Raises AwsError."""
    names: dict[str, list[str]] = defaultdict(list)
    for image in sorted(set(images)):
        names[image.owner].append(image.name)
    found: dict[ImageIdentity, list[str]] = defaultdict(list)
    for owner, wanted in sorted(names.items()):
        for start in range(0, len(wanted), _BATCH):
            named = [{"Name": "name", "Values": wanted[start : start + _BATCH]}]
            for shown in _described(ec2, Owners=[owner], Filters=named):
                found[ImageIdentity(owner, shown["Name"], shown["Architecture"])].append(shown["ImageId"])
    return {image: sorted(ids) for image, ids in found.items()}


def _described(ec2: Any, **wanted: Any) -> list[Mapping[str, Any]]:
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - a file with AMI ids asks no AWS

    with aws_errors("describe images"):
        pages = ec2.get_paginator("describe_images").paginate(IncludeDeprecated=True, **wanted)
        return [image for page in pages for image in page["Images"]]


def _identity(image: Mapping[str, Any], owner: str) -> ImageIdentity:
    return ImageIdentity(str(image.get("ImageOwnerAlias") or owner), image["Name"], image["Architecture"])
