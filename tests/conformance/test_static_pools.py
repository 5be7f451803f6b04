"""Static pools: a number of nodes, whatever pods there are."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.disruption.rescheduling import Simulator
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import fake_type
from tests.conformance.given import daemon_set, given, in_flight
from tests.conformance.priced_pools import ON_DEMAND_ONLY, priced
from tests.conformance.sold_reservations import held, sold

TYPES = [fake_type("one", price=1.0), fake_type("two", price=2.0, cpu="8")]


def static(replicas: int, name: str = "static", *, nodes: str = "", **fields: Any) -> NodePool:
    made = pool(name, replicas=replicas, **fields)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, limits={"nodes": nodes} if nodes else {})
    )


def standing(number: int, name: str = "n", **fields: Any) -> list[Any]:
    return [node(f"{name}-{place}", pool="static", **fields) for place in range(number)]


def test_missing_nodes_are_planned_without_pods() -> None:
    plan = given(pools=[static(3)], types=TYPES, nodes=standing(1))
    assert [(claim.node_pool, claim.pods, claim.instance_types) for claim in plan.claims] == [
        ("static", (), ("one", "two"))
    ] * 2
    assert len({claim.name for claim in plan.claims}) == 2
    assert plan.plan.static_pools[0].present == 1
    assert plan.plan.static_pools[0].missing == 0


def test_claims_in_flight_count_and_the_same_is_never_planned_twice() -> None:
    first = given(pools=[static(2)], types=TYPES)
    again = given(pools=[static(2)], types=TYPES, claims=[in_flight(claim) for claim in first.claims])
    assert len(first.claims) == 2
    assert not again.claims
    failed = [in_flight(claim, state=ClaimState.FAILED) for claim in first.claims]
    assert len(given(pools=[static(2)], types=TYPES, claims=failed, epoch=8).claims) == 2


def test_claims_in_flight_count_for_their_own_pool_alone() -> None:
    """And nodes, too: another static pool, and one that follows pods, have some of theirs on the way."""
    pools = [static(2), static(3, "other"), pool("default")]
    first = given(pod(), pools=pools, types=TYPES)
    coming = [in_flight(claim) for claim in first.claims if claim.node_pool != "static"]
    again = given(pod(), pools=pools, types=TYPES, claims=coming, epoch=8, nodes=[node("d", pool="default")])
    assert [claim.node_pool for claim in again.claims] == ["static"] * 2
    assert [(known.node_pool, known.present, known.missing) for known in again.plan.static_pools] == [
        ("other", 3, 0),
        ("static", 0, 0),
    ]


def test_nodes_that_leave_are_replaced_within_the_limit_of_nodes() -> None:
    nodes = [*standing(1), *standing(2, "old", deleting=True)]
    assert len(given(pools=[static(3)], types=TYPES, nodes=nodes).claims) == 2
    plan = given(pools=[static(3, nodes="4")], types=TYPES, nodes=nodes)
    assert len(plan.claims) == 1
    assert plan.plan.static_pools[0].missing == 1
    assert "limits.nodes is 4, and 3 nodes are there or on their way" in plan.plan.static_pools[0].reason


def test_149_pods_never_use_a_static_pool_but_its_nodes() -> None:
    plan = given(pod(cpu="1"), pools=[static(0), pool("dynamic")], types=TYPES)
    assert plan.claim.node_pool == "dynamic"
    plan = given(pod(cpu="1"), pools=[static(1)], types=TYPES, nodes=standing(1))
    assert plan.home("pod") == "n-0"
    alone = given(pod(cpu="1"), pools=[static(0)], types=TYPES)
    assert "no dynamic nodepools found" in alone.left("pod").message


def test_253_what_is_too_many_goes_by_what_is_lost_with_it() -> None:
    nodes = [node(f"n-{number}", cpu="8", pool="static") for number in range(8)]
    guard = {"annotations": {labels.DO_NOT_DISRUPT: "true"}}
    running = [
        *(pod(f"d-{number}", node=f"n-{number}", owner="daemon") for number in range(8)),
        *(pod(f"a-{number}", node=f"n-{number}") for number in (2, 3)),
        *(pod(f"b-{number}-{place}", node=f"n-{number}") for number in (4, 5) for place in (1, 2)),
        *(pod(f"c-{number}", node=f"n-{number}", metadata=guard) for number in (6, 7)),
    ]
    for replicas, expected in ((6, ["n-0", "n-1"]), (4, ["n-2", "n-3"]), (2, ["n-4", "n-5"]), (0, ["n-6", "n-7"])):
        plan = given(*running, pools=[static(replicas)], types=TYPES, nodes=nodes)
        assert list(plan.plan.static_pools[0].surplus)[-2:] == expected
        assert not plan.claims
    coming = [in_flight(claim) for claim in given(pools=[static(1)], types=TYPES).claims]
    plan = given(*running, pools=[static(8)], types=TYPES, nodes=nodes, claims=coming)
    assert plan.plan.static_pools[0].surplus == (coming[0].name,)


def test_daemons_count_and_too_small_types_are_left_out() -> None:
    plan = given(pools=[static(1)], types=TYPES, daemon_sets=[daemon_set(cpu="5")])
    assert plan.claim.instance_types == ("two",)


def test_reserved_capacity_is_shared_with_pods() -> None:
    types = [sold("only", held("cr-1", 1))]
    plan = given(*pods(1, cpu="1"), pools=[static(1), pool("dynamic")], types=types, reserved_policy="Fallback")
    by_pool = {claim.node_pool: claim.launch.capacity_type for claim in plan.claims}
    assert by_pool == {"static": "reserved", "dynamic": "on-demand"}


def test_rules_about_money_hold_and_what_stops_a_pool_is_said() -> None:
    rules = priced("static", max_hourly_price="2").metadata
    limited = msgspec.structs.replace(static(3), metadata=rules)
    cheap = [fake_type("one", price=1.0, offerings=ON_DEMAND_ONLY)]
    plan = given(pools=[limited], types=cheap)
    assert len(plan.claims) == 2
    assert plan.plan.static_pools[0].missing == 1
    assert "limits" in plan.plan.static_pools[0].reason


def test_a_pool_being_deleted_gets_nothing() -> None:
    assert not given(pools=[static(2, deleting=True)], types=TYPES).claims


def test_what_a_static_pool_lacks_is_no_replacement_for_a_node_that_is_removed() -> None:
    nodes = [node("old", cpu="8"), *standing(1)]
    moving = pod("moving", cpu="5", node="old")
    plan = given(moving, pools=[static(3), pool("dynamic")], types=TYPES, nodes=nodes)
    assert len(plan.claims) == 2
    (claim,) = Simulator(plan.snapshot, ()).without(("old",)).claims
    assert (claim.node_pool, [entry.name for entry in claim.pods]) == ("dynamic", ["moving"])


def test_a_static_node_has_the_labels_of_its_own_pool_whatever_another_pool_launches() -> None:
    dynamic = pool("dynamic", rule("team", "In", "blue"))
    plan = given(pod("a", cpu="100m"), pools=[dynamic, static(1, labels={"team": "red"})], types=TYPES)
    told = {claim.node_pool: (claim.labels["karpenter.sh/nodepool"], claim.labels["team"]) for claim in plan.claims}
    assert told == {"dynamic": ("dynamic", "blue"), "static": ("static", "red")}


def test_claims_without_an_instance_are_given_up_before_those_that_have_one() -> None:
    first = given(pools=[static(2)], types=TYPES)
    early, late = sorted(first.claims, key=lambda claim: claim.name)
    coming = [in_flight(early, instance_id="i-1", state=ClaimState.LAUNCHED), in_flight(late)]
    again = given(pools=[static(1)], types=TYPES, claims=coming, epoch=8)
    assert again.plan.static_pools[0].surplus == (late.name,)
