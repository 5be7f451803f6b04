"""An EC2NodeClass answered by AWS as a whole, and how often AWS is asked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from shiplap.aws.selectors.node_classes import NodeClassResolver
from shiplap.instances.catalog.resolved_nodeclass import (
    Ami,
    CapacityReservation,
    PlacementGroup,
    ResolvedNodeClass,
    Subnet,
)
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock

SETTINGS = ClusterSettings(
    name="demo",
    region="eu-west-1",
    install="own",
    endpoint="https://demo.example",
    certificate_authority="Q0E=",
    kubernetes_version="1.33",
    service_cidr="10.100.0.0/16",
)
ANSWERS: dict[str, dict[str, Any]] = {
    "describe_images": {
        "Images": [{"ImageId": "ami-1", "Name": "image", "Architecture": "x86_64", "CreationDate": "2026-01-01"}]
    },
    "describe_subnets": {
        "Subnets": [
            {"SubnetId": "subnet-a", "AvailabilityZone": "a", "AvailabilityZoneId": "az1", "AvailableIpAddressCount": 9}
        ]
    },
    "describe_security_groups": {"SecurityGroups": [{"GroupId": "sg-1", "GroupName": "nodes"}]},
    "describe_capacity_reservations": {
        "CapacityReservations": [
            {"CapacityReservationId": "cr-1", "InstanceType": "m5.large", "InstancePlatform": "Linux/UNIX"}
        ]
    },
}


class Aws:
    """EC2, which counts what it is asked, and IAM, which knows one instance profile."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def get_paginator(self, operation: str) -> Any:
        outer = self

        class _Paginator:
            def paginate(self, **_: Any) -> list[dict[str, Any]]:
                outer.asked[operation] += 1
                return [ANSWERS[operation]]

        return _Paginator()

    def describe_placement_groups(self, **_: Any) -> dict[str, Any]:
        self.asked["describe_placement_groups"] += 1
        return {"PlacementGroups": [{"GroupId": "pg-1", "GroupName": "wide", "Strategy": "spread"}]}

    def get_instance_profile(self, *, InstanceProfileName: str) -> None:  # noqa: N803 - IAM's name
        if InstanceProfileName != "there":
            raise ClientError({"Error": {"Code": "NoSuchEntity"}}, "GetInstanceProfile")


def node_class(name: str = "default", **spec: Any) -> EC2NodeClass:
    written = {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"id": "ami-1"}],
        "subnetSelectorTerms": [{"id": "subnet-a"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
        "capacityReservationSelectorTerms": [{"id": "cr-1"}],
        "placementGroupSelector": {"name": "wide"},
        "role": "path/nodes",
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": {**written, **spec}}, EC2NodeClass)


@pytest.fixture
def aws() -> Aws:
    return Aws()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def resolver(aws: Any, clock: FakeClock) -> NodeClassResolver:
    def never() -> Any:
        raise AssertionError("the settings say where the cluster is, and no term names a parameter")

    return NodeClassResolver(SETTINGS, ec2=aws, ssm=never, eks=never, iam=lambda: aws, clock=clock.now)


RESOLVED = ResolvedNodeClass(
    name="default",
    family="AL2023",
    amis=(Ami("ami-1", "image", "2026-01-01", requirements=((labels.ARCH, "In", ("amd64",)),)),),
    subnets=(Subnet("subnet-a", "a", "az1", 9),),
    security_groups=("sg-1",),
    security_group_names=("nodes",),
    instance_profile="own-eu-west-1-demo-nodes",
    cluster_endpoint="https://demo.example",
    cluster_ca="Q0E=",
    service_cidr="10.100.0.0/16",
    cluster_dns="10.100.0.10",
    kubernetes_version="1.33",
    capacity_reservations=(CapacityReservation("cr-1", "m5.large", ""),),
    placement_group=PlacementGroup("pg-1", "wide", "spread"),
)


def test_all_that_a_launch_needs(resolver: NodeClassResolver) -> None:
    assert resolver.resolve(node_class()) == RESOLVED


def test_aws_is_asked_once_a_minute_for_what_is_written_alike(
    resolver: NodeClassResolver, aws: Aws, clock: FakeClock
) -> None:
    tags = {"a": "1", "b": "2"}
    terms = [{"tags": tags}], [{"tags": dict(reversed(tags.items()))}]
    resolver.resolve(node_class())
    once = dict.fromkeys(aws.asked, 1)
    assert set(once) == {*ANSWERS, "describe_placement_groups"}
    clock.advance(59.0)
    resolver.resolve(node_class(tags={"team": "x"}))
    assert aws.asked == once
    clock.advance(1.0)
    resolver.resolve(node_class(subnetSelectorTerms=terms[0]))
    assert aws.asked == dict.fromkeys(once, 2)
    for term in terms:
        resolver.resolve(node_class(subnetSelectorTerms=term))
    assert aws.asked == dict.fromkeys(once, 2), "tags say the same in any order"
    resolver.resolve(node_class(subnetSelectorTerms=[{"id": "subnet-b"}]))
    assert aws.asked == dict.fromkeys(once, 2) | {"describe_subnets": 3}
    resolver.resolve(node_class("other"))
    assert aws.asked == dict.fromkeys(once, 3) | {"describe_subnets": 4}
    resolver.resolve(node_class("other"), fresh=True)
    assert aws.asked == dict.fromkeys(once, 4) | {"describe_subnets": 5}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"instanceProfile": "there", "role": ""}, None),
        ({"instanceProfile": "gone", "role": ""}, "there is no instance profile gone"),
        (
            {},
            "there is no instance profile own-eu-west-1-demo-nodes; deploying the stack makes it for role path/nodes",
        ),
    ],
)
def test_an_inspection_also_looks_for_the_instance_profile(
    resolver: NodeClassResolver, spec: dict[str, Any], text: str | None
) -> None:
    found = resolver.inspect(node_class(**spec))
    assert [(item.condition, item.reason, item.message) for item in found.problems] == (
        [] if text is None else [("InstanceProfileReady", "InstanceProfileNotFound", text)]
    )
    assert replace(found, problems=(), instance_profile="") == replace(RESOLVED, instance_profile="")
