"""An EC2NodeClass answered by AWS as a whole, and how often AWS is asked."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from shiplap.aws.instance_profiles import profile_parameter
from shiplap.aws.selectors.node_classes import NodeClassResolver
from shiplap.errors import AwsError, NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import (
    Ami,
    CapacityReservation,
    PlacementGroup,
    ResolvedNodeClass,
    Subnet,
)
from shiplap.kubernetes import labels
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.node_classes import node_class as any_node_class

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


PARAMETER = profile_parameter("own", "demo", "nodes")


class Aws:
    """EC2 and SSM, which count what they are asked, and IAM, which knows one instance profile."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.parameters = {PARAMETER: "there"}
        self.denied = False

    def get_parameters(self, *, Names: list[str]) -> dict[str, Any]:  # noqa: N803 - SSM's name
        self.asked["get_parameters"] += 1
        if self.denied:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetParameters")
        found = [{"Name": name, "Value": self.parameters[name]} for name in Names if name in self.parameters]
        return {"Parameters": found}

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


node_class = partial(
    any_node_class,
    amiSelectorTerms=[{"id": "ami-1"}],
    subnetSelectorTerms=[{"id": "subnet-a"}],
    securityGroupSelectorTerms=[{"id": "sg-1"}],
    capacityReservationSelectorTerms=[{"id": "cr-1"}],
    placementGroupSelector={"name": "wide"},
    role="path/nodes",
)


@pytest.fixture
def aws() -> Aws:
    return Aws()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def resolver(aws: Any, clock: FakeClock) -> NodeClassResolver:
    return made(SETTINGS, aws, clock)


def made(settings: ClusterSettings, aws: Any, clock: FakeClock) -> NodeClassResolver:
    def never() -> Any:
        raise AssertionError("the settings say where the cluster is")

    return NodeClassResolver(settings, ec2=aws, ssm=lambda: aws, eks=never, iam=lambda: aws, clock=clock.now)


