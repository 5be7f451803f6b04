"""Types nobody has run yet: one claim may rely on the estimate, all others on the careful bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.instances.catalog.memory_probes import MEMORY_LABEL
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.planner import solve
from shiplap_cli.accounts.claim_account import ClaimAccounts
from shiplap_cli.accounts.smallest_changes import change_proposals
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import given, in_flight

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


def test_a_dearer_launch_says_that_the_cheaper_type_is_not_measured() -> None:
    outcome = given(pod(memory="7.5Gi"), types=[unverified(), LARGE], piloted=["ami-1/new#k"])
    (cheaper,) = ClaimAccounts(compile_snapshot(outcome.snapshot)).of(outcome.claim).cheaper
    told = "; its estimate would do, but no node of it has reported yet"
    assert cheaper == f"new at $1.0000/h: memory short by 522Mi of its careful bound{told}"
    too_small = msgspec.structs.replace(unverified(), verified=True)
    for small in (too_small, unverified(memory="7.2Gi")):
        outcome = given(pod(memory="7.5Gi"), types=[small, LARGE], piloted=["ami-1/new#k"])
        assert all(
            told not in line for line in ClaimAccounts(compile_snapshot(outcome.snapshot)).of(outcome.claim).cheaper
        )


def test_a_zone_that_only_an_estimate_reaches_is_no_domain_of_pods_that_were_missed() -> None:
    """Two zones have a measured type, the third only an estimated one, which is too small by its careful bound."""
    measured = fake_type("known", cpu="8", memory="16Gi", price=3.0, offerings=(("on-demand", Z1), ("on-demand", Z2)))
    offered = fake_type("new", cpu="4", memory="8Gi", price=1.0, offerings=(("on-demand", Z3),)).offerings
    types = [measured, msgspec.structs.replace(unverified(), offerings=offered)]
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    marked: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"topologySpreadConstraints": [spread]},
    }
    waiting = pods(3, memory="7.5Gi", **marked)
    missed = given(*waiting, types=types, missed=[item.metadata.uid for item in waiting])
    assert missed.scheduled
    assert {claim.launch.zone for claim in missed.claims} == {Z1, Z2}
    assert Z3 in {claim.launch.zone for claim in given(*waiting, types=types).claims}


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


def stated(memory_gi: int = 9) -> InstanceType:
    """A type of which EC2 states more memory than the formula expects."""
    return msgspec.structs.replace(
        unverified(),
        requirements=(*unverified().requirements, requirement(MEMORY_LABEL, "In", (str(memory_gi * 1024),))),
    )


def probing(value: str = "on") -> NodePool:
    plain = pool()
    metadata = msgspec.structs.replace(plain.metadata, annotations={"shiplap.dev/probe-unmeasured-types": value})
    return msgspec.structs.replace(plain, metadata=metadata)


def test_a_pod_that_only_what_ec2_states_could_hold_waits_unless_the_pool_asks_for_a_probe() -> None:
    large = pod(memory="8.5Gi")
    assert given(large, types=[stated()]).claims == ()
    assert given(large, types=[stated()], pools=[probing("off")]).claims == ()
    claim = given(large, types=[stated()], pools=[probing()]).claim
    assert claim.relies_on_estimate == ("new",)
    assert claim.allocatable["memory"] == 9 * GI - 10 * 2**20


def test_one_probe_at_a_time_and_none_for_a_pod_that_was_missed() -> None:
    two = given(*pods(2, memory="8.5Gi"), types=[stated()], pools=[probing()])
    assert len(two.claims) == 1
    assert len(two.plan.unschedulable) == 1
    large = pod(memory="8.5Gi")
    assert given(large, types=[stated()], pools=[probing()], piloted=["ami-1/new#k"]).claims == ()
    assert given(large, types=[stated()], pools=[probing()], missed=["uid-pod"]).claims == ()


def test_the_lesson_of_a_probe_settles_it() -> None:
    measured = msgspec.structs.replace(stated(), verified=True, careful={}, sources={"memory": "learned"})
    large = pod(memory="8.5Gi")
    assert given(large, types=[measured], pools=[probing()]).claims == ()
    enough = msgspec.structs.replace(measured, capacity=measured.capacity | {"memory": 9 * GI})
    assert given(*pods(2, memory="8.5Gi"), types=[enough], pools=[probing()]).scheduled


def test_explanations_propose_the_probe_and_the_overlay_that_would_do() -> None:
    outcome = given(pod(memory="8.5Gi"), types=[stated()])
    found = change_proposals(outcome.snapshot, *solve(outcome.snapshot), "default/pod")
    texts = [text for proposal in found for text in proposal.changes]
    assert "annotate pool default with shiplap.dev/probe-unmeasured-types: on, so that one node finds out" in texts
    assert "a NodeOverlay that states 8714Mi memory as the capacity of new, if you have measured it" in texts
