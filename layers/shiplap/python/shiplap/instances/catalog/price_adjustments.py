"""Instance types as a NodePool with price rules sees them: discounted, and without offerings above a ceiling."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU
from shiplap.manifests.price_annotations import PriceRules


def apply(types: Sequence[InstanceType], rules: PriceRules) -> tuple[InstanceType, ...]:
    """The types with discounts taken off; offerings above a ceiling after that are not available. Order is kept.

    Ceilings apply to the price that is paid, so to discounted prices, those of NodeOverlays included.
    """
    if not rules.changes_types:
        return tuple(types)
    return tuple(
        replace(item, offerings=tuple(_priced(item, offering, rules) for offering in item.offerings)) for item in types
    )


def _priced(item: InstanceType, offering: Offering, rules: PriceRules) -> Offering:
    discounts = {labels.ON_DEMAND: rules.on_demand_discount, labels.SPOT: rules.spot_discount}
    price = offering.price * (1 - discounts.get(offering.capacity_type, 0.0))
    v_cpus = item.capacity.get(CPU, 0) / 1000
    dear = (rules.max_node_price is not None and price > rules.max_node_price) or (
        rules.max_vcpu_price is not None and price > rules.max_vcpu_price * v_cpus
    )
    return replace(offering, price=price, available=offering.available and not dear)
