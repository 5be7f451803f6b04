"""What EC2 sells in a region: instance types, the zones that offer them, and spot prices."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import AwsError, InvalidInput
from shiplap.instances.catalog import ARCHITECTURES, Ec2InstanceType, ZonePrice, of_describe

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

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
            known += of_describe([record])
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
    found: dict[str, set[str]] = {}
    with aws_errors("describe instance type offerings"):
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", PaginationConfig={"PageSize": 1000}
        )
        for page in pages:
            for offering in page["InstanceTypeOfferings"]:
                found.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


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
