"""Capacity reservations and placement groups, chosen from EC2's answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.session import get_session
from msgspec.structs import replace

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.aws.selectors.capacity_reservations import (
    LATE_S,
    capacity_reservations,
    lifetime_s,
    placement_group,
    placement_group_of,
    reservation_of,
)
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, PlacementGroup
from shiplap.manifests.custom_resources import (
    CapacityReservationSelectorTerm,
    Manifests,
    PlacementGroupSelector,
)
from shiplap.settings import ClusterSettings
from tests.builders.node_classes import node_class

END = datetime(2026, 12, 1, tzinfo=UTC)
PLAIN = {
    "CapacityReservationId": "cr-1",
    "OwnerId": "111111111111",
    "InstanceType": "m5.large",
    "InstancePlatform": "Linux/UNIX",
    "AvailabilityZone": "us-east-1a",
    "InstanceMatchCriteria": "targeted",
    "AvailableInstanceCount": 3,
    "Tags": [{"Key": "team", "Value": "a"}, {"Key": "use", "Value": "batch"}],
}
BLOCK = PLAIN | {
    "CapacityReservationId": "cr-2",
    "OwnerId": "222222222222",
    "InstanceMatchCriteria": "open",
    "ReservationType": "capacity-block",
    "EndDate": END,
    "Tags": [],
}
WINDOWS = PLAIN | {"CapacityReservationId": "cr-3", "InstancePlatform": "Windows"}


class Ec2:
    """EC2's answers to two requests, and the filters it was given."""

    def __init__(self) -> None:
        self.filters: list[Any] = []

    def get_paginator(self, operation: str) -> Ec2:
        assert operation == "describe_capacity_reservations"
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        self.filters.append(request["Filters"])
        return [{"CapacityReservations": [BLOCK, WINDOWS]}, {"CapacityReservations": [PLAIN]}]

    def describe_placement_groups(self, **request: Any) -> dict[str, Any]:
        self.filters.append(request["Filters"])
        spread = {"GroupId": "pg-1", "GroupName": "wide", "Strategy": "partition", "PartitionCount": 7}
        return {"PlacementGroups": [{"GroupId": "pg-0", "GroupName": "x", "Strategy": "cluster"}, spread]}


def chosen(*terms: CapacityReservationSelectorTerm, os: str = "linux") -> list[str]:
    made = node_class(capacity_reservation_selector_terms=terms)
    return [item.id for item in capacity_reservations(Ec2(), made, os)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"id": "cr-1"}, ["cr-1"]),
        ({"id": "cr-9"}, []),
        ({"tags": {"team": "a"}}, ["cr-1"]),
        ({"tags": {"team": "*"}}, ["cr-1"]),
        ({"tags": {"team": "a", "use": "web"}}, []),
        ({"instance_match_criteria": "open"}, ["cr-2"]),
        ({"instance_match_criteria": "open", "owner_id": "111111111111"}, []),
    ],
)
def test_all_that_a_term_says_must_hold(term: dict[str, Any], expected: list[str]) -> None:
    assert chosen(CapacityReservationSelectorTerm(**term)) == expected


def test_terms_are_alternatives() -> None:
    assert chosen(CapacityReservationSelectorTerm(id="cr-2"), CapacityReservationSelectorTerm(id="cr-1")) == [
        "cr-1",
        "cr-2",
    ]


def test_a_reservation_is_of_one_operating_system() -> None:
    assert chosen(CapacityReservationSelectorTerm(instance_match_criteria="targeted"), os="windows") == ["cr-3"]


def test_without_terms_ec2_is_not_asked() -> None:
    ec2 = Ec2()
    assert capacity_reservations(ec2, node_class(), "linux") == ()  # type: ignore[arg-type]
    assert ec2.filters == []


def test_only_reservations_that_can_be_launched_into_or_were_to_be_are_asked_for() -> None:
    ec2 = Ec2()
    terms = (CapacityReservationSelectorTerm(id="cr-1"),)
    capacity_reservations(ec2, node_class(capacity_reservation_selector_terms=terms), "linux")  # type: ignore[arg-type]
    (asked,) = ec2.filters
    assert asked[0]["Name"] == "state"
    known = get_session().get_service_model("ec2").shape_for("CapacityReservationState").enum
    gone = {"cancelled", "cancelling", "expired", "unavailable"}
    assert sorted(asked[0]["Values"]) == sorted({*known} - gone), "botocore knows another state"


