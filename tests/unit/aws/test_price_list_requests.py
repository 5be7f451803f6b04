"""Tests the requests to the price list: it holds every operating system, tenancy and licence of a type."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.aws.pricing.on_demand_prices import on_demand_prices, prices_of_offers

ASKED = {
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "regionCode": "eu-west-1",
    "serviceCode": "AmazonEC2",
}


class PriceList:
    """One offer on each page; `asked` are the filters of each request."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "get_products"
        return SimpleNamespace(paginate=self._paginate)

    def _paginate(self, *, ServiceCode: str, Filters: list[dict[str, str]]) -> list[dict[str, Any]]:  # noqa: N803
        assert ServiceCode == "AmazonEC2"
        assert {item["Type"] for item in Filters} == {"TERM_MATCH"}
        self.asked.append({item["Field"]: item["Value"] for item in Filters})
        kind = "metal" if "bare metal" in self.asked[-1]["productFamily"] else "large"
        return [
            {"PriceList": [offer(f"{family}.{kind}", price)]} for family, price in (("m6i", "0.5"), ("c7i", "0.25"))
        ]


def offer(name: str, price: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": price}}
    terms = {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


@pytest.mark.parametrize(
    ("tenancy", "family"), [("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)")]
)
def test_only_linux_without_a_licence_is_asked_for(tenancy: str, family: str) -> None:
    pricing: Any = PriceList()
    found = on_demand_prices(pricing, "eu-west-1")
    assert len(pricing.asked) == 2
    assert ASKED | {"productFamily": family, "tenancy": tenancy} in pricing.asked
    assert found == {"m6i.large": 0.5, "c7i.large": 0.25, "m6i.metal": 0.5, "c7i.metal": 0.25}


@pytest.mark.parametrize(
    "dimensions",
    [
        {"reserved": {"unit": "Quantity", "pricePerUnit": {"USD": "300"}}},
        {"yuan": {"unit": "Hrs", "pricePerUnit": {"CNY": "7"}}},
        {"free": {"unit": "Hrs", "pricePerUnit": {"USD": "0.0"}}},
        {"odd": {"unit": "Hrs", "pricePerUnit": {"USD": "banana"}}},
    ],
    ids=["not by the hour", "another currency", "nothing", "no number"],
)
def test_what_is_no_hourly_price_is_passed_over(dimensions: dict[str, Any]) -> None:
    dear = {"paid": {"unit": "Hrs", "pricePerUnit": {"USD": "0.5"}}}
    terms = {"OnDemand": {"t": {"priceDimensions": dimensions | dear}}}
    offers = [json.dumps({"product": {"attributes": {"instanceType": "m6i.large"}}, "terms": terms})]
    assert list(prices_of_offers(offers, "USD")) == [("m6i.large", 0.5)]
