"""In which order instances are told of, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.settings import ClusterSettings

CLUSTER = ClusterSettings(name="demo", region="eu-west-1", install="own")
START = datetime(2026, 1, 1, tzinfo=UTC)


def instance(name: str, minute: int = 0, **tags: str) -> dict[str, Any]:
    marks = {"shiplap.dev/cluster": "demo", "shiplap.dev/install": "own"} | {
        key.replace("__", "/").replace("_", "."): value for key, value in tags.items()
    }
    return {
        "InstanceId": name,
        "InstanceType": "m5.large",
        "ImageId": "ami-1",
        "LaunchTime": START + timedelta(minutes=minute),
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "eu-west-1a"},
        "Tags": [{"Key": key, "Value": value} for key, value in marks.items()],
    }


class Ec2:
    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self._pages = pages
        self.asked: list[Mapping[str, Any]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_instances"
        outer = self

        class _Paginator:
            def paginate(self, **options: Any) -> list[dict[str, Any]]:
                outer.asked.append(options)
                return [{"Reservations": [{"Instances": page}]} for page in outer._pages]

        return _Paginator()


def compute(ec2: Ec2) -> Ec2Compute:
    never: Any = None
    return Ec2Compute(CLUSTER, ec2=ec2, ssm=never, eks=never, iam=never, clock=lambda: 0.0)  # type: ignore[arg-type]


def test_instances_are_told_of_oldest_first_and_those_of_one_moment_by_id() -> None:
    ec2 = Ec2([instance("i-3", 2), instance("i-2", 1)], [instance("i-1", 1), instance("i-9")])
    assert [item.id for item in compute(ec2).instances("demo")] == ["i-9", "i-1", "i-2", "i-3"]
    names = {item["Name"]: item["Values"] for item in ec2.asked[0]["Filters"]}
    assert names["tag:shiplap.dev/cluster"] == ["demo"]
    assert "terminated" not in names["instance-state-name"]
    assert {"pending", "running", "stopped"} <= set(names["instance-state-name"])


@pytest.mark.parametrize(("install", "ours"), [("own", True), ("", True), ("another", False)])
def test_instances_of_another_install_are_not_ours(install: str, ours: bool) -> None:
    ec2 = Ec2([instance("i-1", shiplap_dev__install=install) if install else bare("i-1")])
    assert [item.id for item in compute(ec2).instances("demo")] == (["i-1"] if ours else [])


def bare(name: str) -> dict[str, Any]:
    """Launched by a release that did not name its install."""
    made = instance(name)
    made["Tags"] = [tag for tag in made["Tags"] if tag["Key"] != "shiplap.dev/install"]
    return made


def test_what_an_instance_says_of_itself() -> None:
    ec2 = Ec2([instance("i-1", 3, shiplap_dev__nodeclaim="c", shiplap_dev__launch="t", shiplap_dev__nodepool="p")])
    (found,) = compute(ec2).instances("demo")
    assert (found.claim, found.launch, found.node_pool, found.install) == ("c", "t", "p", "own")
    assert (found.instance_type, found.zone, found.ami, found.state) == ("m5.large", "eu-west-1a", "ami-1", "running")
    assert found.capacity_type == "on-demand"
    assert found.launched_at == (START + timedelta(minutes=3)).timestamp()
