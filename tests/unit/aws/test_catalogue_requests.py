"""Tests the requests to EC2 for the catalogue, and the kept prices where new prices do not come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.aws.ec2.ec2_compute import images
from shiplap.aws.failures import attempts
from shiplap.aws.pricing import catalog_source
from shiplap.aws.pricing.catalog_source import (
    Ec2CatalogSource,
    instance_types,
    merged_prices,
    spot_prices,
    zone_ids,
    zones_by_type,
)
from shiplap.errors import AwsError
from shiplap.instances.catalog.ec2_catalog import Catalog, TypePrices, ZonePrice
from tests.unit.instances.given_instances import kind

NOW = 1_800_000_000.0


class Asked:
    """A client that notes what its paginators are asked and answers with pages."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get_paginator(self, operation: str) -> Any:
        outer = self

        class _Paginator:
            def paginate(self, **options: Any) -> Sequence[Mapping[str, Any]]:
                outer.asked.append((operation, options))
                return outer._answer(options)

        return _Paginator()


def test_only_types_that_a_node_can_run_on_are_asked_for() -> None:
    ec2 = Asked(lambda _: [{"InstanceTypes": []}])
    assert instance_types(ec2) == ()  # type: ignore[arg-type]
    ((operation, options),) = ec2.asked
    assert operation == "describe_instance_types"
    assert options["Filters"] == [
        {"Name": "supported-virtualization-type", "Values": ["hvm"]},
        {"Name": "processor-info.supported-architecture", "Values": ["arm64", "x86_64"]},
    ]


def test_a_type_that_cannot_be_read_hides_no_other_and_all_of_them_are_an_error() -> None:
    broken = [{"InstanceTypes": [{"InstanceType": "odd"}]}]
    with pytest.raises(AwsError, match="odd"):
        instance_types(Asked(lambda _: broken))  # type: ignore[arg-type]


def test_zones_are_asked_for_by_name_and_sorted() -> None:
    offers = [("b", "z2"), ("a", "z9"), ("b", "z1")]
    pages = [{"InstanceTypeOfferings": [{"InstanceType": name, "Location": zone}]} for name, zone in offers]
    ec2 = Asked(lambda _: pages)
    assert list(zones_by_type(ec2).items()) == [("a", ("z9",)), ("b", ("z1", "z2"))]  # type: ignore[arg-type]
    assert ec2.asked[0][1]["LocationType"] == "availability-zone"


def test_zone_ids_are_by_name_in_order() -> None:
    class Zones:
        def describe_availability_zones(self) -> dict[str, Any]:
            return {"AvailabilityZones": [{"ZoneName": "b", "ZoneId": "2"}, {"ZoneName": "a", "ZoneId": "1"}]}

    assert list(zone_ids(Zones()).items()) == [("a", "1"), ("b", "2")]  # type: ignore[arg-type]


def spot(name: str, zone: str, price: str, ago_s: float) -> dict[str, Any]:
    at = datetime.fromtimestamp(NOW - ago_s, UTC)
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": at}


def test_the_newest_spot_price_of_linux_counts_in_each_zone() -> None:
    seen = [spot("m", "b", "0.3", 5), spot("m", "a", "0.2", 60), spot("m", "a", "0.1", 10), spot("c", "a", "0.5", 1)]
    seen += [spot("m", "b", "0.2", 50), spot("c", "a", "0.6", 2)]  # in no order
    ec2 = Asked(lambda _: [{"SpotPriceHistory": seen[:2]}, {"SpotPriceHistory": seen[2:]}])
    assert spot_prices(ec2, NOW) == {  # type: ignore[arg-type]
        "c": (ZonePrice("a", 0.5),),
        "m": (ZonePrice("a", 0.1), ZonePrice("b", 0.3)),
    }
    options = ec2.asked[0][1]
    assert options["ProductDescriptions"] == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
    assert options["StartTime"] == datetime.fromtimestamp(NOW, UTC)


OLD = TypePrices(0.1, (ZonePrice("a", 0.03),), estimated=True)
KNOWN = TypePrices(0.1, (ZonePrice("a", 0.03),))


