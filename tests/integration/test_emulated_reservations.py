"""Capacity reservations of the emulated EC2, launched into by the adapter: their states follow its clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from shiplap.manifests.custom_resources import CapacityReservationSelectorTerm
from shiplap.ports import FleetRequest, FleetResult
from shiplap_lab.emulated_ec2.emulated_reservations import BLOCK_TAIL_S, EmulatedReservation
from tests.integration.contracts.emulated_ec2 import START, ZONES, Region, emulated_region
from tests.integration.contracts.fleet_requests import NODE_CLASS, request_for

HOUR_S = 3600.0
OPEN = EmulatedReservation("cr-open", "m5.large", ZONES[0], starts_at=START + HOUR_S, tags={"use": "training"})
BLOCK = replace(OPEN, id="cr-block", total=2, purchased_as="capacity-block", ends_at=START + 25 * HOUR_S)


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


class Ground:
    """A cluster whose EC2NodeClass selects the reservations of a tag."""

    def __init__(self, region: Region, *reservations: EmulatedReservation) -> None:
        region.empty()
        region.seed("demo")
        self.control = region.control
        for held in reservations:
            self.control.reservation(held)
        self.compute = region.compute()
        terms = (CapacityReservationSelectorTerm(tags={"use": "training"}),)
        self.node_class = replace(NODE_CLASS, spec=replace(NODE_CLASS.spec, capacity_reservation_selector_terms=terms))

    def states(self) -> dict[str, tuple[str, int]]:
        """The state of each reservation that is selected, and the instances it has left."""
        resolved = self.compute.resolve(self.node_class, fresh=True)
        found = (*resolved.capacity_reservations, *resolved.upcoming_reservations)
        return {held.id: (held.state, held.available) for held in found}

    def launch(self, reservation: str, *names: str) -> FleetResult:
        """Launch so many claims into a reservation, whatever the adapter knows of its state."""
        plain = request_for(self.compute, names[0], capacity_type="reserved", beside=names[1:], token=names[0])
        resolved = self.compute.resolve(self.node_class, fresh=True)
        every = (*resolved.capacity_reservations, *resolved.upcoming_reservations)
        request: FleetRequest = replace(
            plain,
            node_class=self.node_class,
            resolved=replace(resolved, capacity_reservations=every),
            overrides=tuple(replace(override, reservation=reservation) for override in plain.overrides),
        )
        return self.compute.launch(request)

    def paid_as(self) -> list[tuple[str, str, str]]:
        return sorted((item.capacity_type, item.reservation, item.state) for item in self.compute.instances("demo"))


@pytest.mark.parametrize("held", [OPEN, BLOCK], ids=["future-dated", "block"])
def test_nothing_can_be_launched_before_the_start_and_all_of_it_afterwards(
    running: Region, held: EmulatedReservation
) -> None:
    ground = Ground(running, held)
    assert ground.states() == {held.id: ("scheduled", 0)}
    early = ground.launch(held.id, "early")
    assert (early.instances, [failure.code for failure in early.failures]) == ((), ["InvalidCapacityReservationState"])
    ground.control.advance(HOUR_S)
    assert ground.states() == {held.id: ("active", held.total)}
    assert len(ground.launch(held.id, "a", "b", "c").instances) == held.total
    assert ground.states() == {held.id: ("active", 0)}
    assert ground.paid_as() == [("reserved", held.id, "running")] * held.total
    late = ground.launch(held.id, "late")
    assert [(failure.code, failure.reservation) for failure in late.failures] == [
        ("ReservationCapacityExceeded", held.id)
    ]


@pytest.mark.parametrize("state", ["payment-pending", "payment-failed", "assessing", "delayed", "unsupported"])
def test_a_state_that_is_set_stays_whatever_the_time(running: Region, state: str) -> None:
    ground = Ground(running, replace(BLOCK, state=state))
    ground.control.advance(2 * HOUR_S)
    assert ground.states() == {"cr-block": (state, 0)}


@pytest.mark.parametrize("state", ["cancelled", "expired"])
def test_what_is_gone_is_not_asked_for(running: Region, state: str) -> None:
    ground = Ground(running, replace(BLOCK, state=state), OPEN)
    assert ground.states() == {"cr-open": ("scheduled", 0)}


def test_a_block_ends_its_instances_half_an_hour_before_its_end_and_another_keeps_them(running: Region) -> None:
    ends_at = BLOCK.ends_at
    ground = Ground(running, BLOCK, replace(OPEN, ends_at=ends_at))
    ground.control.advance(HOUR_S)
    ground.launch("cr-block", "a", "b")
    ground.launch("cr-open", "c")
    ground.control.advance(ends_at - BLOCK_TAIL_S - START - HOUR_S - 1)
    assert ground.paid_as() == [("reserved", "cr-block", "running")] * 2 + [("reserved", "cr-open", "running")]
    ground.control.advance(1)
    assert [(kind, name) for kind, name, _ in ground.paid_as()] == [("reserved", "cr-open")]
    ground.control.advance(BLOCK_TAIL_S)
    assert ground.states() == {}
    assert ground.paid_as() == [("on-demand", "", "running")]


def test_a_reservation_may_shrink_and_move(running: Region) -> None:
    ground = Ground(running, BLOCK)
    ground.control.reservation(replace(BLOCK, total=1, starts_at=START))
    assert ground.states() == {"cr-block": ("active", 1)}


def test_one_that_is_asked_for_holds_its_instances_at_once_until_it_is_cancelled(running: Region) -> None:
    ground = Ground(running)
    ec2 = running.client("ec2")
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "use", "Value": "training"}]}]
    asked = {"InstanceType": "m5.large", "InstancePlatform": "Linux/UNIX", "AvailabilityZone": ZONES[0]}
    made = [
        ec2.create_capacity_reservation(InstanceCount=number, TagSpecifications=tags, **asked)["CapacityReservation"]
        for number in (1, 2)
    ]
    first, second = (each["CapacityReservationId"] for each in made)
    assert [each["State"] for each in made] == ["active", "active"]
    assert ground.states() == {first: ("active", 1), second: ("active", 2)}
    assert len(ground.launch(second, "a").instances) == 1
    ec2.cancel_capacity_reservation(CapacityReservationId=second)
    assert ground.states() == {first: ("active", 1)}
    assert ground.paid_as() == [("on-demand", "", "running")]
    with pytest.raises(ClientError, match="CapacityReservationId"):
        ec2.cancel_capacity_reservation(CapacityReservationId="cr-none")
