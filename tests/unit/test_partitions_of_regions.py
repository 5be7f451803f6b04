"""Regions are placed as botocore places them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.regions import EndpointResolver
from botocore.session import get_session

from shiplap import regions


def listed() -> Iterator[tuple[str, str]]:
    """Every Region of every partition, by the list that clients take their endpoints from."""
    for partition in get_session().get_data("endpoints")["partitions"]:
        for region in sorted(partition["regions"]):
            yield region, partition["partition"]


LISTED = sorted(listed())


def test_every_region_of_every_partition_is_placed_with_the_host_of_its_services() -> None:
    resolver = EndpointResolver(get_session().get_data("endpoints"))
    hosts = {region: resolver.construct_endpoint("sts", region)["hostname"] for region, _ in LISTED}

    assert {region: f"sts.{region}.{regions.dns_suffix(region)}" for region, _ in LISTED} == hosts
    assert [(region, regions.partition_of(region)) for region, _ in LISTED] == LISTED
    assert all(regions.exists(region) for region, _ in LISTED)
    assert {partition for _, partition in LISTED} >= {"aws", "aws-cn", "aws-us-gov", "aws-iso", "aws-eusc"}


@pytest.mark.parametrize(
    "name", ["eu-west-9", "cn-south-1", "us-gov-north-1", "nowhere", "", "aws-global", "eu-west-1a"]
)
def test_what_is_no_region_does_not_exist(name: str) -> None:
    assert not regions.exists(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("eu-west-9", ("eu-west-1", "eu-west-2", "eu-west-3")),
        ("EU-WEST-1", ("eu-west-1",)),
        ("us-gov-east-7", ("us-gov-east-1", "us-gov-west-1")),
        ("aws-global", ()),
        ("nowhere", ()),
        ("", ()),
    ],
)
def test_the_nearest_names_are_told_of_what_is_no_region(name: str, near: tuple[str, ...]) -> None:
    assert regions.nearest(name)[: len(near) or None] == near


def test_a_region_that_is_newer_than_botocore_is_placed_by_its_name() -> None:
    assert regions.partition_of("cn-south-9") == "aws-cn"
    assert regions.dns_suffix("cn-south-9") == "amazonaws.com.cn"
    assert regions.partition_of("nowhere") == "aws"
