"""Builds the embedded instance-type catalogue from the EC2 answers that moto ships.

Writes the data of `shiplap_lab.catalogue`: every instance type once, and per region the zones that offer it. The bytes
depend on moto's data alone, and files that are up to date are left untouched.
"""

from __future__ import annotations

import gzip
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import moto
import msgspec
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from shiplap.instances.catalog.ec2_catalog import Catalog, encode, parse_instance_types
from shiplap_lab.catalogue import embedded

TARGET = Path(embedded.__file__).parent / "data"


def main() -> None:
    """Write all files; say in one line what was built."""
    resources = _moto() / "ec2" / "resources"
    records = _json(resources / "instance_types.json.gz")
    source = f"moto {version('moto')}"
    types = Catalog(region="", types=parse_instance_types(records.values()), version=source)
    known = {kind.instance_type for kind in types.types}
    zone_ids = _zone_ids()
    TARGET.mkdir(exist_ok=True)
    written = int(_write(TARGET / embedded.TYPES_FILE, encode(types)))
    offerings = sorted((resources / "instance_type_offerings" / "availability-zone").glob("*.json.gz"))
    for path in offerings:
        region = path.name.removesuffix(".json.gz")
        zones = _zones_by_type(_json(path), known)
        offered = Catalog(region=region, types=(), zones=zones, zone_ids=zone_ids.get(region, {}), version=source)
        written += _write(TARGET / embedded.region_file(region), encode(offered))
    sys.stdout.write(
        f"{source}: {len(types.types)} instance types, {len(offerings)} regions, {written} files written\n"
    )


def _moto() -> Path:
    return Path(moto.__file__).parent


def _zone_ids() -> dict[str, dict[str, str]]:
    return {
        region: {zone.name: zone.zone_id for zone in zones} for region, zones in RegionsAndZonesBackend.zones.items()
    }


def _zones_by_type(offerings: list[dict[str, str]], known: set[str]) -> dict[str, tuple[str, ...]]:
    zones: dict[str, set[str]] = {}
    for offering in offerings:
        if offering["InstanceType"] in known:
            zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return {name: tuple(sorted(zones[name])) for name in sorted(zones)}


def _json(path: Path) -> Any:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()))


def _write(path: Path, data: bytes) -> bool:
    if path.exists() and path.read_bytes() == data:
        return False
    path.write_bytes(data)
    return True


if __name__ == "__main__":
    main()
