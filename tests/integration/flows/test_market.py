"""All clusters remember what EC2 would not give and try it again a little at a time, never in a storm."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.errors import AwsError, StoreThrottled
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.instances.catalog.ec2_catalog import PlacementGroupInfo
from shiplap.instances.catalog.resolved_nodeclass import (
    CapacityReservation,
    PlacementGroup,
    ResolvedNodeClass,
    Subnet,
    emptiest_subnets,
    open_subnets,
)
from shiplap.instances.offerings.unavailability import ANY
from shiplap.instances.readiness.joins import node_class_scope
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import DecisionState, FleetRequest, FleetResult, OfferingFailure
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import NODE_CLASS, ZONES, Stage

MINUTE = 60.0
TIERS = tuple(
    family_pool(f"tier-{weight}", (family,), weight=weight) for weight, family in enumerate(("r6i", "m6i", "c7i"))
)


def dry(stage: Stage, capacity_type: str = "on-demand") -> None:
    stage.compute.capacity.update({(name, zone, capacity_type): 0 for name in stage.types for zone in ZONES})


def launches(stage: Stage) -> int:
    return stage.faults.points.count("before compute.launch")


def claims_made(stage: Stage) -> int:
    """Claims ever made; none is forgotten within a test."""
    return len(stage.claims())


@pytest.mark.parametrize("pods", [60, pytest.param(300, marks=pytest.mark.thorough)])
def test_a_region_without_capacity_makes_no_storm(pods: int) -> None:
    stage = Stage(TIERS)
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    dry(stage)
    for _ in range(90):
        stage.schedule()
        stage.sweep()
        stage.clock.advance(MINUTE)
    assert stage.compute.launches == []
    assert claims_made(stage) < 2 * pods
    assert launches(stage) < 100
    stage.compute.capacity.clear()
    stage.clock.advance(60 * MINUTE)
    for _ in range(30):
        stage.sweep()
        stage.clock.advance(MINUTE)
    assert len(stage.compute.alive()) > 0
    placed = {pod.uid for claim in stage.claims() if claim.state is not ClaimState.FAILED for pod in claim.plan.pods}
    assert len(placed) == pods


def test_an_offering_that_failed_is_tried_with_half_as_much_and_trusted_again_as_it_gives() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(90, cpu="1200m", memory="2Gi")
    stage.prove_pending_kinds()
    dry(stage)
    first = stage.schedule()
    assert (len(first.failed), launches(stage)) == (90, 1)
    stage.clock.advance(180)
    second = stage.schedule()
    assert (len(second.failed), launches(stage)) == (50, 2)
    held_back = stage.meter.counts["ClaimsHeldBack"]
    assert held_back >= 40
    stage.compute.capacity.clear()
    stage.clock.advance(360)
    third = stage.schedule()
    assert len(third.launched) == 90
    assert _sizes(stage) == [90, 50, 25, 50, 15]
    assert stage.meter.counts["ClaimsHeldBack"] - held_back == 65 + 15, "of 90 the first time, of 65 the second"


def test_of_a_class_whose_instances_ended_one_node_is_tried_and_nothing_is_planned_in_vain_meanwhile() -> None:
    stage = Stage((family_pool("a", ("m6i",), sizes=("large",)), family_pool("b", ("c7i",), sizes=("large",))))
    ended = OfferingFailure(node_class_scope(stage.name, NODE_CLASS), ANY, ANY, "Client.InternalError")
    (rests,) = stage.state.mark_unavailable([ended], stage.clock.now())
    for name in ("a", "b"):
        stage.add_pods(2, prefix=name, cpu="1200m", memory="2Gi", selector={labels.NODE_POOL: name})
    assert stage.sweep().unschedulable == 4
    stage.clock.set(rests.until + 1)
    first = stage.sweep()
    assert (len(first.launched), first.rounds, first.unfinished) == (1, 2, "")
    assert stage.meter.counts["ClaimsHeldBack"] == 3 + 3
    records = len(stage.recorder.records)
    again = stage.sweep()
    assert (again.launched, again.rounds, again.unfinished) == ((), 1, "")
    assert len(stage.recorder.records) == records


def _sizes(stage: Stage) -> list[int]:
    return [request.wanted for request in stage.compute.requests]


def test_what_one_cluster_could_not_get_the_others_do_not_ask_for() -> None:
    here = Stage((family_pool("any", ("m6i",)),))
    there = Stage((family_pool("any", ("m6i",)),), beside=here)
    here.add_pods(1)
    there.add_pods(1)
    dry(here)
    here.schedule()
    assert there.schedule().unschedulable == 1
    assert there.compute.requests == []


def test_a_shape_that_failed_is_not_asked_for_again_in_the_same_round() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.settings = msgspec.structs.replace(stage.settings, unproven_nodes=250)
    stage.add_pods(250, cpu="1200m", memory="2Gi")
    stage.prove_pending_kinds()
    dry(stage)
    assert len(stage.schedule().failed) == 250
    assert launches(stage) == 1


def refusing(stage: Stage, kind: str, code: str, *, subnet: str = "") -> None:
    """Every offering of the next launch fails in the same way."""

    def answer(request: FleetRequest) -> FleetResult:
        found = {(item.instance_type, item.zone) for item in request.overrides}
        return FleetResult(
            (), tuple(OfferingFailure(*item, request.capacity_type, code, kind, "", subnet) for item in sorted(found))
        )

    stage.compute.answers.append(answer)


def test_a_quota_that_is_used_up_rests_with_all_its_types_for_a_quarter_of_an_hour() -> None:
    stage = Stage((family_pool("second", ("r6i",), weight=1), family_pool("first", ("m6i",), weight=2)))
    stage.add_pods(1)
    refusing(stage, "quota", "VcpuLimitExceeded")
    report = stage.schedule()
    assert (len(report.failed), report.unschedulable, launches(stage)) == (1, 1, 1)
    stage.clock.advance(899)
    assert stage.schedule().launched == ()
    stage.clock.advance(1)
    assert len(stage.schedule().launched) == 1


def test_a_spot_quota_leaves_on_demand() -> None:
    stage = Stage((family_pool("any", ("m6i",), capacity_types=("spot", "on-demand")),), spot=True)
    stage.add_pods(1)
    refusing(stage, "quota", "MaxSpotInstanceCountExceeded")
    stage.schedule()
    assert [instance.capacity_type for instance in stage.compute.alive()] == ["on-demand"]


def test_a_full_subnet_closes_its_zone_only_when_it_is_the_last_one_there() -> None:
    stage = Stage((family_pool("any", ("m6i",)),))
    stage.compute.subnets = (Subnet("subnet-1", ZONES[0], free_ips=200), Subnet("subnet-2", ZONES[0], free_ips=50))
    stage.add_pods(1)
    refusing(stage, "subnet", "InsufficientFreeAddressesInSubnet", subnet="subnet-1")
    report = stage.schedule()
    assert (len(report.failed), len(report.launched)) == (1, 1)
    used = [emptiest_subnets(request.resolved.subnets)[ZONES[0]].id for request in stage.compute.requests]
    assert used == ["subnet-1", "subnet-2"]
    refusing(stage, "subnet", "InsufficientFreeAddressesInSubnet", subnet="subnet-2")
    stage.add_pods(20, prefix="more")
    assert stage.schedule().unschedulable > 0
    stage.clock.advance(180)
    assert stage.schedule().unschedulable == 0


def test_a_burst_is_spread_over_the_subnets_of_a_zone() -> None:
    stage = Stage(tuple(family_pool(f"pool-{n}", ("m6i",), sizes=("large",)) for n in range(4)))
    stage.compute.subnets = tuple(Subnet(f"subnet-{n}", ZONES[0], free_ips=100) for n in range(4))
    for number in range(4):
        stage.add_pods(1, prefix=f"p{number}", cpu="1200m")
        stage.schedule()
    used = [emptiest_subnets(request.resolved.subnets)[ZONES[0]].id for request in stage.compute.requests]
    assert used == [f"subnet-{n}" for n in range(4)]
    stage.clock.advance(61)  # describing shows by now what was taken
    stage.add_pods(1, prefix="later", cpu="1200m")
    stage.schedule()
    assert emptiest_subnets(stage.compute.requests[-1].resolved.subnets)[ZONES[0]].free_ips == 100


def test_subnets_with_room_stay_however_much_is_reserved() -> None:
    subnets = (Subnet("a", "z", free_ips=10), Subnet("b", "z", free_ips=0), Subnet("c", "z", free_ips=5))
    assert open_subnets(subnets, {"c"}, {"a": 50}) == (Subnet("a", "z", free_ips=1),)


def test_reserved_instances_are_used_first_and_the_rest_is_bought_in_the_same_invocation() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("reserved", "on-demand")),))
    stage.compute.reservations = (
        CapacityReservation(id="cr-1", instance_type="m6i.large", zone=ZONES[0], available=2),
    )
    stage.add_pods(5, cpu="1200m", memory="2Gi")
    report = stage.schedule()
    assert (len(report.launched), report.failed, report.unfinished) == (5, (), "")
    kinds = sorted(claim.known_instance.capacity_type for claim in stage.claims())
    assert kinds == ["on-demand"] * 3 + ["reserved"] * 2
    stage.play_on()


def test_a_reservation_that_another_cluster_empties_meanwhile_is_made_up_for_on_demand() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("reserved", "on-demand")),))
    held = CapacityReservation(id="cr-1", instance_type="m6i.large", zone=ZONES[0], available=2)
    stage.compute.reservations = (held,)
    stage.add_pods(2, cpu="1200m", memory="2Gi")

    def rival() -> None:
        stage.state.take_reserved("cr-1", "theirs", 1, 2, stage.clock.now())

    stage.faults.on("after", "state.commit", rival)
    report = stage.schedule()
    assert (len(report.launched), len(report.failed)) == (2, 1)
    assert sorted(instance.capacity_type for instance in stage.compute.alive()) == ["on-demand", "reserved"]


def test_what_other_clusters_take_of_a_reservation_is_not_planned_with() -> None:
    mine = node_claim(cluster="here", name="n", node_pool="p", node_class="d", token="mine")
    state = DecisionState(1, claims=(mine,), reserved={"cr-1": {"mine": 2, "theirs": 3}})
    held = CapacityReservation(id="cr-1", instance_type="m5.large", zone=ZONES[0], available=10)
    resolved = ResolvedNodeClass("d", "AL2023", (), (), (), "profile", capacity_reservations=(held,))
    [left] = OfferingMarket(state).open(resolved).capacity_reservations
    assert left.available == 7


@pytest.mark.parametrize("code", ["", "ServiceUnavailable"])
def test_an_answer_that_is_lost_blames_nobody(code: str) -> None:
    stage = Stage((family_pool("any", ("m6i",)),))
    stage.add_pods(1)
    stage.faults.on("before", "compute.launch", AwsError("no answer", code=code))
    stage.schedule()
    assert stage.state.read(stage.name, stage.clock.now()).unavailable == ()
    assert len(stage.schedule().launched) == 1


@pytest.mark.parametrize("effect", ["state.reserve_addresses", "state.mark_unavailable"])
def test_a_store_that_takes_no_advice_does_not_stop_a_launch(effect: str) -> None:
    stage = Stage((family_pool("second", ("r6i",), weight=1), family_pool("first", ("m6i",), weight=2)))
    stage.add_pods(1)
    stage.compute.capacity.update({(name, zone, "on-demand"): 0 for name in stage.types for zone in ZONES[:1]})
    stage.faults.on("before", effect, StoreThrottled("slow down"))
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["MarketNotUpdated"] == 1


def test_throttled_offerings_are_not_blamed() -> None:
    stage = Stage((family_pool("any", ("m6i",)),))
    stage.add_pods(1)
    refusing(stage, "throttled", "RequestLimitExceeded")
    assert stage.schedule().unfinished
    assert stage.state.read(stage.name, stage.clock.now()).unavailable == ()


def test_addresses_are_reserved_before_the_fleet_is_asked_for() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(2, cpu="1200m")
    stage.schedule()
    points = stage.faults.points
    assert points.index("after state.reserve_addresses") < points.index("before compute.launch")
    pods = msgspec.to_builtins(stage.types["m6i.large"].capacity)["pods"]
    addresses = stage.state.read(stage.name, stage.clock.now()).addresses
    assert set(addresses.values()) == {2 * pods}


def grouped() -> Stage:
    """A pool of one type whose EC2NodeClass is in a placement group."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.compute.placement_group = PlacementGroup("pg-1", "mine", "cluster")
    types = tuple(
        msgspec.structs.replace(kind, placement_group_info=PlacementGroupInfo(("cluster", "spread")))
        for kind in stage.context.catalog.load().types
    )
    stage.context.catalog.save(msgspec.structs.replace(stage.context.catalog.load(), types=types))
    stage.add_pods(1, cpu="1200m")
    return stage


