"""The port CatalogSource: instance types, zones and spot prices of EC2, and on-demand prices of the Pricing API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec

from shiplap.aws.ec2_errors import aws_errors, readable
from shiplap.aws.pricing import on_demand_prices
from shiplap.errors import AwsError, InvalidInput
from shiplap.instances.catalog.ec2_catalog import (
    ARCHITECTURES,
    Catalog,
    Ec2InstanceType,
    TypePrices,
    ZonePrice,
    parse_instance_types,
)

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_pricing import PricingClient

_LOG = logging.getLogger(__name__)

_MOST_NAMED = 20
"""Problems named in one line of the log."""

_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


def instance_types(ec2: EC2Client) -> tuple[Ec2InstanceType, ...]:
    """All types a node can run on, by name. A type that cannot be read is logged and left out.

    Raises:
        AwsThrottled, AwsError: EC2 refused, or nothing of its answer can be read.
    """
    with aws_errors("describe instance types"):
        pages = ec2.get_paginator("describe_instance_types").paginate(
            Filters=[
                {"Name": "supported-virtualization-type", "Values": ["hvm"]},
                {"Name": "processor-info.supported-architecture", "Values": sorted(ARCHITECTURES)},
            ],
            PaginationConfig={"PageSize": 100},
        )
        records = [record for page in pages for record in page["InstanceTypes"]]
    known: list[Ec2InstanceType] = []
    problems: list[str] = []
    for record in records:
        try:
            known += parse_instance_types([record])
        except InvalidInput as error:
            problems.append(str(error))
    if problems:
        _LOG.warning("%d instance types cannot be read: %s", len(problems), "; ".join(problems[:_MOST_NAMED]))
    if problems and not known:
        raise AwsError(problems[0])
    return tuple(sorted(known, key=lambda kind: kind.instance_type))


def zones_by_type(ec2: EC2Client) -> dict[str, tuple[str, ...]]:
    """For each type the zones that offer it, sorted.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    zones: dict[str, set[str]] = {}
    with aws_errors("describe instance type offerings"):
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", PaginationConfig={"PageSize": 1000}
        )
        for page in pages:
            for offering in page["InstanceTypeOfferings"]:
                zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return {name: tuple(sorted(zones[name])) for name in sorted(zones)}


def zone_ids(ec2: EC2Client) -> dict[str, str]:
    """The id of each zone, by its name in this account.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    with aws_errors("describe availability zones"):
        zones = ec2.describe_availability_zones()["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in sorted(zones, key=lambda zone: zone["ZoneName"])}


def spot_prices(ec2: EC2Client, now: float) -> dict[str, tuple[ZonePrice, ...]]:
    """The current spot price of each type in each zone, USD per hour, zones sorted. `now` is epoch seconds.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    newest: dict[tuple[str, str], tuple[datetime, float]] = {}
    with aws_errors("describe spot prices"):
        pages = ec2.get_paginator("describe_spot_price_history").paginate(
            ProductDescriptions=list(_PRODUCTS),
            StartTime=datetime.fromtimestamp(now, tz=UTC),
            PaginationConfig={"PageSize": 1000},
        )
        for page in pages:
            for seen in page["SpotPriceHistory"]:
                offering = (seen["InstanceType"], seen["AvailabilityZone"])
                price = (seen["Timestamp"], float(seen["SpotPrice"]))
                newest[offering] = max(price, newest.get(offering, price))
    prices: dict[str, list[ZonePrice]] = {}
    for name, zone in sorted(newest):
        prices.setdefault(name, []).append(ZonePrice(zone, newest[name, zone][1]))
    return {name: tuple(zones) for name, zones in prices.items()}


_Answer = TypeVar("_Answer")


class Ec2CatalogSource:
    """Of one region. `price_list` makes a Pricing client for a region; `clock` gives epoch seconds."""

    def __init__(
        self,
        region: str,
        *,
        ec2: EC2Client,
        price_list: Callable[[str], PricingClient],
        clock: Callable[[], float],
    ) -> None:
        self._region = region
        self._ec2 = ec2
        self._price_list = price_list
        self._clock = clock

    @readable
    def fetch(self, previous: Catalog | None) -> Catalog:
        """A fresh catalogue. Prices that cannot be had now, or are missing, stay as they were.

        An isolated VPC or GovCloud reaches no Pricing API; types without a price get an estimate later.

        Raises:
            AwsThrottled, AwsError: EC2 refused to describe its types or their zones.
        """
        now = self._clock()
        known = previous.prices if previous is not None else {}
        types = instance_types(self._ec2)
        on_demand = _or_nothing("on-demand prices", readable(self._on_demand))
        spot = _or_nothing("spot prices", lambda: readable(spot_prices)(self._ec2, now))
        catalog = Catalog(
            region=self._region,
            types=types,
            zones=zones_by_type(self._ec2),
            zone_ids=zone_ids(self._ec2),
            prices=merged_prices(types, on_demand, spot, known),
        )
        digest = sha256(msgspec.msgpack.encode(catalog, order="deterministic")).hexdigest()
        return msgspec.structs.replace(
            catalog,
            refreshed_at=now,
            version=digest[:12],
            on_demand_at=now if on_demand else (previous.on_demand_at if previous else 0.0),
            spot_at=now if spot else (previous.spot_at if previous else 0.0),
        )

    def _on_demand(self) -> dict[str, float]:
        endpoint = on_demand_prices.endpoint_region(self._region)
        return on_demand_prices.on_demand_prices(self._price_list(endpoint), self._region) if endpoint else {}


def _or_nothing(what: str, fetch: Callable[[], Mapping[str, _Answer]]) -> Mapping[str, _Answer]:
    """Prices that cannot be fetched are no failure: the last known ones are kept."""
    try:
        return fetch()
    except AwsError as error:
        _LOG.warning("no fresh %s: %s", what, error, extra={"code": error.code})
        return {}


def merged_prices(
    types: tuple[Ec2InstanceType, ...],
    on_demand: Mapping[str, float],
    spot: Mapping[str, tuple[ZonePrice, ...]],
    known: Mapping[str, TypePrices],
) -> dict[str, TypePrices]:
    """Prices by type. Fresh ones replace those of all zones of their type; a type without any keeps what was known."""
    prices = {}
    for name in (kind.instance_type for kind in types):
        before = known.get(name, TypePrices())
        fresh = on_demand.get(name)
        price = TypePrices(
            on_demand=before.on_demand if fresh is None else fresh,
            spot=spot.get(name, before.spot),
            estimated=before.estimated and fresh is None,
        )
        if price != TypePrices():
            prices[name] = price
    return prices
