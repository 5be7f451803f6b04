"""AWS's Regions, the partitions that they belong to, and the domains of their services, as botocore lists them.

botocore itself places Regions by the same data, `partitions.json`. A copy of any part of it would grow old.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

import msgspec


class _Outputs(msgspec.Struct, frozen=True, rename="camel"):
    dns_suffix: str


class _Region(msgspec.Struct, frozen=True):
    description: str = ""


class _Partition(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    outputs: _Outputs
    region_regex: str
    regions: dict[str, _Region]


class _PartitionData(msgspec.Struct, frozen=True):
    partitions: tuple[_Partition, ...]


def partition_of(region: str) -> str:
    """The partition of a Region, such as aws-us-gov; `_place` says what becomes of an unknown one."""
    return _place(region).id


def dns_suffix(region: str) -> str:
    """The domain that hosts of AWS's services in a Region end in, such as amazonaws.com.cn."""
    return _place(region).outputs.dns_suffix


def exists(region: str) -> bool:
    """True if botocore knows the Region."""
    return region in _place(region).regions and not region.endswith("-global")


def description_of(region: str) -> str:
    """The name of a Region for people, such as Europe (Ireland); its id where botocore tells none."""
    known = _place(region).regions.get(region)
    return (known.description if known is not None else "") or region


def known_regions() -> tuple[str, ...]:
    """All Regions that botocore knows, sorted."""
    return tuple(sorted(region for each in _partitions() for region in each.regions if exists(region)))


def nearest(name: str) -> tuple[str, ...]:
    """At most three Regions whose names are like `name`, sorted; none if no name is."""
    known, wanted = known_regions(), name.lower()
    return (wanted,) if wanted in known else tuple(sorted(get_close_matches(wanted, known, 3, 0.7)))


@cache
def _place(region: str) -> _Partition:
    """The partition that lists a Region, else the one whose pattern fits its name, else `aws`.

    AWS's own SDKs look in this order, so that a Region which is newer than their data can be used.
    """
    known = _partitions()
    listed = (each for each in known if region in each.regions)
    fitting = (each for each in known if re.match(each.region_regex, region))
    return next(listed, None) or next(fitting, None) or next(each for each in known if each.id == "aws")


@cache
def _partitions() -> tuple[_Partition, ...]:
    from botocore.loaders import create_loader  # noqa: PLC0415 - most who import this never ask

    return msgspec.convert(create_loader().load_data("partitions"), _PartitionData).partitions
