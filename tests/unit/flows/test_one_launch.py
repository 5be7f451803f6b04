"""One launch of claims that are written down: what is asked of EC2, and what is known of them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError, AwsUnavailable
from shiplap.flows.assign_instances import Attempt
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.planning.decision_inputs import NodeClassSupply, read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import priced_snapshot
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import FleetOptions
from shiplap.flows.schedule.launch import (
    LEASE_S,
    LaunchOutcome,
    cheapest_types,
    launch,
    with_leases,
    within_reservation,
)
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, PlacementGroup
from shiplap.instances.catalog.type_catalog import InstanceType, Observation, Offering
from shiplap.instances.offerings.remedies import with_remedy
from shiplap.instances.offerings.unavailability import ANY
from shiplap.instances.readiness.joins import node_class_scope
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import FleetOverride, FleetRequest, FleetResult, OfferingFailure, UnavailableOffering
from shiplap_lab.fakes.faults import Crash
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import CLUSTER, NODE_CLASS, ZONES, Stage
from tests.unit.flows.sold_types import kind

OWNER = "somebody"


def planned(pods: int = 1) -> Stage:
    """A stage with as many claims that are planned, and whose function died before it launched them."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    stage.faults.on("after", "state.commit", Crash())
    assert stage.dies(stage.schedule)
    assert {claim.state for claim in stage.claims()} == {ClaimState.PLANNED}
    return stage


def launching(pods: int = 1) -> Stage:
    """The same with claims whose launch EC2 has not answered."""
    stage = planned(pods)
    stage.faults.on("before", "compute.launch", AwsUnavailable("no answer"))
    assert launched(stage).pending
    return stage


def market_of(stage: Stage) -> OfferingMarket:
    return OfferingMarket(stage.state.read(stage.name, stage.clock.now()))


def supply_of(stage: Stage, **changes: Any) -> NodeClassSupply:
    return replace(read_supply(stage.settings, stage.context).node_classes["default"], **changes)


def launched(
    stage: Stage, supply: NodeClassSupply | None = None, market: OfferingMarket | None = None
) -> LaunchOutcome:
    bought = read_supply(stage.settings, stage.context)
    priced = priced_snapshot(stage.settings, read_inputs(stage.settings, stage.context), bought, stage.context)
    claims = stage.claims()
    attempt = Attempt(owner=OWNER, deadline=stage.clock.now() + 300, join_timeout_s=900)
    return launch(
        claims,
        supply or bought.node_classes["default"],
        priced.types_for(claims[0]),
        attempt,
        market or market_of(stage),
        stage.context,
    )


def nothing(failures: Sequence[OfferingFailure] = ()) -> Callable[[FleetRequest], FleetResult]:
    """An answer without instances."""
    return lambda _: FleetResult((), tuple(failures))


def failure(zone: str, kind: str = "capacity") -> OfferingFailure:
    return OfferingFailure("m6i.large", zone, "on-demand", "Code", kind)


def ends_at_once(stage: Stage) -> OfferingFailure:
    return OfferingFailure(node_class_scope(stage.name, NODE_CLASS), ANY, ANY, "Client.InternalError")


def test_claims_belong_to_whoever_launches_them_from_the_request_on() -> None:
    stage = planned(2)
    stage.clock.advance(7.0)
    assert len(launched(stage).launched) == 2
    (request,) = stage.compute.requests
    now = stage.clock.now()
    for claim in request.claims:
        assert (claim.state, claim.launch.owner, claim.launch.together) == (ClaimState.LAUNCHING, OWNER, 2)
        assert (claim.changed_at, claim.deadline_at) == (now, now + LEASE_S)


def test_a_launch_without_an_answer_may_be_resumed_by_anybody_at_once() -> None:
    stage = planned()

    def late() -> None:
        stage.clock.advance(20.0)
        raise AwsUnavailable("no answer")

    stage.faults.on("before", "compute.launch", late)
    (claim,) = launched(stage).pending
    assert (claim.changed_at, claim.deadline_at) == (stage.clock.now(), stage.clock.now())
    assert claim.state is ClaimState.LAUNCHING


def test_nothing_is_asked_for_from_a_class_that_has_turned_out_to_be_broken() -> None:
    """Its selectors were answered, and an earlier launch of the invocation was refused."""
    stage = planned()
    outcome = launched(stage, supply_of(stage, not_ready="may not pass the role"))
    assert [claim.failure for claim in outcome.failed] == ["node class default: may not pass the role"]
    assert stage.compute.requests == []


def test_planned_claims_of_a_class_whose_instances_ended_fail_and_requests_without_an_answer_are_repeated() -> None:
    stage = planned()
    market = market_of(stage)
    market.learn([ends_at_once(stage)])
    assert [claim.failure for claim in launched(stage, market=market).failed] == [
        "node class default: its last instances ended at once"
    ]
    stage = launching()
    market = market_of(stage)
    market.learn([ends_at_once(stage)])
    assert len(launched(stage, market=market).launched) == 1


