"""Tests the counts: nodes in a budget or a Balanced pool, the room of a reservation, a claim's own fields."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, Reboots
from tests.builders.nodes import node as foreign_node
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, assorted_types, fake_type
from tests.conformance.disruptions import BOTH, LARGE, ON_DEMAND, SMALL, Standing, disrupted, large, small
from tests.conformance.given import NOW

ID = "karpenter.k8s.aws/capacity-reservation-id"
PROTECTED = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}


# Nodes in a budget

OTHERS = {
    "of nobody": Standing(foreign_node("x"), None),
    "of another pool": small("x", pool="other"),
    "not initialized": small("x", initialized=False, state=ClaimState.REGISTERED),
    "its instance is being ended": small("x", state=ClaimState.TERMINATING),
    "its instance has ended": small("x", claimed=False),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize(("nodes", "gone"), [("100%", 4), ("25%", 1), ("1", 1)])
def test_what_does_not_count_in_a_budget(other: Standing, nodes: str, gone: int) -> None:
    mine = [small(f"n{place}") for place in range(4)]
    verdict = disrupted(*mine, other, pools=[pool(budgets=[{"nodes": nodes}])], types=BOTH)
    assert len(verdict.removed) == gone
    assert "x" not in verdict.removed


def test_a_budget_is_never_less_than_none() -> None:
    leaving = [small(f"n{place}", state=ClaimState.DRAINING) for place in range(5)]
    verdict = disrupted(*leaving, small("last"), pools=[pool(budgets=[{"nodes": "10%"}])], types=BOTH)
    assert verdict.removed == set()
    assert "5 are leaving or not ready" in verdict.blocked("last")


def test_each_drifted_node_with_pods_of_its_own_takes_one_of_the_budget() -> None:
    parts = [large(f"n{place}", labels={"part": str(place)}) for place in range(6)]
    verdict = disrupted(
        *parts,
        pods=[pod_on(f"p{place}", f"n{place}", selector={"part": str(place)}) for place in range(6)],
        pools=[pool("default", ON_DEMAND, rule("part", "Exists"), budgets=[{"nodes": "2"}], after="Never")],
        types=BOTH,
        histories=[NodeHistory(f"n{place}", said_to_drift="of late", drifted_at=NOW - place) for place in range(6)],
    )
    assert [(command.nodes, len(command.replacements)) for command in verdict.commands] == [(("n4",), 1), (("n5",), 1)]


def test_a_node_that_a_budget_keeps_while_others_are_consolidated_says_so() -> None:
    nodes = [small(f"n{place}") for place in range(5)]
    pods = [pod_on(f"p{place}", f"n{place}", cpu="100m") for place in range(5)]
    verdict = disrupted(*nodes, pods=pods, pools=[pool(budgets=[{"nodes": "40%"}])], types=BOTH)
    assert verdict.removed == {"n0", "n1"}
    assert "no allowed disruptions for Underutilized: budgets[0] of" in verdict.blocked("n4")
    assert "2 go now" in verdict.blocked("n4")


# What a node is replaced by


def test_a_drifted_node_is_replaced_by_as_many_as_its_pods_need() -> None:
    verdict = disrupted(
        large("a", labels={"gone": "x"}),
        pods=[pod_on(f"p{place}", "a", cpu="3") for place in range(3)],
        pools=[pool("default", ON_DEMAND, rule("gone", "DoesNotExist"))],
        types=[SMALL],
    )
    assert verdict.command.method is Method.DRIFT
    assert [len(claim.pods) for claim in verdict.command.replacements] == [1, 1, 1]


@pytest.mark.parametrize("label", ["topology.kubernetes.io/zone", "karpenter.sh/capacity-type"])
def test_a_node_without_its_labels_drifts_all_the_same(label: str) -> None:
    verdict = disrupted(
        large("a", labels={label: "", "gone": "x"}),
        pods=[pod_on("p", "a")],
        pools=[pool("default", rule("gone", "DoesNotExist"))],
        types=BOTH,
    )
    assert verdict.command.reason is Reason.DRIFTED


def test_an_empty_drifted_node_goes_where_consolidation_is_disabled() -> None:
    wanted = pool("default", ON_DEMAND, rule("gone", "DoesNotExist"), after="Never")
    verdict = disrupted(large("a", labels={"gone": "x"}), pools=[wanted], types=BOTH)
    assert (verdict.command.reason, verdict.command.replacements) == (Reason.DRIFTED, ())


def test_nothing_is_launched_for_pods_that_keep_their_node_until_its_deadline() -> None:
    verdict = disrupted(
        large("a", labels={"gone": "x"}),
        pods=[pod_on("p", "a", metadata=PROTECTED)],
        pools=[pool("default", ON_DEMAND, rule("gone", "DoesNotExist"), grace="5m")],
        types=BOTH,
    )
    assert (verdict.command.reason, verdict.command.replacements) == (Reason.DRIFTED, ())


def test_pods_move_to_a_node_that_nobody_manages() -> None:
    verdict = disrupted(
        large("a"),
        Standing(foreign_node("theirs", cpu="4", memory="8Gi"), None),
        pods=[pod_on("p", "a", cpu="3")],
        pools=[pool("default", ON_DEMAND)],
        types=[LARGE],
    )
    assert verdict.command.replacements == ()
    assert [place.name for place in verdict.command.placements] == ["theirs"]


def test_no_node_is_replaced_by_one_of_the_same_price() -> None:
    twin = fake_type("twin", cpu="16", memory="32Gi", pods="50", price=4.0)
    verdict = disrupted(
        large("a"), pods=[pod_on("p", "a", cpu="12")], pools=[pool("default", ON_DEMAND)], types=[LARGE, twin]
    )
    assert "cheaper" in verdict.blocked("a")


@pytest.mark.parametrize(
    ("history", "status", "goes"),
    [
        ({}, {}, False),
        ({"last_pod_event_at": NOW - 899}, {}, False),
        ({"last_pod_event_at": NOW - 900}, {}, True),
        ({}, {"startTime": rfc3339(NOW - 899)}, False),
        ({}, {"startTime": rfc3339(NOW - 900)}, True),
    ],
    ids=["nothing is known", "it came of late", "it came long ago", "its kubelet has just taken it", "or long ago"],
)
def test_a_pod_that_cannot_start_does_not_keep_its_node(
    history: dict[str, float], status: dict[str, str], *, goes: bool
) -> None:
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a", status={"phase": "Pending", **status})],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
        histories=[NodeHistory("a", **history)],
    )
    assert (verdict.removed == {"a"}) is goes
    assert goes or "has not started" in verdict.blocked("a")


# Nodes of a Balanced pool


def test_the_whole_pool_counts_and_not_only_the_nodes_that_may_go() -> None:
    """Alone among the candidates, `a` would be all of the pool and score 1. It costs a quarter of it and holds 7 of its
    10 pods.
    """
    kept = [large(f"kept{place}", annotations=PROTECTED["annotations"]) for place in range(3)]
    pods = [pod_on(f"p{place}", "a", cpu="100m") for place in range(7)]
    pods += [pod_on(f"q{place}", f"kept{place}", cpu="100m") for place in range(3)]
    verdict = disrupted(large("a"), *kept, pods=pods, pools=[pool("default", ON_DEMAND, policy="Balanced")], types=BOTH)
    assert verdict.removed == set()
    assert "scores 0.44" in verdict.blocked("a")


def test_a_balanced_pool_keeps_to_its_budget() -> None:
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", ON_DEMAND, policy="Balanced", budgets=[{"nodes": "0%"}])],
        types=BOTH,
    )
    assert "budgets[0] of" in verdict.blocked("a")


def test_of_a_balanced_pool_the_empty_node_goes_first() -> None:
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", ON_DEMAND, policy="Balanced", budgets=[{"nodes": "1"}])],
        types=BOTH,
    )
    assert (verdict.command.reason, verdict.command.nodes) == (Reason.EMPTY, ("b",))


def test_another_policy_is_not_held_to_the_balance() -> None:
    pods = [pod_on(f"p{place}", node, cpu="100m") for node in "ab" for place in range(9)]
    pods += [pod_on(f"q{place}", name, cpu="3") for place, name in enumerate(("c", "d", "e"))]
    others = [small(name, pool="strict", annotations=PROTECTED["annotations"]) for name in ("c", "d", "e")]
    verdict = disrupted(
        small("a", pool="strict"),
        small("b"),
        *others,
        large("room", pool="room"),
        pods=[*pods, pod_on("big", "room", cpu="13")],
        pools=[pool("strict", ON_DEMAND, policy="Balanced"), pool(), pool("room", after="Never")],
        types=BOTH,
    )
    assert verdict.removed == {"b"}
    assert "Balanced" in verdict.blocked("a")


# The room of a reservation


def reserved(item: InstanceType, left: int = 10) -> InstanceType:
    """A type that a reservation of the same name has some of, at a millionth of its price."""
    held = Offering(Z1, "reserved", item.offerings[0].price / 1e6, reservation_id=item.name, reservation_capacity=left)
    kinds = (
        replace(entry, values=entry.values | {"reserved"}) if entry.key == "karpenter.sh/capacity-type" else entry
        for entry in item.requirements
    )
    return replace(item, offerings=(*item.offerings, held), requirements=tuple(kinds))


def in_reservation(name: str) -> Standing:
    return large(name, capacity_type="reserved", labels={ID: "large"})


def test_a_node_moves_from_one_reservation_into_a_smaller_one() -> None:
    verdict = disrupted(in_reservation("a"), pods=[pod_on("p", "a")], types=[reserved(SMALL), reserved(LARGE)])
    (claim,) = verdict.command.replacements
    assert (claim.launch.capacity_type, claim.launch.reservation_id) == ("reserved", "small")


def test_a_reservation_gets_room_back_that_other_nodes_can_use() -> None:
    pods = [pod_on("p", "a"), pod_on("q", "b"), pod_on("r", "b")]
    verdict = disrupted(in_reservation("a"), in_reservation("b"), pods=pods, types=[reserved(LARGE)])
    assert (verdict.command.nodes, verdict.command.replacements) == (("a",), ())


def test_a_reserved_node_is_not_replaced_by_one_that_is_paid_for() -> None:
    verdict = disrupted(in_reservation("a"), pods=[pod_on("p", "a")], types=[SMALL, reserved(LARGE)])
    assert "cheaper" in verdict.blocked("a")


@pytest.mark.parametrize("kind", ["on-demand", "spot"])
def test_a_node_moves_into_a_reservation_of_its_own_type(kind: str) -> None:
    verdict = disrupted(
        large("a", capacity_type=kind), pods=[pod_on("p", "a")], types=[*assorted_types(), reserved(LARGE)]
    )
    (claim,) = verdict.command.replacements
    assert (claim.launch.instance_type, claim.launch.reservation_id) == ("large", "large")


def test_a_replacement_does_not_wait_for_a_reservation_that_another_one_takes() -> None:
    pods = [pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")]
    verdict = disrupted(large("a"), large("b"), pods=pods, types=[reserved(SMALL, 1), LARGE])
    kinds = [claim.launch.capacity_type for command in verdict.commands for claim in command.replacements]
    assert verdict.removed == {"a", "b"}
    assert sorted(kinds) == ["reserved", "spot"]


# What a claim says of itself


def test_a_claim_that_is_said_to_be_busy_with_its_pods_is_not_consolidated() -> None:
    node = small("a")
    verdict = disrupted(node, types=BOTH, histories=[NodeHistory("a", said_to_stay=True)])
    assert "not consolidatable" in verdict.blocked("a")


@pytest.mark.parametrize(("own", "of_pool", "goes"), [("1h", "Never", True), ("Never", "1h", False), ("", "1h", True)])
def test_a_claim_expires_when_it_says_so_itself(own: str, of_pool: str, *, goes: bool) -> None:
    wanted = pool("default", ON_DEMAND, expire_after=of_pool, after="Never")
    verdict = disrupted(large("a", made={"expire_after": own}), pods=[pod_on("p", "a")], pools=[wanted], types=BOTH)
    assert [command.reason for command in verdict.commands] == [Reason.EXPIRED] * goes


def test_a_claim_has_the_deadline_that_it_says_itself() -> None:
    node = large("a", labels={"gone": "x"}, made={"termination_grace_period": "5m"})
    wanted = pool("default", ON_DEMAND, rule("gone", "DoesNotExist"))
    verdict = disrupted(node, pods=[pod_on("p", "a", metadata=PROTECTED)], pools=[wanted], types=BOTH)
    assert verdict.command.reason is Reason.DRIFTED


def test_a_node_that_is_rebooted_stays_says_why_and_uses_up_the_budget() -> None:
    sick = small("x", initialized=False)
    assert sick.claim is not None
    under_way = Reboots((NOW - 60,), "its condition Ready has been False", "one", NOW)
    restarting = Standing(sick.node, replace(sick.claim, state=ClaimState.INITIALIZED, reboots=under_way))
    others = [small("a"), small("b")]
    verdict = disrupted(*others, restarting, pools=[pool(budgets=[{"nodes": "1"}])], types=BOTH)
    assert verdict.removed == set()
    assert "allows 1 of 3 nodes at a time, 1 is leaving or not ready" in verdict.blocked("a")
    assert verdict.blocked("x").startswith("is rebooted since ")
    assert "(reboot 1 of 2 a day): its condition Ready has been False; it is replaced unless" in verdict.blocked("x")
    assert len(disrupted(*others, pools=[pool(budgets=[{"nodes": "1"}])], types=BOTH).removed) == 1
