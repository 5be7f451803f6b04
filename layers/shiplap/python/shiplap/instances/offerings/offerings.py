"""The ways an instance type can be bought under an EC2NodeClass, with price and availability."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import Catalog, Ec2InstanceType, TypePrices
from shiplap.instances.catalog.resolved_nodeclass import (
    ACTIVE,
    CapacityReservation,
    PlacementGroup,
    ResolvedNodeClass,
)
from shiplap.instances.catalog.type_catalog import RESERVED_PRICE_FACTOR, InstanceType, Offering
from shiplap.instances.offerings import estimated_prices
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes.labels import ON_DEMAND, RESERVED, SPOT
from shiplap.manifests.custom_resources import EC2NodeClassSpec, NetworkInterface

_NO_PRICES = TypePrices()


def offerings(
    catalog: Catalog,
    kind: Ec2InstanceType,
    *,
    compatible: bool,
    zones: Collection[str] | None,
    unavailable: Collection[tuple[str, str, str]],
    reservations: Sequence[CapacityReservation] = (),
) -> tuple[Offering, ...]:
    """Zone × capacity type, sorted, then one per reservation; USD per hour.

    Args:
        compatible: whether nodes of the type can run under the EC2NodeClass (see `incompatibility`).
        zones: zones the EC2NodeClass has subnets in, or None for all.
        unavailable: (type, zone, capacity type) that EC2 refused lately; a set, for speed.
        reservations: those of this type that the EC2NodeClass selects; what is not active cannot be bought.
    """
    name = kind.instance_type
    known = catalog.prices.get(name, _NO_PRICES)
    on_demand = known.on_demand
    estimated = known.estimated
    if on_demand is None:
        on_demand, estimated = estimated_prices.on_demand(kind), True
    spot = {quote.zone: quote.price for quote in known.spot}
    result = []
    for zone in catalog.zones.get(name, ()):
        if zones is not None and zone not in zones:
            continue
        zone_id = catalog.zone_ids.get(zone, "")
        for capacity_type in (ON_DEMAND, SPOT):
            if capacity_type not in kind.supported_usage_classes:
                continue
            price, guessed = on_demand, estimated
            if capacity_type == SPOT:
                price = spot.get(zone, on_demand * estimated_prices.SPOT_FRACTION)
                guessed = estimated or zone not in spot
            available = compatible and (name, zone, capacity_type) not in unavailable
            result.append(Offering(zone, capacity_type, price, available, zone_id, price_estimated=guessed))
    for held in sorted(reservations, key=lambda held: held.id):
        if zones is None or held.zone in zones:
            rests = (held.id, held.zone, RESERVED) in unavailable or (name, held.zone, RESERVED) in unavailable
            usable = compatible and held.available > 0 and held.state == ACTIVE and not rests
            zone_id = catalog.zone_ids.get(held.zone, "")
            result.append(_reserved(held, on_demand * RESERVED_PRICE_FACTOR, zone_id, available=usable))
    return tuple(result)


def with_all_zones(types: Iterable[InstanceType], catalog: Catalog) -> tuple[InstanceType, ...]:
    """The same types with their offerings in the zones that they lack; none of these is available.

    An instance may be in a zone that its EC2NodeClass does not select any more, and has that zone's price.
    """
    kinds = {kind.instance_type: kind for kind in catalog.types}

    def complete(item: InstanceType) -> InstanceType:
        if item.name not in kinds:
            return item
        known = {offering.zone for offering in item.offerings}
        everywhere = offerings(catalog, kinds[item.name], compatible=False, zones=None, unavailable=())
        return replace(item, offerings=(*item.offerings, *(each for each in everywhere if each.zone not in known)))

    return tuple(complete(item) for item in types)


def catalog_prices(catalog: Catalog) -> NodePrices:
    """Return the prices of nodes by the catalogue of a Region alone, without NodePools and their NodeOverlays."""
    return NodePrices(
        others={
            kind.instance_type: offerings(catalog, kind, compatible=True, zones=None, unavailable=())
            for kind in catalog.types
        }
    )


def _reserved(held: CapacityReservation, price: float, zone_id: str, *, available: bool) -> Offering:
    return Offering(
        held.zone,
        RESERVED,
        price,
        available,
        zone_id,
        held.id,
        held.available,
        reservation_type=held.type,
        reservation_interruptible=held.interruptible,
        reservation_state="" if held.state == ACTIVE else held.state,
        starts_at=0.0 if held.state == ACTIVE else held.starts_at,
    )


def subnet_zones(resolved: ResolvedNodeClass | None) -> frozenset[str] | None:
    """Zones with a subnet of the EC2NodeClass; None when its selectors were not answered."""
    return None if resolved is None else frozenset(subnet.zone for subnet in resolved.subnets)


def incompatibility(
    kind: Ec2InstanceType, family: AmiFamily, spec: EC2NodeClassSpec, group: PlacementGroup | None = None
) -> str | None:
    """Return why EC2 can launch no node of this type under an EC2NodeClass, or None when EC2 can.

    Such a type stays in the catalogue without available offerings, so that it can be named as a near miss.
    """
    if group is not None and group.strategy not in kind.placement_group_info.supported_strategies:
        return f"it cannot be put into a placement group of strategy {group.strategy}"
    if family.name == "AL2023" and kind.instance_type.startswith("a1."):
        return "AL2023 does not support the first generation of Graviton"
    if spec.connection_tracking is not None and kind.hypervisor != "nitro":
        return "connectionTracking needs a Nitro instance"
    has_enclaves = spec.enclave_options is not None and spec.enclave_options.enabled
    if has_enclaves and kind.nitro_enclaves_support != "supported":
        return "Nitro Enclaves are not supported"
    nested = spec.cpu_options is not None and spec.cpu_options.nested_virtualization == "enabled"
    if nested and "nested-virtualization" not in kind.processor_info.supported_features:
        return "nested virtualization is not supported"
    return _unattachable(kind, spec.network_interfaces) if spec.network_interfaces else None


def _unattachable(kind: Ec2InstanceType, wanted: Collection[NetworkInterface]) -> str | None:
    cards = kind.network_info.network_cards
    for nic in wanted:
        if nic.network_card_index >= len(cards):
            return f"there is no network card {nic.network_card_index}"
        if nic.device_index >= cards[nic.network_card_index].maximum_network_interfaces:
            return f"network card {nic.network_card_index} has no device {nic.device_index}"
    adapters = sum(1 for nic in wanted if nic.interface_type == "efa-only")
    efa = kind.network_info.efa_info
    if adapters > (efa.maximum_efa_interfaces if efa else 0):
        return f"{adapters} elastic fabric adapters are more than it supports"
    return None


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
