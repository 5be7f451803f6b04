"""Zones that nothing should be launched in for now, although EC2 would."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering


def without_zones(types: Iterable[InstanceType], zones: Collection[str]) -> tuple[InstanceType, ...]:
    """The same types with no offering available in some zones, given by id or by name.

    The offerings stay: pods may still be spread over the zone, only nothing can be launched in it.
    """
    if not zones:
        return tuple(types)

    def closed(offering: Offering) -> Offering:
        hit = offering.available and (offering.zone_id in zones or offering.zone in zones)
        return replace(offering, available=False) if hit else offering

    return tuple(replace(item, offerings=tuple(closed(offering) for offering in item.offerings)) for item in types)
