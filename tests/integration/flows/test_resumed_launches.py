"""Launches that another function finishes: for all of their claims, with what was asked for, and never too early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import convert, structs

from shiplap.errors import AwsError, ConditionFailed, NodeClassNotReady
from shiplap.flows.assign_instances import Attempt, assign_instances, price_of_instance
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.schedule.launch import LaunchOutcome
from shiplap.flows.schedule.resume import LAUNCH_TIMEOUT_S, orphans, resume
from shiplap.instances.catalog.ec2_catalog import TypePrices, ZonePrice
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.manifests.nodeclaim import SCHEMA, ClaimState, NodeClaim
from shiplap.ports import DecisionState, OfferingFailure
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.crowds import assert_each_has_its_own, crowd
from tests.integration.flows.stage import ZONES, Stage

ME, OTHER = "me", "other"
NOW = 1000.0


def attempt(stage: Stage) -> Attempt:
    return Attempt(owner=ME, deadline=stage.clock.now() + 300, join_timeout_s=900)


def resumed(stage: Stage, claims: Sequence[NodeClaim]) -> LaunchOutcome:
    """Return the outcome of claims whose EC2NodeClass has been deleted meanwhile."""
    return resume(claims, None, stage.types, attempt(stage), OfferingMarket(DecisionState(0)), stage.context)


def unanswered(pods: int = 3) -> Stage:
    """A launch of a claim for each pod whose answer was lost; its instances exist."""
    stage = crowd(pods)
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    stage.schedule()
    return stage


def test_a_launch_of_which_one_instance_is_seen_asks_for_as_many_as_before_and_gets_no_more() -> None:
    stage = unanswered()
    for instance in stage.compute.alive()[1:]:
        stage.compute.hide(instance.id, 3600)
    assert sorted(stage.schedule().launched) == [claim.name for claim in stage.claims()]
    assert [claim.state for claim in stage.claims()] == [ClaimState.LAUNCHED] * 3
    assert len(stage.compute.launches) == 3
    assert_each_has_its_own(stage)


@pytest.mark.parametrize("overlaid", [False, True], ids=["listed", "overlaid"])
def test_an_instance_in_a_zone_that_is_not_selected_any_more_is_booked_at_the_price_of_that_zone(
    *, overlaid: bool
) -> None:
    """The answer of the launch was lost, and before it was resumed its EC2NodeClass selected other subnets."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("spot",)),), spot=True)
    sold = stage.context.catalog.load()
    quotes = tuple(ZonePrice(zone, price) for zone, price in zip(ZONES, (0.020, 0.030, 0.040), strict=True))
    stage.context.catalog.save(structs.replace(sold, prices={**sold.prices, "m6i.large": TypePrices(0.096, quotes)}))
    if overlaid:
        half = {"metadata": {"name": "half"}, "spec": {"priceAdjustment": "-50%"}}
        manifests = structs.replace(stage.settings.manifests, node_overlays=(convert(half, NodeOverlay),))
        stage.settings = structs.replace(stage.settings, manifests=manifests)
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    stage.schedule()
    assert [instance.zone for instance in stage.compute.alive()] == [ZONES[0]]
    stage.compute.subnets = stage.compute.subnets[1:]
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.LAUNCHED
    assert claim.hourly == pytest.approx(0.010 if overlaid else 0.020)


def test_an_instance_whose_type_is_not_sold_in_its_zone_any_more_has_a_price() -> None:
    stage = unanswered(1)
    (claim,), (instance,) = stage.claims(), stage.compute.alive()
    known = stage.types[instance.instance_type]
    left = tuple(item for item in known.offerings if item.zone != instance.zone)
    elsewhere = max(item.price for item in left if item.capacity_type == instance.capacity_type)

    def price(types: dict[str, InstanceType]) -> float:
        return price_of_instance(claim, instance, types.get(instance.instance_type))

    assert price({known.name: structs.replace(known, offerings=left)}) == elsewhere
    assert price({}) == claim.hourly > 0


def test_claims_that_still_wait_take_part_in_the_write_that_gives_the_others_their_instances() -> None:
    stage = unanswered()
    claims = stage.claims()
    launched, waiting = assign_instances(claims, stage.compute.alive()[:1], stage.types, attempt(stage), stage.context)
    assert [claim.name for claim in launched] == [claims[0].name]
    assert [(claim.name, claim.state) for claim in waiting] == [
        (claim.name, ClaimState.LAUNCHING) for claim in claims[1:]
    ]
    assert [claim.version for claim in waiting] == [claim.version + 1 for claim in claims[1:]]


