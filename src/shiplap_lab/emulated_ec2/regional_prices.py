"""Prices of the emulated region, and the Pricing API's GetProducts that tells them, which moto lacks.

On-demand prices are estimated from hardware. Spot prices are a stable fraction of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
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


PRICE_LIST_TARGET = "AWSPriceListService.GetProducts"
_PAGE = 100


def get_products(prices: Prices, request: dict[str, Any]) -> dict[str, Any]:
    """One product per type for the filters that Shiplap sends; metal types are sold under a family of their own."""
    wanted = {item["Field"]: item["Value"] for item in request.get("Filters", ())}
    metal = wanted.get("productFamily") == "Compute Instance (bare metal)"
    names = [name for name in prices.known() if ("metal" in name.partition(".")[2]) == metal]
    start = int(request.get("NextToken") or 0)
    page = names[start : start + min(int(request.get("MaxResults") or _PAGE), _PAGE)]
    answer: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": [
            json.dumps(_product(name, prices.on_demand(name), wanted.get("regionCode", ""))) for name in page
        ],
    }
    if start + len(page) < len(names):
        answer["NextToken"] = str(start + len(page))
    return answer


def _product(instance_type: str, price: float | None, region: str) -> dict[str, Any]:
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {"instanceType": instance_type, "regionCode": region, "operatingSystem": "Linux"},
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                "offer": {
                    "priceDimensions": {
                        "dimension": {"unit": "Hrs", "pricePerUnit": {"USD": f"{price or 0:.10f}"}},
                    }
                }
            }
        },
    }