@pytest.mark.parametrize(("ago_s", "waits"), [(GRACE_S - 1, True), (GRACE_S, False)])
def test_while_instances_of_an_earlier_request_may_be_seen_late_its_claims_wait(ago_s: float, waits: bool) -> None:
    stage = launching(2)
    stage.clock.advance(ago_s)
    outcome = launched(stage, supply_of(stage, not_ready="gone"))
    assert [len(claims) for claims in (outcome.pending, outcome.failed)] == ([2, 0] if waits else [0, 2])


@pytest.mark.parametrize("begin", [planned, launching])
def test_what_was_not_asked_says_nothing_of_an_earlier_request(begin: Callable[[int], Stage]) -> None:
    """That may have given instances, and they the last addresses of their subnets."""
    stage = begin(2)
    full = [OfferingFailure("m6i.large", zone, "on-demand", "InsufficientFreeAddresses", "subnet") for zone in ZONES]
    stage.compute.answers = [lambda _: FleetResult((), tuple(full), was_sent=False)]
    outcome = launched(stage)
    was_asked = begin is launching
    assert [len(claims) for claims in (outcome.pending, outcome.failed)] == ([2, 0] if was_asked else [0, 2])
    assert len(stage.state.read(stage.name, stage.clock.now()).unavailable) == len(ZONES)


def test_what_a_placement_group_could_not_get_is_not_asked_for_in_it() -> None:
    for group in ("pg-1", "pg-2"):
        stage = planned()
        supply = supply_of(stage)
        assert supply.resolved is not None
        supply = replace(
            supply, resolved=replace(supply.resolved, placement_group=PlacementGroup(group, "g", "cluster"))
        )
        market = market_of(stage)
        market.learn([OfferingFailure(ANY, zone, ANY, "Code", group="pg-1") for zone in ZONES])
        assert len(launched(stage, supply, market).launched) == (0 if group == "pg-1" else 1)


# What people are told


def events_of_pods(stage: Stage) -> list[str]:
    return [item["message"] for item in stage.server.list("events").items]


def test_pods_of_one_claim_are_told_what_only_people_can_end() -> None:
    stage = planned(2)
    vcpus = OfferingFailure("m6i.large", ZONES[0], "on-demand", "VcpuLimitExceeded", "quota", "your limit is 32")
    stage.compute.answers = [nothing([failure(ZONES[1]), vcpus])]
    outcome = launched(stage)
    assert len(outcome.failed) == 2
    (reason,) = {claim.failure for claim in outcome.failed}
    assert reason.startswith("Code, VcpuLimitExceeded on 2 offerings: your limit is 32; raise the quota of vCPUs")
    told = reason.replace("Code, VcpuLimitExceeded on 2", "VcpuLimitExceeded on 1")
    assert events_of_pods(stage) == [told] * len(outcome.failed[0].plan.pods)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("Code", "capacity", "Code on 1 offerings"),
        (
            "InsufficientFreeAddressesInSubnet",
            "subnet",
            "InsufficientFreeAddressesInSubnet on 1 offerings; add subnets",
        ),
    ],
)
def test_pods_hear_nothing_of_what_another_offering_or_subnet_may_end(code: str, kind: str, says: str) -> None:
    stage = planned()
    stage.compute.answers = [nothing([OfferingFailure("m6i.large", ZONES[0], "on-demand", code, kind)])]
    (claim,) = launched(stage).failed
    assert claim.failure.startswith(says)
    assert events_of_pods(stage) == []


def test_a_broken_class_is_told_with_aws_s_message_and_what_to_do() -> None:
    denied = OfferingFailure(
        "m6i.large", ZONES[0], "on-demand", "UnauthorizedOperation", "configuration", "You may not. Encoded: x"
    )
    stage = planned()
    stage.compute.answers = [nothing([denied])]
    assert launched(stage).broken.startswith("UnauthorizedOperation: You may not. Encoded: x; look at the action")
    stage = planned()
    stage.faults.on("before", "compute.launch", AwsError("no templates", code="MaxTemplateLimitExceeded"))
    outcome = launched(stage)
    assert outcome.broken.startswith("no templates; delete launch templates that nothing uses")
    assert {claim.failure for claim in outcome.failed} == {outcome.broken}


# What an answer teaches


def test_what_failed_is_left_alone_by_the_round_and_by_the_account() -> None:
    stage = planned()
    market = market_of(stage)
    stage.compute.answers = [nothing([failure(ZONES[0]), failure(ZONES[1], "throttled")])]
    launched(stage, market=market)
    assert [market.is_unavailable("m6i.large", zone, "on-demand") for zone in ZONES] == [True, False, False]
    resting = stage.state.read(stage.name, stage.clock.now()).unavailable
    assert [offering.zone for offering in resting] == [ZONES[0]]


@pytest.mark.parametrize(
    ("kinds", "throttled"),
    [(("throttled",), True), (("throttled", "transient"), True), (("throttled", "capacity"), False)],
)
def test_ec2_is_only_left_in_peace_if_all_that_failed_may_succeed_a_little_later(
    kinds: Sequence[str], throttled: bool
) -> None:
    stage = planned()
    stage.compute.answers = [nothing([failure(zone, kind) for zone, kind in zip(ZONES, kinds, strict=False)])]
    outcome = launched(stage)
    assert (len(outcome.failed), outcome.throttled, outcome.broken) == (1, throttled, "")