def test_no_claim_is_given_an_instance_when_one_that_waits_is_somebody_elses() -> None:
    stage = unanswered()
    claims = stage.claims()
    stage.state.advance(claims[-1], ClaimState.LAUNCHING)
    with pytest.raises(ConditionFailed):
        assign_instances(claims, stage.compute.alive()[:1], stage.types, attempt(stage), stage.context)
    assert {claim.state for claim in stage.claims()} == {ClaimState.LAUNCHING}


@pytest.mark.parametrize("answered", [True, False], ids=["answer lost", "never arrived"])
def test_a_launch_is_repeated_for_the_capacity_type_that_it_asked_for_first(*, answered: bool) -> None:
    """EC2 may have answered the first request, and its instances would be booked as what the second one asked for."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("spot", "on-demand")),), spot=True)
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.faults.on("after" if answered else "before", "compute.launch", AwsError("connection reset"))
    stage.schedule()
    for instance in stage.compute.alive():
        stage.compute.hide(instance.id, 3600)
    sold_out = [OfferingFailure("m6i.large", zone, "spot", "InsufficientInstanceCapacity") for zone in ZONES]
    stage.state.mark_unavailable(sold_out, stage.clock.now())
    stage.schedule()
    (claim,) = stage.claims()
    assert (claim.state, claim.launch.requested_from) == (ClaimState.LAUNCHING, "spot")
    stage.clock.advance(GRACE_S + 1)
    stage.schedule()
    tokens = {claim.launch.token: claim.launch.requested_from for claim in stage.claims()}
    asked = [(tokens[request.token], request.capacity_type) for request in stage.compute.requests]
    assert asked == [("spot", "spot")] * answered + [("on-demand", "on-demand")]


def member(name: str, **fields: object) -> NodeClaim:
    """A Launching claim whose owner's time is over."""
    known = {"name": name, "token": "t", "owner": OTHER, "state": ClaimState.LAUNCHING, "deadline_at": NOW}
    return node_claim(**known | fields)


@pytest.mark.parametrize(
    "alive",
    [{"deadline_at": NOW + 1}, {"schema": SCHEMA + 1}],
    ids=["belongs to a living function", "of a newer release"],
)
@pytest.mark.parametrize("place", range(3))
def test_a_launch_is_resumed_only_if_each_of_its_claims_may_be(place: int, alive: dict[str, object]) -> None:
    names = "abc"
    claims = [member(name, **(alive if number == place else {})) for number, name in enumerate(names)]
    assert orphans(claims, ME, NOW) == []
    assert [len(found) for found in orphans([member(name) for name in names], ME, NOW)] == [3]


def test_launches_are_resumed_by_launch_and_what_is_ours_at_once() -> None:
    own = member("b", token="mine", owner=ME, deadline_at=NOW + 60)
    bare = [member(name, token="", state=ClaimState.PLANNED) for name in "de"]
    claims = [*bare, own, member("c"), member("a"), member("f", state=ClaimState.LAUNCHED)]
    found = [[claim.name for claim in claims] for claims in orphans(claims, ME, NOW)]
    assert found == [["a", "c"], ["b"], ["d"], ["e"]]


def test_claims_that_have_changed_since_they_were_read_are_left_to_whoever_changed_them() -> None:
    stage = unanswered()
    for instance in stage.compute.alive():
        stage.compute.hide(instance.id, 3600)
    answered = [
        stage.state.advance(
            claim, ClaimState.LAUNCHING, launch=structs.replace(claim.launch, answered_at=stage.clock.now())
        )
        for claim in stage.claims()
    ]
    assert resumed(stage, answered).pending == tuple(answered)
    stage.state.advance(answered[1], ClaimState.LAUNCHING)
    assert resumed(stage, answered) == LaunchOutcome()


@pytest.mark.parametrize(("state", "taken"), [("pending", True), ("running", True), ("shutting-down", False)])
def test_instances_that_run_or_will_are_adopted_and_those_that_end_are_not(state: str, taken: bool) -> None:
    stage = unanswered(1)
    (instance,) = stage.compute.alive()
    stage.compute.add(structs.replace(instance, state=state))
    outcome = resumed(stage, stage.claims())
    assert (len(outcome.launched), len(outcome.failed)) == ((1, 0) if taken else (0, 1))
    assert [claim.failure for claim in outcome.failed] == [f"its instance {instance.id} is {state}"] * (not taken)