RESOLVED = ResolvedNodeClass(
    name="default",
    family="AL2023",
    amis=(Ami("ami-1", "image", "2026-01-01", requirements=((labels.ARCH, "In", ("amd64",)),)),),
    subnets=(Subnet("subnet-a", "a", "az1", 9),),
    security_groups=("sg-1",),
    security_group_names=("nodes",),
    instance_profile="there",
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
    kept_longer = {"get_parameters": 1}
    resolver.resolve(node_class())
    once = dict.fromkeys([*ANSWERS, "describe_placement_groups"], 1)
    assert aws.asked == once | kept_longer
    clock.advance(59.0)
    resolver.resolve(node_class(tags={"team": "x"}))
    assert aws.asked == once | kept_longer
    clock.advance(1.0)
    twice = dict.fromkeys(once, 2) | kept_longer
    resolver.resolve(node_class(subnetSelectorTerms=terms[0]))
    assert aws.asked == twice
    for term in terms:
        resolver.resolve(node_class(subnetSelectorTerms=term))
    assert aws.asked == twice, "tags say the same in any order"
    resolver.resolve(node_class(subnetSelectorTerms=[{"id": "subnet-b"}]))
    assert aws.asked == twice | {"describe_subnets": 3}
    resolver.resolve(node_class("other"))
    assert aws.asked == dict.fromkeys(once, 3) | {"describe_subnets": 4} | kept_longer
    resolver.resolve(node_class("other"), fresh=True)
    assert aws.asked == dict.fromkeys(once, 4) | {"describe_subnets": 5, "get_parameters": 2}


def test_reservations_that_have_not_started_are_told_apart_and_asked_for_again_at_their_start(
    resolver: NodeClassResolver, aws: Aws, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain,) = ANSWERS["describe_capacity_reservations"]["CapacityReservations"]
    starts = datetime.fromtimestamp(clock.now() + 30, UTC)
    later = plain | {"CapacityReservationId": "cr-2", "State": "scheduled", "StartDate": starts}
    monkeypatch.setitem(ANSWERS, "describe_capacity_reservations", {"CapacityReservations": [plain, later]})
    selecting = node_class(capacityReservationSelectorTerms=[{"id": "cr-1"}, {"id": "cr-2"}])
    found = resolver.resolve(selecting)
    assert [held.id for held in found.capacity_reservations] == ["cr-1"]
    assert [held.id for held in found.upcoming_reservations] == ["cr-2"]
    assert found.selection.reservations == ("cr-1",)
    for seconds, asked in ((29.0, 1), (1.0, 2), (4.0, 2), (1.0, 3)):
        clock.advance(seconds)
        resolver.resolve(selecting)
        assert aws.asked["describe_capacity_reservations"] == asked
    assert aws.asked["describe_subnets"] == 1


def test_a_reservation_that_the_cluster_may_not_use_is_not_waited_for(
    aws: Any, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain,) = ANSWERS["describe_capacity_reservations"]["CapacityReservations"]
    later = [plain | {"CapacityReservationId": name, "State": "scheduled"} for name in ("cr-2", "cr-3")]
    monkeypatch.setitem(ANSWERS, "describe_capacity_reservations", {"CapacityReservations": later})
    bounded = replace(SETTINGS, allowed=AllowedResources(capacity_reservations=("cr-3",)))
    terms = [{"id": "cr-2"}, {"id": "cr-3"}]
    found = made(bounded, aws, clock).resolve(node_class(capacityReservationSelectorTerms=terms))
    assert [held.id for held in found.upcoming_reservations] == ["cr-3"]


def test_the_instance_profile_is_the_one_that_the_cluster_and_install_have_for_the_role(
    aws: Aws, clock: FakeClock
) -> None:
    aws.parameters |= {
        profile_parameter("own", "demo-2", "nodes"): "of-demo-2",
        profile_parameter("own-2", "demo", "nodes"): "of-own-2",
        profile_parameter("own", "demo", "team-b"): "of-team-b",
    }
    found = {
        (cluster, install, role): made(replace(SETTINGS, name=cluster, install=install), aws, clock)
        .resolve(node_class(role=role))
        .instance_profile
        for cluster, install, role in (
            ("demo", "own", "nodes"),
            ("demo-2", "own", "nodes"),
            ("demo", "own-2", "nodes"),
            ("demo", "own", "a/path/team-b"),
        )
    }
    assert list(found.values()) == ["there", "of-demo-2", "of-own-2", "of-team-b"]


def test_a_written_instance_profile_asks_ssm_nothing(resolver: NodeClassResolver, aws: Aws) -> None:
    aws.denied = True
    assert resolver.resolve(node_class(instanceProfile="mine", role="")).instance_profile == "mine"


def test_a_role_without_an_instance_profile_is_not_ready_until_a_deployment_makes_it(
    resolver: NodeClassResolver, aws: Aws, clock: FakeClock
) -> None:
    name = aws.parameters.pop(PARAMETER)
    with pytest.raises(NodeClassNotReady) as refused:
        resolver.resolve(node_class())
    assert refused.value.code == "InstanceProfileNotFound"
    assert PARAMETER in str(refused.value)
    assert "deploy the stack" in str(refused.value)

    aws.parameters[PARAMETER] = name
    clock.advance(1.0)
    assert resolver.resolve(node_class()).instance_profile == name, "what is missing is not remembered"


def test_a_profile_is_known_for_five_minutes_when_ssm_does_not_answer(
    resolver: NodeClassResolver, aws: Aws, clock: FakeClock
) -> None:
    resolver.resolve(node_class())
    aws.denied = True
    clock.advance(299.0)
    assert resolver.resolve(node_class()).instance_profile == "there"
    clock.advance(1.0)
    with pytest.raises(AwsError) as refused:
        resolver.resolve(node_class())
    assert not isinstance(refused.value, NodeClassNotReady), "SSM did not say that the profile is missing"


def test_without_an_install_no_profile_is_asked_for(aws: Aws, clock: FakeClock) -> None:
    """Files alone, as `shiplap plan` reads them, do not say which install will launch."""
    aws.denied = True
    assert made(replace(SETTINGS, install=""), aws, clock).resolve(node_class()).instance_profile == ""


@pytest.mark.parametrize(
    ("spec", "named", "text"),
    [
        ({"instanceProfile": "there", "role": ""}, "", None),
        ({"instanceProfile": "gone", "role": ""}, "", "there is no instance profile gone"),
        ({}, "there", None),
        ({}, "gone", "there is no instance profile gone"),
        (
            {},
            "",
            f"role path/nodes has no instance profile: there is no SSM parameter {PARAMETER}; deploy the stack with "
            "the role in an EC2NodeClass of its manifests or in `nodeRoles`",
        ),
    ],
)
def test_an_inspection_also_looks_for_the_instance_profile(
    resolver: NodeClassResolver, aws: Aws, spec: dict[str, Any], named: str, text: str | None
) -> None:
    aws.parameters[PARAMETER] = named
    found = resolver.inspect(node_class(**spec))
    assert [(item.condition, item.reason, item.message) for item in found.problems] == (
        [] if text is None else [("InstanceProfileReady", "InstanceProfileNotFound", text)]
    )
    assert replace(found, problems=(), instance_profile="") == replace(RESOLVED, instance_profile="")
