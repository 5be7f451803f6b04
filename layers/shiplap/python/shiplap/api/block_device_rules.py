"""What `blockDeviceMappings` of an EC2NodeClass must satisfy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shiplap.api.common_rules import one_of, within
from shiplap.api.decoding import Path, Problem
from shiplap.api.types import BlockDevice, BlockDeviceMapping

VOLUME_TYPES = ("standard", "io1", "io2", "gp2", "gp3", "sc1", "st1")

_SIZE = re.compile(r"([1-9][0-9]*)(Gi|G|Ti|T)", re.ASCII)
_LARGEST = {"Gi": 59000, "G": 64000, "Ti": 58, "T": 64}


def mapping_problems(mappings: Sequence[BlockDeviceMapping]) -> Iterator[Problem]:
    """Of all block devices of a node class."""
    path: Path = ("spec", "blockDeviceMappings")
    if len(mappings) > 50:
        yield path, f"at most 50 block devices are allowed, there are {len(mappings)}"
    if sum(mapping.root_volume for mapping in mappings) > 1:
        yield path, "at most one block device can have rootVolume"
    for number, mapping in enumerate(mappings):
        if mapping.ebs is not None:
            yield from _device_problems(mapping.ebs, (*path, number, "ebs"))


def _device_problems(device: BlockDevice, path: Path) -> Iterator[Problem]:
    if device.snapshot_id is None and device.volume_size is None:
        yield path, "snapshotID or volumeSize must be set"
    if device.volume_size is not None and (wrong := _size_problem(device.volume_size)):
        yield (*path, "volumeSize"), wrong
    yield from one_of(device.volume_type, VOLUME_TYPES, (*path, "volumeType"))
    yield from within(device.volume_initialization_rate, 100, 300, (*path, "volumeInitializationRate"))
    if device.volume_initialization_rate is not None and device.snapshot_id is None:
        yield (*path, "volumeInitializationRate"), "can be set only together with snapshotID"
    for field, value in (("iops", device.iops), ("throughput", device.throughput)):
        if value is not None and value < 0:
            yield (*path, field), f"must not be negative, is {value}"


def _size_problem(text: str) -> str | None:
    size = _SIZE.fullmatch(text)
    if size is None or int(size[1]) > _LARGEST[size[2]]:
        bounds = ", ".join(f"1{unit} to {most}{unit}" for unit, most in _LARGEST.items())
        return f"{text!r} is not a volume size: expected a whole number with Gi, G, Ti or T ({bounds})"
    return None