@pytest.mark.parametrize(
    ("on_demand", "spots", "before", "after"),
    [
        (0.2, (ZonePrice("b", 0.05),), OLD, TypePrices(0.2, (ZonePrice("b", 0.05),))),
        (0.2, None, OLD, TypePrices(0.2, OLD.spot)),
        (None, (ZonePrice("b", 0.05),), OLD, TypePrices(0.1, (ZonePrice("b", 0.05),), estimated=True)),
        (None, None, OLD, OLD),
        (None, None, KNOWN, KNOWN),
        (0.2, None, KNOWN, TypePrices(0.2, KNOWN.spot)),
        (None, None, None, None),
        (0.2, None, None, TypePrices(0.2)),
    ],
)
def test_what_is_known_of_a_price_stays_until_a_fresh_one_comes(
    on_demand: float | None,
    spots: tuple[ZonePrice, ...] | None,
    before: TypePrices | None,
    after: TypePrices | None,
) -> None:
    fresh = {} if on_demand is None else {"m5.large": on_demand}
    zones = {} if spots is None else {"m5.large": spots}
    known = {} if before is None else {"m5.large": before}
    assert merged_prices((kind("m5.large"),), fresh, zones, known) == ({} if after is None else {"m5.large": after})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace AWS's answers about a Region, and return them."""
    answers: dict[str, Any] = {
        "instance_types": (kind("c5.large"), kind("m5.large")),
        "zones_by_type": {"c5.large": ("a",), "m5.large": ("a", "b")},
        "zone_ids": {"a": "az1", "b": "az2"},
        "spot_prices": {"m5.large": (ZonePrice("a", 0.03),)},
        "on_demand": {"m5.large": 0.1, "c5.large": 0.09},
    }
    for name in ("instance_types", "zones_by_type", "zone_ids", "spot_prices"):
        monkeypatch.setattr(catalog_source, name, lambda *_, name=name: answers[name])
    monkeypatch.setattr(catalog_source.on_demand_prices, "on_demand_prices", lambda *_: answers["on_demand"])
    return answers


def fetched(now: float = NOW, previous: Catalog | None = None) -> Catalog:
    client: Any = None
    return Ec2CatalogSource("eu-west-1", ec2=client, price_list=lambda _: client, clock=lambda: now).fetch(previous)


def test_a_catalogue_is_all_that_aws_tells_and_its_version_says_nothing_of_when(told: dict[str, Any]) -> None:
    first = fetched()
    assert first == Catalog(
        region="eu-west-1",
        types=told["instance_types"],
        zones=told["zones_by_type"],
        zone_ids=told["zone_ids"],
        prices={
            "c5.large": TypePrices(0.09),
            "m5.large": TypePrices(0.1, (ZonePrice("a", 0.03),)),
        },
        refreshed_at=NOW,
        version=first.version,
        on_demand_at=NOW,
        spot_at=NOW,
    )
    assert len(first.version) == 12
    for name in ("zones_by_type", "zone_ids"):
        told[name] = dict(reversed(told[name].items()))
    assert fetched(NOW + 60, first) == replace(first, refreshed_at=NOW + 60, on_demand_at=NOW + 60, spot_at=NOW + 60)


def test_prices_that_do_not_come_keep_their_age(told: dict[str, Any]) -> None:
    first = fetched()
    told["spot_prices"], told["on_demand"] = {}, {}
    assert fetched(NOW + 60, first) == replace(first, refreshed_at=NOW + 60)
    never = fetched()
    assert (never.prices, never.on_demand_at, never.spot_at) == ({}, 0.0, 0.0)


def test_the_ami_of_an_instance_is_asked_for_once_in_portions() -> None:
    def answer(options: Mapping[str, Any]) -> list[dict[str, Any]]:
        (only,) = options["Filters"]
        assert only["Name"] == "instance-id"
        seen = [{"InstanceId": name, "ImageId": f"ami-{name}"} for name in only["Values"] if name != "i-000"]
        return [{"Reservations": [{"Instances": [item]} for item in seen]}]

    ec2, known = Asked(answer), {"i-known": "ami-old"}
    names = [f"i-{number:03}" for number in range(450)]
    found = images(ec2, ["i-known", *names], known)  # type: ignore[arg-type]
    asked = [options["Filters"][0]["Values"] for _, options in ec2.asked]
    assert [len(some) for some in asked] == [200, 200, 50]
    assert "i-known" not in asked[0]
    assert (found["i-known"], found["i-001"], found["i-449"]) == ("ami-old", "ami-i-001", "ami-i-449")
    assert "i-000" not in found
    images(ec2, ["i-known", *names], known)  # type: ignore[arg-type]
    assert len(ec2.asked) == 3


def test_pauses_are_short_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    pauses: list[float] = []
    assert list(attempts(8, sleep=pauses.append)) == list(range(8))
    assert pauses == [0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]