def test_what_some_claims_of_a_launch_got_is_told_beside_what_became_of_the_others() -> None:
    stage = unanswered()
    first, *others = stage.compute.alive()
    for instance in others:
        stage.compute.add(structs.replace(instance, state="shutting-down"))
    outcome = resumed(stage, stage.claims())
    assert [claim.instance_id for claim in outcome.launched] == [first.id]
    assert len(outcome.failed) == 2


@pytest.mark.parametrize(("later_s", "pending"), [(0.0, 2), (GRACE_S, 0)])
def test_what_an_answer_named_is_waited_for_a_while_and_those_that_are_seen_are_told(
    later_s: float, pending: int
) -> None:
    stage = unanswered()
    for instance in stage.compute.alive()[1:]:
        stage.compute.hide(instance.id, 3600)
    now = stage.clock.now()
    answered = [
        stage.state.advance(claim, claim.state, launch=structs.replace(claim.launch, answered_at=now))
        for claim in stage.claims()
    ]
    stage.clock.advance(later_s)
    outcome = resumed(stage, answered)
    assert (len(outcome.launched), len(outcome.pending), len(outcome.failed)) == (1, pending, 2 - pending)


def test_while_fewer_instances_end_than_claims_wait_for_the_others_may_come() -> None:
    stage = unanswered(2)
    ending, hidden = stage.compute.alive()
    stage.compute.add(structs.replace(ending, state="shutting-down"))
    stage.compute.hide(hidden.id, 3600)
    stage.clock.advance(LAUNCH_TIMEOUT_S + 1)
    claims = [stage.state.advance(claim, claim.state, changed_at=stage.clock.now()) for claim in stage.claims()]
    assert resumed(stage, claims).failed == ()


@pytest.mark.parametrize("tried", [0, 1])
def test_a_launch_that_is_overdue_is_not_given_up_just_after_a_try(tried: int) -> None:
    """Whichever of its claims was tried last: describing may not show the instances of that attempt yet."""
    stage = unanswered(2)
    for instance in stage.compute.alive():
        stage.compute.hide(instance.id, 3600)
    stage.clock.advance(LAUNCH_TIMEOUT_S + 1)
    again = stage.claims()[tried]
    stage.state.advance(again, ClaimState.LAUNCHING, changed_at=stage.clock.now())
    claims = stage.claims()
    assert resumed(stage, claims) == LaunchOutcome(pending=claims)
    stage.clock.advance(GRACE_S - 1)
    assert resumed(stage, claims) == LaunchOutcome(pending=claims)
    stage.clock.advance(1)
    outcome = resumed(stage, claims)
    assert {claim.failure for claim in outcome.failed} == {f"not launched within {LAUNCH_TIMEOUT_S:g} s"}


def test_a_launch_has_as_long_as_upstream_gives_it() -> None:
    """Karpenter's liveness controller: launchTimeout is five minutes."""
    stage = unanswered(1)
    stage.compute.hide(stage.compute.alive()[0].id, 3600)
    stage.clock.advance(5 * 60 + 1)
    (failed,) = resumed(stage, stage.claims()).failed
    assert failed.failure == "not launched within 300 s"


def test_a_launch_is_not_overdue_before_its_time_is_over() -> None:
    stage = unanswered(1)
    stage.compute.hide(stage.compute.alive()[0].id, 3600)
    (claim,) = stage.claims()
    stage.clock.advance(LAUNCH_TIMEOUT_S)
    (failed,) = resumed(stage, [claim]).failed
    assert failed.failure == "its node class is gone"


def test_what_cannot_be_asked_for_any_more_is_not_given_up_just_after_a_try() -> None:
    """The EC2NodeClass is broken since; the instances of the last attempt may exist all the same."""
    stage = unanswered(2)
    for instance in stage.compute.alive():
        stage.compute.hide(instance.id, 3600)
    stage.compute.not_ready["default"] = NodeClassNotReady("no subnet matches")
    stage.clock.advance(GRACE_S)
    again = stage.claims()[1]
    stage.state.advance(again, ClaimState.LAUNCHING, changed_at=stage.clock.now())
    stage.schedule()
    assert {claim.state for claim in stage.claims()} == {ClaimState.LAUNCHING}
    stage.clock.advance(GRACE_S)
    stage.schedule()
    assert {claim.state for claim in stage.claims()} == {ClaimState.FAILED}
    assert all("no subnet matches" in claim.failure for claim in stage.claims())
