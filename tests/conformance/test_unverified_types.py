"""Types nobody has run yet: one claim may rely on the estimate, all others on the careful bound."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.api.nodeclaim import ClaimState
from shiplap.instances.types import InstanceType
from tests.conformance.catalogues import fake_type
from tests.conformance.given import given, in_flight, pod, pods

GI = 2**30


def unverified(name: str = "new", *, price: float = 1.0, memory: str = "8Gi", careful_gi: float = 7.0) -> InstanceType:
    item = fake_type(name, cpu="4", memory=memory, pods="20", price=price)
    return msgspec.structs.replace(
        item,
        verified=False,
        careful=item.capacity | {"memory": int(careful_gi * GI)},
        ami="ami-1",
        kubelet_hash="k",
        sources={"memory": "formula"},
    )


LARGE = fake_type("known", cpu="8", memory="16Gi", pods="20", price=3.0)
OWN_NODE = [80]


def test_one_claim_relies_on_the_estimate_and_says_so() -> None:
    outcome = given(*pods(3, memory="7.5Gi", ports=OWN_NODE), types=[unverified(), LARGE])
    assert outcome.scheduled
    relying = [claim for claim in outcome.claims if claim.relies_on_estimate]
    assert [claim.relies_on_estimate for claim in relying] == [("new",)]
    assert relying[0].launch.instance_type == "new"
    assert all(claim.instance_types == ("known",) for claim in outcome.claims if claim is not relying[0])


def test_a_load_within_the_careful_bound_relies_on_nothing() -> None:
    outcome = given(*pods(3, memory="6Gi", ports=OWN_NODE), types=[unverified(), LARGE])
    assert outcome.scheduled
    assert all(claim.relies_on_estimate == () for claim in outcome.claims)
    assert all(claim.launch.instance_type == "new" for claim in outcome.claims)
    assert all(claim.allocatable["memory"] == 7 * GI - 10 * 2**20 for claim in outcome.claims)


def test_an_estimate_held_without_need_goes_to_the_pod_that_needs_it() -> None:
    outcome = given(
        pod("first", cpu="2", memory="1Gi", ports=OWN_NODE),
        pod("needy", cpu="1", memory="7.5Gi", ports=OWN_NODE),
        types=[unverified()],
    )
    assert outcome.scheduled
    assert outcome.claim_of("first").relies_on_estimate == ()
    assert outcome.claim_of("needy").relies_on_estimate == ("new",)


def test_without_a_larger_type_the_second_pod_waits_for_the_pilot() -> None:
    outcome = given(*pods(2, memory="7.5Gi", ports=OWN_NODE), types=[unverified()])
    assert len(outcome.claims) == 1
    message = outcome.plan.unschedulable[0].message
    assert "never measured on ami-1" in message


def test_another_claims_pilot_is_respected() -> None:
    outcome = given(pod(memory="7.5Gi"), types=[unverified(), LARGE], piloted=["ami-1/new#k"])
    assert outcome.claim.instance_types == ("known",)
    assert given(pod(memory="6Gi"), types=[unverified()], piloted=["ami-1/new#k"]).claim.relies_on_estimate == ()


def test_pods_that_were_missed_never_rely_on_an_estimate() -> None:
    outcome = given(pod(memory="7.5Gi"), types=[unverified(), LARGE], missed=["uid-pod"])
    assert outcome.claim.instance_types == ("known",)
    mixed = given(
        pod("fresh", memory="5Gi"), pod("missed", memory="2.2Gi"), types=[unverified(), LARGE], missed=["uid-missed"]
    )
    assert mixed.scheduled
    assert "new" not in mixed.claim_of("missed").relies_on_estimate


def test_pods_that_were_missed_do_not_join_a_pilot_in_flight() -> None:
    claim = given(pod("first", memory="7.5Gi"), types=[unverified()]).claim
    record = in_flight(claim)
    outcome = given(pod("missed", memory="1Mi"), types=[unverified()], claims=[record], missed=["uid-missed"])
    assert outcome.home("missed") != claim.name
    assert given(pod("fresh", memory="1Mi"), types=[unverified()], claims=[record]).home("fresh") == claim.name


def test_exploring_can_be_switched_off() -> None:
    assert given(pod(memory="7.5Gi"), types=[unverified()], explore=False).claims == ()


def test_of_a_type_that_fits_either_way_only_the_careful_figure_is_counted_on() -> None:
    both = [unverified("a", price=1.0), unverified("b", price=2.0, memory="16Gi", careful_gi=15)]
    claim = given(pod(memory="7.5Gi"), types=both).claim
    assert claim.instance_types == ("a", "b")
    assert claim.relies_on_estimate == ("a",)
    assert claim.allocatable["memory"] == 8 * GI - 10 * 2**20


@pytest.mark.parametrize("source", ["sibling", "formula"])
def test_the_message_names_where_the_figure_is_from(source: str) -> None:
    item = msgspec.structs.replace(unverified(), sources={"memory": source})
    message = given(pod(memory="9Gi"), types=[item]).left("pod").message
    assert "memory short by" in message
    assert ("inferred from other types on ami-1" if source == "sibling" else "predicted by the formula") in message


def test_a_learned_figure_is_named_as_such() -> None:
    item = msgspec.structs.replace(unverified(), verified=True, sources={"memory": "learned"})
    assert "learned from nodes of ami-1" in given(pod(memory="9Gi"), types=[item]).left("pod").message


@pytest.mark.parametrize("state", [ClaimState.PLANNED, ClaimState.LAUNCHING])
def test_a_claim_whose_estimate_was_refuted_meanwhile_keeps_its_pods_for_another_type_of_its_list(
    state: ClaimState,
) -> None:
    waiting = pod("p", memory="7.5Gi")
    first = given(waiting, types=[unverified(), LARGE])
    assert first.claim.instance_types == ("new", "known")
    claim = in_flight(first.claim, state=state)
    refuted = fake_type("new", cpu="4", memory="7.2Gi", pods="20", price=1.0)
    assert given(waiting, types=[refuted, LARGE], claims=[claim]).claims == ()


def test_a_claim_that_no_type_of_its_list_can_hold_any_more_keeps_no_pods() -> None:
    waiting = pod("p", memory="7.5Gi")
    claim = in_flight(given(waiting, types=[unverified()]).claim)
    refuted = fake_type("new", cpu="4", memory="7.2Gi", pods="20", price=1.0)
    assert given(waiting, types=[refuted, LARGE], claims=[claim]).claim.instance_types == ("known",)


def test_what_was_launched_is_what_counts_not_what_might_have_been() -> None:
    waiting = pod("p", memory="7.5Gi")
    first = given(waiting, types=[unverified(), LARGE])
    refuted = fake_type("new", cpu="4", memory="7.2Gi", pods="20", price=1.0)
    launched = in_flight(first.claim, state=ClaimState.LAUNCHED, instance_type="new", allocatable=refuted.allocatable)
    assert given(waiting, types=[refuted, LARGE], claims=[launched]).claim.instance_types == ("known",)
