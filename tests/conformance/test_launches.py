"""Launch cases of Karpenter's AWS suites, by the number each has in the list of conformance scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.aws.ec2 import fleet_requests
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable
from shiplap.instances.catalog.resolved_nodeclass import Subnet, emptiest_subnets
from shiplap.kubernetes import labels
from shiplap.ports import FleetRequest, FleetResult
from tests.builders.claims import with_fields
from tests.conformance.launches import ON_DEMAND, RESERVED, SPOT, A, B, C, claims, given, held, refuse, rule, sold

FAMILY = "karpenter.k8s.aws/instance-family"
ICE = "InsufficientInstanceCapacity"


def test_07_every_spot_offering_is_cheaper_than_the_cheapest_on_demand_one() -> None:
    ground = given(sold("a.large", 0.10, spot=0.04), sold("b.large", 0.20, spot=0.12), sold("c.large", 0.15, spot=0.09))
    ground.launch(claims())
    assert {name for name, _ in ground.asked} == {"a.large", "c.large"}
    assert ground.requests[-1].capacity_type == SPOT


def test_09_no_bare_metal_where_a_generic_type_fits() -> None:
    ground = given(sold("m5.metal", 0.01), sold("m5.large", 0.10))
    ground.launch(claims())
    assert {name for name, _ in ground.asked} == {"m5.large"}


def test_11_bare_metal_is_launched_where_nothing_else_will_do() -> None:
    ground = given(sold("m5.metal", 4.6), sold("m5.large", 0.1))
    [claim] = ground.launch(claims(1, "m5.metal")).launched
    assert claim.known_instance.type == "m5.metal"


def test_37_a_type_that_has_run_out_in_one_zone_is_launched_in_another() -> None:
    ground = given(sold("g5.12xlarge"), dry=[("g5.12xlarge", A, ON_DEMAND)])
    [claim] = ground.launch(claims()).launched
    assert claim.known_instance.zone == B
    assert ("g5.12xlarge", A, ON_DEMAND) in ground.rests()


def test_39_a_type_whose_rest_is_over_is_launched_again() -> None:
    ground = given(sold("m5.large", zones=(A,)), answers=[refuse(ICE, "capacity")])
    assert ground.launch(claims()).failed
    ground.later(179)
    assert len(ground.requests) == 1
    assert ("m5.large", A, ON_DEMAND) in ground.rests()
    ground.later(1)
    assert ground.rests() == set()
    assert ground.launch([replace(item, name="again") for item in claims()]).launched


def test_41_a_type_without_any_offering_left_is_not_asked_for() -> None:
    ground = given(sold("m5.large"), sold("c5.large", 0.2), answers=[refuse(ICE, "capacity")])
    assert len(ground.launch(claims(1, "m5.large")).failed) == 1
    outcome = ground.launch([replace(item, name="again") for item in claims()])
    assert outcome.launched[0].known_instance.type == "c5.large"
    assert {name for name, _ in ground.asked} == {"c5.large"}


def test_43_a_capacity_type_that_rests_leaves_the_other() -> None:
    answers = [refuse("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "quota")]
    ground = given(sold("m5.large", spot=0.03), answers=answers)
    assert ground.launch(claims()).failed
    [claim] = ground.launch([replace(item, name="again") for item in claims()]).launched
    assert claim.known_instance.capacity_type == ON_DEMAND


def test_43_a_zone_whose_subnets_rest_leaves_the_others() -> None:
    full = "InsufficientFreeAddressesInSubnet"
    ground = given(sold("m5.large"), answers=[refuse(full, "subnet", subnet=f"subnet-{A}")])
    ground.launch(claims())
    ground.launch([replace(item, name="again") for item in claims()])
    assert {zone for _, zone in ground.asked} == {B, C}


def test_45_the_next_launch_takes_the_subnet_that_still_has_addresses() -> None:
    subnets = (Subnet("large", A, free_ips=200), Subnet("small", A, free_ips=50))
    full = refuse("InsufficientFreeAddressesInSubnet", "subnet", subnet="large")
    ground = given(sold("m5.large", zones=(A,)), subnets=subnets, answers=[full])
    ground.launch(claims())
    assert ground.launch([replace(item, name="again") for item in claims()]).launched
    assert [used(request) for request in ground.requests] == [{A: "large"}, {A: "small"}]


def used(request: FleetRequest) -> dict[str, str]:
    """The subnet of each zone a request may use."""
    return {zone: subnet.id for zone, subnet in emptiest_subnets(request.resolved.subnets).items()}


def test_47_without_the_service_linked_role_all_of_spot_rests() -> None:
    answers = [refuse("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "quota")]
    ground = given(sold("m5.large", spot=0.03), answers=answers)
    [failed] = ground.launch(claims()).failed
    assert "ServiceLinkedRole" in failed.failure
    assert ground.rests() == {("*", "*", SPOT)}


def test_49_a_reservation_that_is_full_rests_and_on_demand_is_next() -> None:
    ground = given(
        sold("m5.large", reserved=[held("cr-1", 5)]), answers=[refuse("ReservationCapacityExceeded", "capacity")]
    )
    assert ground.launch(claims()).failed
    assert ground.rests() == {("m5.large", A, RESERVED)}
    [claim] = ground.launch([replace(item, name="again") for item in claims()]).launched
    assert claim.known_instance.capacity_type == ON_DEMAND


def test_49_another_reservation_of_the_same_type_and_zone_is_next() -> None:
    ground = given(
        sold("m5.large", reserved=[held("cr-1", 5), held("cr-2", 3)]),
        answers=[refuse("ReservationCapacityExceeded", "capacity", reservation="cr-1")],
    )
    assert ground.launch(claims()).failed
    assert ground.rests() == {("cr-1", A, RESERVED)}
    [claim] = ground.launch([replace(item, name="again") for item in claims()]).launched
    assert (claim.known_instance.capacity_type, claim.plan.labels[labels.RESERVATION_ID]) == (RESERVED, "cr-2")


def test_49_throttling_leaves_a_reservation_as_it_is() -> None:
    raised = AwsThrottled("slow down", code="RequestLimitExceeded")
    ground = given(sold("m5.large", reserved=[held("cr-1", 5)]), raises=raised)
    outcome = ground.launch(claims())
    assert (len(outcome.pending), outcome.throttled) == (1, True)
    assert ground.rests() == set()


@pytest.mark.parametrize(
    ("capacity_type", "options", "strategy"),
    [(ON_DEMAND, "OnDemandOptions", "lowest-price"), (SPOT, "SpotOptions", "price-capacity-optimized")],
)
def test_51_the_strategy_follows_the_capacity_type(capacity_type: str, options: str, strategy: str) -> None:
    ground = given(sold("m5.large", spot=0.03))
    ground.launch(claims(requirements=(rule(labels.CAPACITY_TYPE, "In", capacity_type),)))
    assert parameters(ground.requests[-1])[options] == {"AllocationStrategy": strategy}


@pytest.mark.parametrize(
    ("capacity_type", "options", "strategy"),
    [(ON_DEMAND, "OnDemandOptions", "prioritized"), (SPOT, "SpotOptions", "capacity-optimized-prioritized")],
)
def test_51_where_an_overlay_states_prices_ec2_is_told_the_order(
    capacity_type: str, options: str, strategy: str
) -> None:
    plain, stated = sold("a.large", 0.1, spot=0.03), sold("b.large", 0.2, spot=0.06)
    cheap = [replace(offering, price=offering.price / 4, overlaid=True) for offering in stated.offerings]
    ground = given(plain, replace(stated, offerings=tuple(cheap)))
    ground.launch(claims(requirements=(rule(labels.CAPACITY_TYPE, "In", capacity_type),)))
    asked = parameters(ground.requests[-1])
    assert asked[options] == {"AllocationStrategy": strategy}
    overrides = [item for config in asked["LaunchTemplateConfigs"] for item in config["Overrides"]]
    assert {item["InstanceType"]: item["Priority"] for item in overrides} == {"b.large": 0, "a.large": 1}


def parameters(request: FleetRequest) -> dict[str, Any]:
    return fleet_requests.parameters(request, fleet_requests.fleet_configs(request), request.token)


def test_53_a_fleet_keeps_as_many_values_as_are_asked_for() -> None:
    types = [sold("a.large", 0.1, spot=0.2), sold("b.metal", 0.05, spot=0.01), sold("c.large", 0.3, spot=0.1)]
    ground = given(*types)
    ground.launch(claims(requirements=(rule(FAMILY, "Exists", min_values=3),)))
    assert len({name for name, _ in ground.asked}) == 3


def test_53_a_minimum_that_cannot_be_had_is_no_launch() -> None:
    ground = given(sold("a.large"), sold("b.large"))
    [failed] = ground.launch(claims(requirements=(rule(FAMILY, "Exists", min_values=3),))).failed
    assert "no offering" in failed.failure
    assert ground.requests == []


@pytest.mark.parametrize(
    ("reservations", "chosen"),
    [
        ([held("c", 1, interruptible=True), held("b", 1, kind="capacity-block"), held("a", 1)], "a"),
        ([held("c", 1, interruptible=True), held("b", 1, kind="capacity-block")], "b"),
        ([held("c", 1, interruptible=True)], "c"),
    ],
)
def test_55_ordinary_reservations_come_before_blocks_and_these_before_interruptible_ones(
    reservations: list[Any], chosen: str
) -> None:
    ground = given(sold("m5.large", reserved=reservations))
    [claim] = ground.launch(claims()).launched
    assert claim.known_instance.capacity_type == RESERVED
    assert {item.reservation for item in ground.requests[-1].overrides} == {chosen}


@pytest.mark.parametrize(
    ("reservation", "target"),
    [
        (held("cr", 1), "on-demand"),
        (held("cr", 1, kind="capacity-block"), "capacity-block"),
        (held("cr", 1, interruptible=True), "reserved-capacity"),
    ],
)
def test_55_a_fleet_is_told_what_kind_of_reservation_it_is(reservation: Any, target: str) -> None:
    ground = given(sold("m5.large", reserved=[reservation]))
    ground.launch(claims())
    wanted = parameters(with_cluster(ground.requests[-1]))
    assert wanted["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    assert ("OnDemandOptions" in wanted) == (target == "on-demand")
    assert "SpotOptions" not in wanted
    kinds = wanted.get("ReservedCapacityOptions", {}).get("ReservationTypes", [])
    assert kinds == (["interruptible-capacity-reservation"] if target == "reserved-capacity" else [])


def with_cluster(request: FleetRequest) -> FleetRequest:
    """The request with what user data needs."""
    return replace(request, resolved=replace(request.resolved, service_cidr="10.100.0.0/16"))


def test_57_of_two_reservations_of_one_type_and_zone_the_larger_one() -> None:
    ground = given(sold("m5.large", reserved=[held("few", 2), held("many", 9)]))
    ground.launch(claims())
    assert {item.reservation for item in ground.requests[-1].overrides} == {"many"}


def test_59_spot_dearer_than_on_demand_is_dropped_and_on_demand_kept() -> None:
    ground = given(sold("m5.large", 0.1, spot=0.2))
    ground.launch(claims())
    assert ground.requests[-1].capacity_type == ON_DEMAND


def test_71_the_subnet_with_most_addresses_and_launches_in_flight_alternate_the_choice() -> None:
    subnets = (Subnet("first", A, free_ips=110), Subnet("second", A, free_ips=100))
    ground = given(sold("m5.large", zones=(A,)), subnets=subnets)
    for number in range(4):
        ground.launch([replace(item, name=f"n{number}") for item in claims()])
    assert [used(request)[A] for request in ground.requests] == ["first", "second", "first", "second"]


def test_71_a_refreshed_look_at_the_subnets_counts_alone() -> None:
    subnets = (Subnet("first", A, free_ips=110), Subnet("second", A, free_ips=100))
    ground = given(sold("m5.large", zones=(A,)), subnets=subnets)
    ground.launch(claims())
    ground.later(61)
    ground.launch([replace(item, name="again") for item in claims()])
    assert [used(request)[A] for request in ground.requests] == ["first", "first"]


def test_75_and_77_templates_differ_by_what_nodes_are_told_and_not_by_the_claim() -> None:
    ground = given(sold("m5.large"))
    ground.launch(claims())
    request = with_cluster(ground.requests[-1])

    def name(changed: FleetRequest) -> str:
        [config] = fleet_requests.fleet_configs(changed)
        return config.template.name

    claim = request.claim
    assert name(replace(request, claims=(replace(claim, name="other"),))) == name(request)
    assert name(replace(request, claims=(with_fields(claim, instance_types=("x",)),))) == name(request)
    assert name(replace(request, claims=(with_fields(claim, node_class="other"),))) != name(request)
    assert name(replace(request, claims=(with_fields(claim, labels={"a": "b"}),))) != name(request)


def test_89_each_reservation_has_a_template_of_its_own_and_on_demand_stays_out_of_all() -> None:
    ground = given(sold("m5.large", reserved=[held("cr-1", 1)]))
    ground.launch(claims())
    plain = claims(requirements=(rule(labels.CAPACITY_TYPE, "In", ON_DEMAND),))
    ground.launch([replace(item, name="plain") for item in plain])
    into, beside = (
        fleet_requests.fleet_configs(request)[0].template.data["CapacityReservationSpecification"]
        for request in map(with_cluster, ground.requests)
    )
    assert into["CapacityReservationPreference"] == "capacity-reservations-only"
    assert into["CapacityReservationTarget"]["CapacityReservationId"] == "cr-1"
    assert beside == {"CapacityReservationPreference": "none"}


def test_no_more_is_taken_of_a_reservation_than_it_holds_whoever_takes_it() -> None:
    ground = given(sold("m5.large", reserved=[held("cr-1", 5)]))
    first = ground.launch(claims(3))
    second = ground.launch([replace(item, name=f"b-{item.name}") for item in claims(4)])
    assert (len(first.launched), len(second.launched), len(second.failed)) == (3, 2, 2)
    assert all("used up" in claim.failure for claim in second.failed)
    third = ground.launch([replace(item, name=f"c-{item.name}") for item in claims(1)])
    assert "used up" in third.failed[0].failure
    assert len(ground.requests) == 2


def test_a_fleet_that_gives_too_few_is_counted_exactly() -> None:
    left = {("m5.large", A, ON_DEMAND): 2, ("m5.large", B, ON_DEMAND): 0, ("m5.large", C, ON_DEMAND): 1}
    ground = given(sold("m5.large"), left=left)
    outcome = ground.launch(claims(5))
    assert sorted(claim.known_instance.zone for claim in outcome.launched) == [A, A, C]
    assert [claim.failure for claim in outcome.failed] == [f"{ICE} on 3 offerings"] * 2
    assert ground.rests() == {("m5.large", zone, ON_DEMAND) for zone in (A, B, C)}


@pytest.mark.parametrize("code", ["InvalidAMIID.NotFound", "InvalidSecurityGroupID.NotFound", "UnauthorizedOperation"])
def test_what_only_a_manifest_mends_stops_its_node_class_and_blames_no_offering(code: str) -> None:
    ground = given(sold("m5.large"), answers=[refuse(code, "configuration")])
    outcome = ground.launch(claims())
    assert outcome.broken.startswith(code)
    assert ground.rests() == set()


@pytest.mark.parametrize("code", ["", "ServiceUnavailable", "IdempotentParameterMismatch"])
def test_what_may_have_happened_is_not_given_up(code: str) -> None:
    ground = given(sold("m5.large"), raises=AwsError("no answer", code=code))
    outcome = ground.launch(claims(2))
    assert len(outcome.pending) == 2
    assert outcome.failed == ()


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "InvalidLaunchTemplateName.NotFoundException"])
def test_a_request_that_did_not_count_is_sent_again_later_with_the_same_token(code: str) -> None:
    ground = given(sold("m5.large"), raises=AwsUnavailable("not now", code=code))
    outcome = ground.launch(claims(2))
    assert len(outcome.pending) == 2
    assert (outcome.failed, outcome.broken, outcome.throttled) == ((), "", False)
    assert ground.rests() == set()


def test_after_a_failure_that_passes_no_offering_rests_and_nothing_more_is_launched_now() -> None:
    ground = given(sold("m5.large"), answers=[refuse("IdempotentInstanceTerminated", "transient")])
    outcome = ground.launch(claims())
    assert len(outcome.failed) == 1
    assert (outcome.broken, outcome.throttled) == ("", True)
    assert ground.rests() == set()


def test_an_answer_without_instances_and_without_reasons_is_not_asked_for_again_at_once() -> None:
    ground = given(sold("m5.large", zones=(A,)), answers=[lambda _: FleetResult()])
    assert ground.launch(claims()).failed
    assert ground.rests() == {("m5.large", A, ON_DEMAND)}