def test_what_a_placement_group_could_not_get_others_may() -> None:
    stage = grouped()
    dry(stage)
    other = Stage((family_pool("any", ("m6i",), sizes=("large",)),), beside=stage)
    other.add_pods(1, cpu="1200m")
    assert stage.schedule().failed
    assert len(other.schedule().launched) == 1
    stage.compute.capacity.clear()
    assert (stage.schedule().launched, launches(stage)) == ((), 2), "the group's own launches rest"
    stage.clock.advance(180)
    assert len(stage.schedule().launched) == 1


def test_a_group_that_is_full_in_a_zone_is_asked_for_others() -> None:
    stage = grouped()
    full = OfferingFailure("*", ZONES[0], "*", "InsufficientInstanceCapacity", group="pg-1")
    stage.state.mark_unavailable([full], stage.clock.now())
    stage.schedule()
    assert {override.zone for override in stage.compute.requests[0].overrides} == set(ZONES[1:])
    market = OfferingMarket(stage.state.read(stage.name, stage.clock.now()))
    assert [market.is_unavailable("m6i.large", zone, "on-demand", "pg-1") for zone in ZONES] == [True, False, False]
    assert not market.is_unavailable("m6i.large", ZONES[0], "on-demand", "pg-2")
    assert not market.is_unavailable("m6i.large", ZONES[0], "on-demand")


def test_a_reservation_that_turns_out_full_leaves_the_other_of_its_type_and_zone() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("reserved", "on-demand")),))
    stage.compute.reservations = tuple(
        CapacityReservation(id=name, instance_type="m6i.large", zone=ZONES[0], available=2) for name in ("cr-1", "cr-2")
    )

    def full(request: FleetRequest) -> FleetResult:
        (override,) = request.overrides
        offering = (override.instance_type, override.zone, "reserved")
        failure = OfferingFailure(*offering, "ReservationCapacityExceeded", reservation=override.reservation)
        return FleetResult((), (failure,))

    stage.compute.answers = [full]
    stage.add_pods(1, cpu="1200m")
    report = stage.schedule()
    assert (len(report.failed), len(report.launched)) == (1, 1)
    first, second = stage.compute.requests
    assert {first.overrides[0].reservation, second.overrides[0].reservation} == {"cr-1", "cr-2"}
    assert [instance.capacity_type for instance in stage.compute.launches] == ["reserved"]