def test_what_is_known_of_a_reservation() -> None:
    terms = (CapacityReservationSelectorTerm(id="cr-2"),)
    (block,) = capacity_reservations(Ec2(), node_class(capacity_reservation_selector_terms=terms), "linux")  # type: ignore[arg-type]
    assert block == CapacityReservation(
        id="cr-2",
        instance_type="m5.large",
        zone="us-east-1a",
        owner="222222222222",
        type="capacity-block",
        available=3,
        ends_at=END.timestamp(),
    )
    terms = (CapacityReservationSelectorTerm(id="cr-1"),)
    (endless,) = capacity_reservations(Ec2(), node_class(capacity_reservation_selector_terms=terms), "linux")  # type: ignore[arg-type]
    assert endless == CapacityReservation(
        "cr-1", "m5.large", "us-east-1a", owner="111111111111", match_criteria="targeted", available=3
    )
    full = {key: value for key, value in PLAIN.items() if key != "AvailableInstanceCount"}
    assert reservation_of(full | {"Interruptible": True}) == replace(endless, available=0, interruptible=True)  # type: ignore[arg-type]
    assert not block.is_expiring(END.timestamp() - 2401)
    assert block.is_expiring(END.timestamp() - 2400)


def test_what_is_known_before_a_reservation_starts() -> None:
    scheduled = reservation_of(BLOCK | {"State": "scheduled", "StartDate": END, "AvailableInstanceCount": 0})  # type: ignore[arg-type]
    assert (scheduled.state, scheduled.starts_at, scheduled.available) == ("scheduled", END.timestamp(), 0)


@pytest.mark.parametrize(
    ("starts", "lasts_s"),
    [
        ([], 60.0),
        ([("scheduled", 1000.0)], 60.0),
        ([("scheduled", 30.0)], 30.0),
        ([("scheduled", 1000.0), ("assessing", 40.0)], 40.0),
        ([("scheduled", 2.0)], LATE_S),
        ([("delayed", -3600.0)], LATE_S),
        ([("active", 10.0), ("payment-failed", 10.0), ("scheduled", None)], 60.0),
    ],
)
def test_an_answer_is_trusted_until_the_next_start(starts: list[tuple[str, float | None]], lasts_s: float) -> None:
    known = [
        CapacityReservation(f"cr-{number}", "m5.large", "a", state=state, starts_at=0.0 if at is None else 100.0 + at)
        for number, (state, at) in enumerate(starts)
    ]
    assert lifetime_s(known, 60.0, 100.0) == lasts_s


def test_only_blocks_expire() -> None:
    assert not CapacityReservation("cr-1", "m5.large", "us-east-1a", ends_at=END.timestamp()).is_expiring(
        END.timestamp()
    )


@pytest.mark.parametrize("selector", [PlacementGroupSelector(name="wide"), PlacementGroupSelector(id="pg-1")])
def test_a_placement_group_by_name_or_id(selector: PlacementGroupSelector) -> None:
    ec2 = Ec2()
    found = placement_group(ec2, node_class(placement_group_selector=selector))  # type: ignore[arg-type]
    assert found == PlacementGroup("pg-1", "wide", "partition", 7)
    assert ec2.filters == [[{"Name": "state", "Values": ["available"]}]]


def test_a_group_that_is_not_parted_has_no_partitions() -> None:
    assert placement_group_of({"GroupId": "pg-0", "GroupName": "x", "Strategy": "cluster"}) == PlacementGroup(
        "pg-0", "x", "cluster", 0
    )


def test_a_placement_group_that_is_not_there() -> None:
    with pytest.raises(NodeClassNotReady, match="narrow") as raised:
        placement_group(Ec2(), node_class(placement_group_selector=PlacementGroupSelector(name="narrow")))  # type: ignore[arg-type]
    assert raised.value.code == "PlacementGroupNotFound"


def test_no_placement_group() -> None:
    assert placement_group(Ec2(), node_class()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "kind", "reservation"),
    [
        ({}, "on-demand", ""),
        ({"CapacityReservationId": "cr-1"}, "reserved", "cr-1"),
        ({"InstanceLifecycle": "spot"}, "spot", ""),
        ({"InstanceLifecycle": "capacity-block"}, "reserved", ""),
        (
            {"InstanceLifecycle": "interruptible-capacity-reservation", "CapacityReservationId": "cr-2"},
            "reserved",
            "cr-2",
        ),
        ({"InstanceLifecycle": "scheduled"}, "on-demand", ""),
    ],
)
def test_what_an_instance_is_paid_as(seen: dict[str, str], kind: str, reservation: str) -> None:
    described = {
        "InstanceId": "i-1",
        "InstanceType": "m5.large",
        "State": {"Name": "running"},
        "LaunchTime": END,
        "Placement": {"AvailabilityZone": "us-east-1a", "PartitionNumber": 2},
        **seen,
    }

    class Described:
        def get_paginator(self, operation: str) -> Described:
            assert operation == "describe_instances"
            return self

        def paginate(self, **_: Any) -> list[dict[str, Any]]:
            return [{"Reservations": [{"Instances": [described]}]}]

    settings = ClusterSettings(name="demo", region="eu-west-1", manifests=Manifests())
    nobody: Any = None
    compute = Ec2Compute(settings, ec2=Described(), ssm=nobody, eks=nobody, clock=lambda: 0.0)  # type: ignore[arg-type]
    (found,) = compute.instances("demo")
    assert (found.capacity_type, found.reservation, found.partition) == (kind, reservation, "2")
