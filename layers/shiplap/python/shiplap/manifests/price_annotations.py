"""What a NodePool's annotations say about money: ceilings, discounts, and how much of it may be spot."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import NodePool

MICROS = 1_000_000
"""Millionths of a dollar in a dollar: sums of money are whole numbers of these, so that they are exact."""


class PriceRules(msgspec.Struct, frozen=True):
    """Prices in USD per hour, None for no ceiling; discounts are fractions.

    `max_hourly_micros` bounds the sum over the pool's nodes, in millionths of a dollar. `min_on_demand` is the share of
    nodes that must not be spot, `min_on_demand_vcpus` that of their vCPUs, both in hundredths of a per cent; None
    without a rule.
    """

    max_hourly_micros: int | None = None
    max_node_price: float | None = None
    max_vcpu_price: float | None = None
    on_demand_discount: float = 0.0
    spot_discount: float = 0.0
    min_on_demand: int | None = None
    min_on_demand_vcpus: int | None = None

    @property
    def changes_types(self) -> bool:
        """Whether the pool sees other prices, or fewer offerings, than its EC2NodeClass has."""
        ceilings = (self.max_node_price, self.max_vcpu_price)
        return bool(self.on_demand_discount or self.spot_discount) or any(price is not None for price in ceilings)


NO_RULES = PriceRules()


def price_rules(pool: NodePool) -> PriceRules:
    """The rules of a pool. Raises ValueError if an annotation is not as validation wants it."""
    written = pool.metadata.annotations
    if not any(key in written for key in _KEYS):
        return NO_RULES
    for key in _KEYS:
        if key in written and (wrong := shiplap_annotations.node_pool_problem(key, written[key])):
            raise ValueError(f"NodePool {pool.metadata.name}: {key}: {wrong}")
    total = written.get(shiplap_annotations.MAX_HOURLY_PRICE)
    return PriceRules(
        max_hourly_micros=None if total is None else int(Decimal(total) * MICROS),
        max_node_price=_number(written.get(shiplap_annotations.MAX_NODE_PRICE)),
        max_vcpu_price=_number(written.get(shiplap_annotations.MAX_VCPU_PRICE)),
        on_demand_discount=float(written.get(shiplap_annotations.ON_DEMAND_DISCOUNT, 0)),
        spot_discount=float(written.get(shiplap_annotations.SPOT_DISCOUNT, 0)),
        min_on_demand=_share(written.get(shiplap_annotations.MIN_ON_DEMAND)),
        min_on_demand_vcpus=_share(written.get(shiplap_annotations.MIN_ON_DEMAND_VCPUS)),
    )


_KEYS = (
    shiplap_annotations.MAX_HOURLY_PRICE,
    shiplap_annotations.MAX_NODE_PRICE,
    shiplap_annotations.MAX_VCPU_PRICE,
    shiplap_annotations.ON_DEMAND_DISCOUNT,
    shiplap_annotations.SPOT_DISCOUNT,
    shiplap_annotations.MIN_ON_DEMAND,
    shiplap_annotations.MIN_ON_DEMAND_VCPUS,
)


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _share(text: str | None) -> int | None:
    """Hundredths of a per cent."""
    return None if text is None else int(Decimal(text.removesuffix("%")) * 100)
