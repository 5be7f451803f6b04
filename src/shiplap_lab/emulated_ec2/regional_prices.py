"""Prices of the emulated region: on demand as estimated from hardware, spot a stable fraction of that."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.offerings.estimated_prices import on_demand


class Prices:
    """USD per hour. A scenario may set its own with `set`."""

    def __init__(self, on_demand: Mapping[str, float]) -> None:
        self._on_demand = dict(on_demand)

    @classmethod
    def of(cls, catalog: Catalog) -> Prices:
        """Prices of all types: the catalogue's, else what they are estimated at."""
        listed = {name: price.on_demand for name, price in catalog.prices.items() if price.on_demand is not None}
        return cls({kind.instance_type: on_demand(kind) for kind in catalog.types} | listed)

    def set(self, instance_type: str, price: float) -> None:
        """Change an on-demand price; spot follows."""
        self._on_demand[instance_type] = price

    def known(self) -> list[str]:
        """Types with a price, sorted."""
        return sorted(self._on_demand)

    def on_demand(self, instance_type: str) -> float | None:
        return self._on_demand.get(instance_type)

    def spot(self, instance_type: str, zone: str) -> float | None:
        """Between 28 % and 45 % of on demand, differing by type and zone but always the same for them."""
        price = self._on_demand.get(instance_type)
        if price is None:
            return None
        fraction = 0.28 + crc32(f"{instance_type}/{zone}".encode()) % 1700 / 10000
        return round(price * fraction, 6)

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float:
        """Of an offering; types without a price sort last."""
        price = self.spot(instance_type, zone) if capacity_type == "spot" else self.on_demand(instance_type)
        return float("inf") if price is None else price
