"""On-demand prices from the Pricing API, which lives in a few regions and knows all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import AwsError

if TYPE_CHECKING:
    from types_boto3_pricing import PricingClient
    from types_boto3_pricing.type_defs import FilterTypeDef

_LOG = logging.getLogger(__name__)

_ENDPOINTS = (
    ("us-gov-", ""),
    ("us-iso", ""),
    ("eu-iso", ""),
    ("eusc-", ""),
    ("ap-", "ap-south-1"),
    ("cn-", "cn-northwest-1"),
    ("eu-", "eu-central-1"),
)
"""By how a Region's name begins; none in partitions without a Pricing API."""

_SHARED = ("Shared", "Compute Instance")
_BARE_METAL = ("Dedicated", "Compute Instance (bare metal)")


class _Attributes(msgspec.Struct, rename="camel"):
    instance_type: str = ""


class _Product(msgspec.Struct):
    attributes: _Attributes


class _Dimension(msgspec.Struct, rename="camel"):
    unit: str
    price_per_unit: dict[str, str]


class _Term(msgspec.Struct, rename="camel"):
    price_dimensions: dict[str, _Dimension]


class _Terms(msgspec.Struct):
    on_demand: dict[str, _Term] = msgspec.field(name="OnDemand", default={})


class _Offer(msgspec.Struct):
    """One entry of a price list; the fields that are not needed are skipped."""

    product: _Product
    terms: _Terms


def endpoint_region(region: str) -> str:
    """The region whose Pricing API to ask about a region; empty where there is none (GovCloud, isolated partitions)."""
    return next((endpoint for prefix, endpoint in _ENDPOINTS if region.startswith(prefix)), "us-east-1")


def on_demand_prices(pricing: PricingClient, region: str) -> dict[str, float]:
    """USD (in China CNY) per hour of Linux on shared hardware, and of bare metal, by instance type.

    Entries that cannot be read are logged and left out. Not every Region sells bare metal: without its prices, the
    others are as good.

    Raises:
        AwsThrottled, AwsError: the service refused, or answered with nothing for shared hardware.
    """
    currency = "CNY" if region.startswith("cn-") else "USD"
    tenancy, family = _SHARED
    shared = dict(prices_of_offers(_offers(pricing, region, tenancy, family), currency))
    if not shared:
        raise AwsError(f"the price list of {region} holds nothing for {family}")
    return {**_bare_metal_prices(pricing, region, currency), **shared}


def _bare_metal_prices(pricing: PricingClient, region: str, currency: str) -> dict[str, float]:
    """None where they cannot be had: those known before, or estimates, stand in for them."""
    try:
        return dict(prices_of_offers(_offers(pricing, region, *_BARE_METAL), currency))
    except AwsError as error:
        _LOG.warning("no fresh prices of bare metal: %s", error, extra={"region": region, "code": error.code})
        return {}


def _offers(pricing: PricingClient, region: str, tenancy: str, family: str) -> Iterable[str | bytes]:
    wanted = {
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "productFamily": family,
        "regionCode": region,
        "serviceCode": "AmazonEC2",
        "tenancy": tenancy,
    }
    filters: list[FilterTypeDef] = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()
    ]
    with aws_errors(f"read the price list of {region}"):
        pages = pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
        for page in pages:
            offers: list[Any] = page["PriceList"]
            yield from offers


def prices_of_offers(offers: Iterable[str | bytes], currency: str) -> Iterable[tuple[str, float]]:
    """Yield instance types with their USD, or another currency, per hour; offers that cannot be read are logged."""
    decoder = msgspec.json.Decoder(_Offer)
    for text in offers:
        try:
            offer = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            _LOG.warning("a price list entry cannot be read: %s", error)
            continue
        for term in offer.terms.on_demand.values():
            for dimension in term.price_dimensions.values():
                try:
                    price = float(dimension.price_per_unit.get(currency, 0))
                except ValueError as error:
                    _LOG.warning("a price of %s cannot be read: %s", offer.product.attributes.instance_type, error)
                    continue
                if dimension.unit == "Hrs" and price > 0:
                    yield offer.product.attributes.instance_type, price
