"""Long answers come in pages as large as AWS gives them: each page is a request, and larger ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shiplap.aws.ec2 import launch_templates
from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.aws.health import Ec2Health
from shiplap.aws.pricing import catalog_source
from shiplap.settings import ClusterSettings
from tests.unit.aws.asked_pages import Asked

NOW = 1_800_000_000.0


def health(client: Any) -> object:
    return Ec2Health("demo", ec2=client, eks=lambda: client, zonal_shift=lambda: client, clock=lambda: NOW).ailing()


def instances(client: Any) -> object:
    settings = ClusterSettings(name="demo", region="eu-west-1")
    made = Ec2Compute(settings, ec2=client, ssm=lambda: client, eks=lambda: client, clock=lambda: NOW)
    return list(made._described("demo", []))


@pytest.mark.parametrize(
    ("ask", "sizes"),
    [
        (catalog_source.instance_types, {"describe_instance_types": 100}),
        (catalog_source.zones_by_type, {"describe_instance_type_offerings": 1000}),
        (lambda client: catalog_source.spot_prices(client, NOW), {"describe_spot_price_history": 1000}),
        (health, {"describe_instance_status": 1000}),
        (instances, {"describe_instances": 1000}),
        (lambda client: launch_templates._old(client, "demo", NOW, "own"), {"describe_launch_templates": 200}),
        (lambda client: launch_templates._used(client, "demo"), {"describe_instances": 1000}),
    ],
    ids=["types", "offerings", "spot prices", "health", "instances", "templates", "templates used"],
)
def test_pages_are_as_large_as_aws_gives_them(ask: Callable[[Any], object], sizes: dict[str, int]) -> None:
    client = Asked()
    ask(client)
    assert client.sizes == sizes


def test_ec2_is_asked_for_what_ails_alone() -> None:
    """Filters of one request must all hold, so that there are three."""
    client = Asked()
    health(client)
    events = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]
    assert client.filters == [
        {"Name": "instance-status.status", "Values": ["impaired"]},
        {"Name": "system-status.status", "Values": ["impaired"]},
        {"Name": "event.code", "Values": events},
    ]
