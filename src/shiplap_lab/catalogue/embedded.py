"""The catalogue that comes with the command line: real EC2 types and zones, without prices.

`tools/build_catalog.py` writes it at install time. Functions in AWS read the refreshed catalogue in the bucket instead.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.ec2_catalog import Catalog, decode

DEFAULT_REGION = "us-east-1"
TYPES_FILE = "types.msgpack.z"
"""The file with all types, which the regions share."""

_FOLDER = Path(__file__).parent / "data"


def load(region: str = DEFAULT_REGION) -> Catalog:
    """Every instance type, with the zones of `region` that offer it; prices are left to be estimated.

    A region's catalogue is read once: types that were resolved from it are known by the same object.

    Raises:
        InvalidInput: the catalogue was not built, or does not know the region.
    """
    return _load(_FOLDER, region)


@lru_cache(maxsize=4)
def _load(folder: Path, region: str) -> Catalog:
    types = _read(folder / TYPES_FILE)
    if types is None:
        raise InvalidInput("embedded catalogue", "it was not built yet; run `make setup`")
    offered = _read(folder / region_file(region))
    if offered is None:
        raise InvalidInput("embedded catalogue", f"no region {region!r}; known are {', '.join(regions())}")
    return msgspec.structs.replace(offered, types=types.types)


def stated_hardware(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """The vCPUs and the memory that EC2 states of each type, as quantities."""
    return {
        kind.instance_type: {"cpu": kind.v_cpu_info.default_v_cpus, "memory": f"{kind.memory_info.size_in_mi_b}Mi"}
        for kind in catalog.types
    }


def regions() -> tuple[str, ...]:
    """The regions whose zones are known, sorted."""
    return tuple(sorted(file.name.removesuffix(region_file("")) for file in _FOLDER.glob("*" + region_file(""))))


def region_file(region: str) -> str:
    """Name of the file that holds a region's zones."""
    return f"{region}.zones.msgpack.z"


def _read(file: Path) -> Catalog | None:
    return decode(file.read_bytes(), f"embedded catalogue {file.name}") if file.is_file() else None