def test_an_answer_without_instances_and_reasons_blames_what_was_asked_for_where_it_was() -> None:
    stage = planned()
    supply = supply_of(stage)
    assert supply.resolved is not None
    grouped = replace(supply.resolved, placement_group=PlacementGroup("pg-1", "g", "cluster"))
    stage.compute.answers = [nothing()]
    (claim,) = launched(stage, replace(supply, resolved=grouped)).failed
    assert claim.failure == f"NoInstance on {len(ZONES)} offerings"
    resting = stage.state.read(stage.name, stage.clock.now()).unavailable
    assert {offering.scope for offering in resting} == {("pg-1/m6i.large", zone, "on-demand") for zone in ZONES}


def test_a_refusal_of_a_request_that_was_not_sent_before_fails_its_claims_and_names_the_class_broken() -> None:
    stage = planned()
    refusal = AwsError("not allowed", code="UnauthorizedOperation")
    stage.faults.on("before", "compute.launch", refusal)
    outcome = launched(stage)
    assert (len(outcome.failed), outcome.broken, outcome.throttled) == (
        1,
        with_remedy(refusal.code, str(refusal)),
        False,
    )
    stage = launching()
    stage.faults.on("before", "compute.launch", refusal)
    assert len(launched(stage).pending) == 1, "the request before may have launched"


# Reservations


def reserved(name: str) -> FleetOptions:
    override = FleetOverride(0.001, "m6i.large", ZONES[0], "ami-1", 29, reservation=name)
    return FleetOptions(labels.RESERVED, (override,))


@pytest.mark.parametrize(("name", "granted"), [("cr-1", 3), ("cr-2", 1), ("cr-3", 0)])
def test_no_more_is_launched_into_a_reservation_than_it_has_left(name: str, granted: int) -> None:
    stage = planned(3)
    supply = supply_of(stage)
    assert supply.resolved is not None
    held = tuple(
        CapacityReservation(id=item, instance_type="m6i.large", zone=ZONES[0], available=left)
        for item, left in (("cr-1", 9), ("cr-2", 1))
    )
    resolved = replace(supply.resolved, capacity_reservations=held)
    kept, outcome = within_reservation(stage.claims(), reserved(name), resolved, {}, stage.context)
    assert (len(kept), len(outcome.failed)) == (granted, 3 - granted)
    assert {claim.failure for claim in outcome.failed} <= {f"capacity reservation {name} is used up"}


# Estimates


def estimates(number: int) -> dict[str, InstanceType]:
    names = [f"m{place:02}.large" for place in range(number)]
    return {name: replace(kind(name, 1.0 + place), verified=False) for place, name in enumerate(names)}


def explorer(types: dict[str, InstanceType], *rules: RequirementSpec) -> NodeClaim:
    return node_claim(
        cluster=CLUSTER, name="c", instance_types=tuple(types), relies_on_estimate=tuple(types), requirements=rules
    )


def test_the_cheapest_estimates_are_explored_or_all_of_them_where_the_choice_must_be_kept() -> None:
    types, stage = estimates(17), Stage()
    assert list(with_leases(explorer(types), types, stage.context)) == list(types)[:15]
    wide = RequirementSpec("karpenter.k8s.aws/instance-family", "Exists", (), 17)
    assert list(with_leases(explorer(types, wide), types, Stage().context)) == list(types)


def test_a_type_is_as_cheap_as_its_cheapest_offering_that_can_be_had() -> None:
    spread = replace(kind("a", 1.0), offerings=(Offering("a", "spot", 0.1), Offering("b", "on-demand", 9.0)))
    gone = replace(kind("b", 1.0), offerings=(Offering("a", "spot", 0.0, available=False), Offering("b", "spot", 0.3)))
    assert [item.name for item in cheapest_types([gone, kind("c", 0.2), spread], 3)] == ["a", "c", "b"]


def test_the_lease_of_a_type_that_was_measured_meanwhile_is_given_back() -> None:
    types, stage = estimates(2), Stage()
    first = types["m00.large"]
    had = {"memory": 8000}
    seen = Observation(first.ami, first.name, first.kubelet_hash, had, had, stage.clock.now(), "another", "n")
    stage.capacity.observe(seen)
    assert list(with_leases(explorer(types), types, stage.context)) == ["m01.large"]
    (lease,) = stage.capacity.pilots(["ami-1"], stage.clock.now())
    assert "m01.large" in lease


def test_an_offering_that_gives_again_is_trusted_by_all() -> None:
    stage = planned()
    stage.state.mark_unavailable([failure(zone) for zone in ZONES], stage.clock.now())
    rests: tuple[UnavailableOffering, ...] = stage.state.read(stage.name, stage.clock.now()).unavailable
    stage.clock.set(rests[0].until + 1)
    (claim,) = launched(stage).launched
    left = stage.state.read(stage.name, stage.clock.now()).recovering
    assert {offering.zone for offering in left} == set(ZONES) - {claim.known_instance.zone}
