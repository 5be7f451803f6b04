"""The catalogue made of EC2's and the Pricing API's answers, and what is kept when they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from shiplap.aws.pricing.catalog_source import Ec2CatalogSource, instance_types
from shiplap.aws.pricing.on_demand_prices import endpoint_region, on_demand_prices
from shiplap.errors import AwsError, AwsThrottled
from shiplap.instances.catalog.ec2_catalog import Catalog, TypePrices, ZonePrice
from shiplap_lab.catalogue import embedded
from tests.integration.contracts.emulated_ec2 import PRICES, REGION, START, Region, emulated_region

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


@pytest.fixture(scope="module")
def fresh(running: Region) -> Catalog:
    return source(running).fetch(None)


def source(region: Region, name: str = REGION) -> Ec2CatalogSource:
    return Ec2CatalogSource(
        name, ec2=region.client("ec2"), price_list=lambda _: region.client("pricing"), clock=lambda: START
    )


def test_types_zones_and_ids(fresh: Catalog) -> None:
    names = [kind.instance_type for kind in fresh.types]
    assert names == sorted(names)
    assert len(names) > 1000
    assert "us-east-1a" in fresh.zones["m5.large"]
    assert "us-east-1e" not in fresh.zones["c7i-flex.large"]
    assert fresh.zone_ids["us-east-1a"].startswith("use1-az")
    assert fresh.refreshed_at == START


def test_prices_of_virtual_and_metal_types(fresh: Catalog) -> None:
    assert fresh.prices["m5.large"].on_demand == PRICES["m5.large"]
    assert fresh.prices["m5.metal"].on_demand == PRICES["m5.metal"]
    spot = {quote.zone: quote.price for quote in fresh.prices["m5.large"].spot}
    assert set(spot) == set(fresh.zones["m5.large"])
    assert all(0 < price < PRICES["m5.large"] for price in spot.values())
    assert "t3.micro" not in fresh.prices


def test_the_version_follows_the_content(running: Region, fresh: Catalog) -> None:
    running.control.price("m5.large", 1.0)
    try:
        assert source(running).fetch(fresh).version != fresh.version
    finally:
        running.control.price("m5.large", PRICES["m5.large"])


def test_prices_that_cannot_be_had_stay(running: Region, fresh: Catalog) -> None:
    before = msgspec.structs.replace(fresh, prices={**fresh.prices, "t3.micro": TypePrices(on_demand=0.5)})
    running.control.fault("DescribeSpotPriceHistory", "UnauthorizedOperation")
    isolated = Ec2CatalogSource(
        "us-gov-west-1", ec2=running.client("ec2"), price_list=_never, clock=lambda: START + 3600
    ).fetch(before)
    assert isolated.prices == before.prices
    assert (isolated.on_demand_at, isolated.spot_at) == (START, START)
    assert isolated.refreshed_at == START + 3600
    assert isolated.prices["t3.micro"].on_demand == 0.5


def test_a_type_that_an_answer_leaves_out_keeps_its_spot_prices(running: Region, fresh: Catalog) -> None:
    """Zones that it leaves out of a type it names do not: there EC2 has said what it sells."""
    known = TypePrices(spot=(ZonePrice("us-east-1a", 0.4),))
    gone = TypePrices(on_demand=PRICES["m5.large"], spot=(ZonePrice("us-east-1z", 0.4),))
    before = msgspec.structs.replace(fresh, prices={**fresh.prices, "t3.micro": known, "m5.large": gone})
    after = source(running).fetch(before)
    assert after.prices["t3.micro"].spot == known.spot
    assert after.prices["m5.large"].spot == fresh.prices["m5.large"].spot


def _never(region: str) -> None:
    raise AssertionError(f"the Pricing API of {region} was asked")


def test_prices_that_were_never_told_have_no_age(running: Region) -> None:
    running.control.fault("DescribeSpotPriceHistory", "UnauthorizedOperation")
    found = Ec2CatalogSource("us-gov-west-1", ec2=running.client("ec2"), price_list=_never, clock=lambda: START).fetch(
        None
    )
    assert (found.on_demand_at, found.spot_at) == (0.0, 0.0)
    assert found.prices == {}


def test_yuan_are_prices_too() -> None:
    entry = (
        '{"product": {"attributes": {"instanceType": "m5.large"}}, "terms": {"OnDemand": {"x": {"priceDimensions": '
        '{"y": {"unit": "Hrs", "pricePerUnit": {"CNY": "0.7"}}}}}}}'
    )
    assert on_demand_prices(Prices(entry), "cn-north-1") == {"m5.large": 0.7}  # type: ignore[arg-type]


def test_without_types_there_is_no_catalogue(running: Region) -> None:
    running.control.fault("DescribeInstanceTypes", "RequestLimitExceeded")
    with pytest.raises(AwsThrottled):
        source(running).fetch(None)


class Prices:
    """A Pricing client with given entries; of bare metal it tells `bare_metal`, or raises it."""

    def __init__(self, *entries: str, bare_metal: tuple[str, ...] | Exception | None = None) -> None:
        self._entries = entries
        self._bare_metal = bare_metal

    def get_paginator(self, operation: str) -> Prices:
        return self

    def paginate(self, **parameters: Any) -> list[dict[str, list[str]]]:
        family = next(item["Value"] for item in parameters["Filters"] if item["Field"] == "productFamily")
        if self._bare_metal is None or "bare metal" not in family:
            return [{"PriceList": list(self._entries)}]
        if isinstance(self._bare_metal, Exception):
            raise self._bare_metal
        return [{"PriceList": list(self._bare_metal)}]


def test_an_empty_or_broken_price_list_changes_nothing() -> None:
    with pytest.raises(AwsError, match="holds nothing"):
        on_demand_prices(Prices(), REGION)  # type: ignore[arg-type]
    with pytest.raises(AwsError, match="holds nothing"):
        on_demand_prices(Prices("{}"), REGION)  # type: ignore[arg-type]


def entry(name: str, price: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": price}}
    terms = {"OnDemand": {"term": {"priceDimensions": {"one": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


DEEP = '{"more": ' + "[" * 10_000 + "]" * 10_000 + "}"


@pytest.mark.parametrize("odd", ["{}", "[" * 100_000, DEEP, entry("m5.xlarge", "banana")])
def test_an_odd_entry_of_a_price_list_is_left_out(odd: str) -> None:
    prices = on_demand_prices(Prices(odd, entry("m5.large", "0.096")), REGION)  # type: ignore[arg-type]
    assert prices == {"m5.large": 0.096}


@pytest.mark.parametrize(
    "bare_metal",
    [(), ("{}",), ClientError({"Error": {"Code": "InternalErrorException", "Message": "again"}}, "GetProducts")],
    ids=["none", "unreadable", "refused"],
)
def test_a_region_without_prices_of_bare_metal_keeps_its_others(bare_metal: tuple[str, ...] | Exception) -> None:
    client = Prices(entry("m5.large", "0.096"), bare_metal=bare_metal)
    assert on_demand_prices(client, REGION) == {"m5.large": 0.096}  # type: ignore[arg-type]


class Types:
    """An EC2 client that describes given instance types."""

    def __init__(self, *records: dict) -> None:
        self._records = records

    def get_paginator(self, operation: str) -> Types:
        return self

    def paginate(self, **parameters: object) -> list[dict[str, list[dict]]]:
        return [{"InstanceTypes": list(self._records)}]


def test_an_odd_instance_type_is_left_out() -> None:
    types = embedded.load(REGION).types
    good = msgspec.to_builtins(types[0])
    assert instance_types(Types(good, {"InstanceType": "odd.large"})) == (types[0],)  # type: ignore[arg-type]
    with pytest.raises(AwsError, match=r"odd\.large"):
        instance_types(Types({"InstanceType": "odd.large"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("us-east-1", "us-east-1"), ("sa-east-1", "us-east-1"), ("ap-northeast-1", "ap-south-1"),
        ("eu-west-1", "eu-central-1"), ("cn-north-1", "cn-northwest-1"), ("us-gov-west-1", ""),
        ("us-iso-east-1", ""), ("eu-isoe-west-1", ""), ("eusc-de-east-1", ""),
    ],
)  # fmt: skip
def test_where_prices_are_asked_for(region: str, endpoint: str) -> None:
    assert endpoint_region(region) == endpoint
