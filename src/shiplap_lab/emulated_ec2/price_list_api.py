"""The Pricing API's GetProducts, of which moto has nothing: one product per type, in AWS's own nesting."""

from __future__ import annotations

import json
from typing import Any

from shiplap_lab.emulated_ec2.regional_prices import Prices

TARGET = "AWSPriceListService.GetProducts"
_PAGE = 100


def get_products(prices: Prices, request: dict[str, Any]) -> dict[str, Any]:
    """Answer for the filters the product sends: metal types are sold under the dedicated bare-metal family."""
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
