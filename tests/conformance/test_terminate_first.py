"""Nodes that go before their replacement is launched, because there is no room for both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from shiplap.disruption.commands import DisruptionProposal, Method, PlacementGap, Reason
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.disruption.methods.terminate_first import FREE_S, JOIN_S
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.shiplap_annotations import TERMINATE_FIRST
from tests.builders.pods import pod, pod_on
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1
from tests.conformance.disruptions import BOTH, NOW, SMALL, Standing, Verdict, disrupted, pdb, small, standing
from tests.conformance.sold_reservations import held, sold

EXPECTED_S = 30 + FREE_S + JOIN_S
FRESH = rule("gone", "DoesNotExist")
"""What a node with this label no longer meets."""


def full(replicas: int = 2, name: str = "fixed", allows: str | None = "10m", **fields: Any) -> NodePool:
    """A static pool at its limit, whose nodes with the label `gone` have drifted."""
    annotations = {} if allows is None else {TERMINATE_FIRST: allows}
    made = pool(name, FRESH, replicas=replicas, after="Never", annotations=annotations, **fields)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, limits={"nodes": str(replicas)}))


def old(name: str, where: str = "fixed", **fields: Any) -> Standing:
    return small(name, pool=where, labels={"gone": "x"}, **fields)


def gap_of(verdict: Verdict) -> PlacementGap:
    gap = verdict.command.gap
    assert isinstance(gap, PlacementGap)
    return gap


BUSY = (pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3"))
PAIR = (old("a"), old("b"))


def test_a_node_of_a_full_static_pool_goes_first_and_the_gap_is_stated() -> None:
    verdict = disrupted(*PAIR, pods=BUSY, pools=[full()], types=BOTH)

    command = verdict.command
    assert (command.reason, command.method, command.nodes) == (Reason.DRIFTED, Method.TERMINATE_FIRST, ("a",))
    assert (command.replacements, command.moved, command.savings_hourly) == ((), 1, 0.0)
    assert gap_of(verdict) == PlacementGap(1, 30.0, FREE_S, JOIN_S, 600.0)
    assert f"1 pod has no place for about {EXPECTED_S:.0f} s" in command.detail
    assert "one node at a time" in verdict.blocked("b")


@pytest.mark.parametrize("allows", [None, "Never"])
def test_without_a_setting_it_stays(allows: str | None) -> None:
    verdict = disrupted(*PAIR, pods=BUSY, pools=[full(allows=allows)], types=BOTH)
    assert verdict.removed == set()
    assert verdict.blocked("a") == "NodePool fixed can launch no replacement now"


def test_the_setting_of_the_cluster_holds_where_a_pool_has_none() -> None:
    settings = DisruptionSettings(terminate_first_s=400.0)
    nodes = (*PAIR, old("c", "other"), old("d", "other"))
    pools = [full(allows=None), full(name="other", allows="Never")]
    verdict = disrupted(*nodes, pods=BUSY, pools=pools, types=BOTH, settings=settings)
    assert verdict.command.nodes == ("a",)
    assert gap_of(verdict).most_s == 400.0


def test_a_pool_with_room_replaces_first() -> None:
    roomy = msgspec.structs.replace(full(), spec=msgspec.structs.replace(full().spec, limits={"nodes": "3"}))
    first, *others = disrupted(*PAIR, pods=BUSY, pools=[roomy], types=BOTH).commands
    assert (first.method, len(first.replacements), first.gap) == (Method.STATIC_DRIFT, 1, UNSET)
    assert all(command.method is Method.STATIC_DRIFT for command in others)


def test_each_pool_has_its_own_turn() -> None:
    nodes = (*PAIR, old("c", "other"), old("d", "other"))
    verdict = disrupted(*nodes, pods=BUSY, pools=[full(), full(name="other")], types=BOTH)
    assert sorted(command.nodes for command in verdict.commands) == [("a",), ("c",)]


def test_expired_nodes_go_before_drifted_ones() -> None:
    expired = small("z", pool="fixed", created_at=NOW - 30 * 86400)
    verdict = disrupted(old("a"), expired, pods=BUSY, pools=[full(expire_after="720h")], types=BOTH, now=NOW + 1)
    assert (verdict.command.nodes, verdict.command.reason) == (("z",), Reason.EXPIRED)


@pytest.mark.parametrize("nodes", ["0", "0%"])
def test_a_budget_of_none_keeps_them(nodes: str) -> None:
    verdict = disrupted(*PAIR, pods=BUSY, pools=[full(budgets=[{"nodes": nodes}])], types=BOTH)
    assert verdict.removed == set()
    assert "no allowed disruptions for Drifted" in verdict.blocked("a")


def test_a_gap_longer_than_allowed_keeps_the_node_and_the_next_one_is_tried() -> None:
    slow = pod_on("p", "a", cpu="3", spec={"terminationGracePeriodSeconds": 300})
    expected = f"1 pod has no place for about {300 + FREE_S + JOIN_S:.0f} s"
    beside = small("b", pool="fixed")
    alone = disrupted(old("a"), beside, pods=[slow, BUSY[1]], pools=[full(allows="9m")], types=BOTH)
    assert alone.removed == set()
    assert expected in alone.blocked("a")
    assert "allows 540 s" in alone.blocked("a")
    both = disrupted(*PAIR, pods=[slow, BUSY[1]], pools=[full(allows="9m")], types=BOTH)
    assert both.command.nodes == ("b",)
    assert expected in both.blocked("a")
    graceful = disrupted(*PAIR, pods=[slow, BUSY[1]], pools=[full(allows="9m", grace="1m")], types=BOTH)
    assert (graceful.command.nodes, gap_of(graceful).empty_s) == (("a",), 60.0)


def test_pods_that_have_a_place_meanwhile_have_no_gap() -> None:
    lone = disrupted(old("a"), small("b", pool="fixed"), pods=[pod_on("p", "a")], pools=[full(allows="1s")], types=BOTH)
    assert gap_of(lone).pods == 0
    assert "all its pods have a place meanwhile" in lone.command.detail


def test_the_time_to_join_is_what_nodes_of_the_pool_took() -> None:
    quick = NodeHistory("b", initialized_at=NOW - 8 * 3600 + 45)
    foreign = NodeHistory("c", initialized_at=NOW - 8 * 3600 + 900)
    nodes = (old("a"), small("b", pool="fixed"), small("c"))
    verdict = disrupted(
        *nodes, pods=(*BUSY, pod_on("r", "c", cpu="3")), pools=[full(), pool()], types=BOTH, histories=[quick, foreign]
    )
    first = next(command for command in verdict.commands if command.nodes == ("a",))
    assert isinstance(first.gap, PlacementGap)
    assert first.gap.join_s == 45


@pytest.mark.parametrize(
    ("allowed", "grace", "why"),
    [
        (0, None, "pdb default/web prevents the eviction"),
        (1, None, "pdb default/web lets 1 of its 2 pods leave at a time"),
        (2, None, ""),
        (1, "2m", ""),
    ],
)
def test_budgets_of_pods_that_would_hold_the_node_half_empty(allowed: int, grace: str | None, why: str) -> None:
    web = {"labels": {"app": "web"}, "ready": True, "owner": "r", "owner_kind": "ReplicaSet"}
    busy = [pod_on(name, "a", cpu="1500m", **web) for name in ("p", "q")]
    verdict = disrupted(
        old("a", claim_annotations={}),
        small("b", pool="fixed"),
        pods=[*busy, BUSY[1]],
        pools=[full(grace=grace)],
        types=BOTH,
        budgets=[pdb("web", allowed, app="web")],
    )
    if why:
        assert verdict.removed == set()
        assert why in verdict.blocked("a")
    else:
        assert gap_of(verdict).empty_s == (120.0 if grace else 30.0)


def test_a_protected_pod_needs_a_grace_period() -> None:
    kept = pod_on("p", "a", cpu="3", annotations={labels.DO_NOT_DISRUPT: "true"})
    nodes = (old("a"), small("b", pool="fixed"))
    assert disrupted(*nodes, pods=[kept, BUSY[1]], pools=[full()], types=BOTH).removed == set()
    assert gap_of(disrupted(*nodes, pods=[kept, BUSY[1]], pools=[full(grace="4m")], types=BOTH)).empty_s == 240.0
    too_long = disrupted(*nodes, pods=[kept, BUSY[1]], pools=[full(grace="40m")], types=BOTH)
    assert "no place for about 2700 s" in too_long.blocked("a")


@pytest.mark.parametrize(
    ("other", "more", "why"),
    [
        (old("b", state=ClaimState.DRAINING), {}, "NodePool fixed can launch no replacement now"),
        (old("b"), {"busy": ["b", "claim-b"]}, "one node at a time, and another one is leaving or not Ready"),
        (old("b", ready=False), {}, "one node at a time, and another one is leaving or not Ready"),
        (old("b", state=ClaimState.REGISTERED), {}, "one node at a time, and another one is on its way"),
    ],
)
def test_another_node_of_the_pool_is_waited_for(other: Standing, more: dict[str, Any], why: str) -> None:
    verdict = disrupted(old("a"), other, pods=BUSY, pools=[full()], types=BOTH, **more)
    assert verdict.removed == set()
    assert why in verdict.blocked("a")


@pytest.mark.parametrize("standing", [{}, {"ready": False}, {"state": ClaimState.REGISTERED}])
def test_no_node_of_another_pool_is_waited_for(standing: dict[str, Any]) -> None:
    nodes = (*PAIR, old("c", "other"), old("d", "other", **standing))
    verdict = disrupted(*nodes, pods=BUSY, pools=[full(), full(name="other", allows=None)], types=BOTH)
    assert verdict.command.nodes == ("a",)


def test_a_pod_that_waits_since_a_moment_ago_holds_the_next_node() -> None:
    def waiting(minutes: int) -> Verdict:
        homeless = pod("big", cpu="64", metadata={"creationTimestamp": rfc3339(NOW - 60 * minutes)})
        return disrupted(*PAIR, pods=[*BUSY, homeless], pools=[full()], types=BOTH)

    assert "pod default/big has no place either" in waiting(5).blocked("a")
    assert waiting(90).command.nodes == ("a",)


def test_a_node_that_nothing_could_replace_stays() -> None:
    gone = disrupted(*PAIR, pods=BUSY, pools=[full()], types=())
    assert gone.removed == set()
    huge = pod_on("p", "a", cpu="3", selector={"gone": "x"})
    stuck = disrupted(old("a"), small("b", pool="fixed"), pods=[huge, BUSY[1]], pools=[full()], types=BOTH)
    assert stuck.removed == set()
    assert "without it, too, pod default/p has no place" in stuck.blocked("a")


def test_an_annotation_that_cannot_be_read_keeps_the_node_and_says_so() -> None:
    verdict = disrupted(*PAIR, pods=BUSY, pools=[full(allows="soon")], types=BOTH)
    assert verdict.removed == set()
    assert f"{TERMINATE_FIRST}: 'soon' is not a duration" in verdict.blocked("a")


# Reservations

RESERVED_ONLY = rule("karpenter.sh/capacity-type", "In", "reserved")


def in_reservation(name: str, reservation: str = "cr-1", **fields: Any) -> Standing:
    marks = {labels.RESERVATION_ID: reservation, labels.RESERVATION_TYPE: "default", "gone": "x"}
    return standing(
        name, "only", cpu="3900m", memory="8000Mi", pods="50", capacity_type="reserved", labels=marks, **fields
    )


def reserved(*nodes: Standing, left: int = 0, allows: str = "10m", **fields: Any) -> Verdict:
    """A pool of one reservation, in which each node runs one large pod."""
    wanted = pool("default", RESERVED_ONLY, FRESH, after="Never", annotations={TERMINATE_FIRST: allows})
    bound = [pod_on(f"on-{item.node.metadata.name}", item.node.metadata.name, cpu="3") for item in nodes]
    return disrupted(*nodes, pods=bound, pools=fields.pop("pools", [wanted]), types=[full_one(left)], **fields)


def full_one(left: int, *, zone_is_open: bool = True) -> InstanceType:
    kind = sold("only", msgspec.structs.replace(held("cr-1", left), available=left > 0))
    if zone_is_open:
        return kind
    shut = tuple(
        msgspec.structs.replace(offering, available=False) if offering.zone == Z1 else offering
        for offering in kind.offerings
    )
    return msgspec.structs.replace(kind, offerings=shut)


def methods(verdict: Verdict) -> list[tuple[Method, tuple[str, ...]]]:
    return [(command.method, command.nodes) for command in verdict.commands]


def test_a_node_of_a_full_reservation_goes_first() -> None:
    verdict = reserved(in_reservation("a"), in_reservation("b"))
    assert methods(verdict) == [(Method.TERMINATE_FIRST, ("a",))]
    assert gap_of(verdict).pods == 1
    assert "its reservation has no room for a replacement" in verdict.blocked("b")


def test_a_reservation_with_room_is_used_first() -> None:
    commands = reserved(in_reservation("a"), left=2).commands
    assert [command.method for command in commands] == [Method.DRIFT]
    assert commands[0].replacements[0].launch.reservation_id == "cr-1"


def test_a_pool_that_may_buy_on_demand_replaces_first() -> None:
    wanted = pool("default", FRESH, after="Never", annotations={TERMINATE_FIRST: "10m"})
    commands = reserved(in_reservation("a"), pools=[wanted]).commands
    assert [command.method for command in commands] == [Method.DRIFT]
    assert commands[0].replacements[0].launch.capacity_type != "reserved"


def test_nodes_stay_where_the_zone_of_their_reservation_is_closed() -> None:
    wanted = pool("default", RESERVED_ONLY, FRESH, after="Never", annotations={TERMINATE_FIRST: "10m"})
    verdict = disrupted(
        in_reservation("a"),
        pods=[pod_on("p", "a", cpu="3")],
        pools=[wanted],
        types=[full_one(0, zone_is_open=False)],
    )
    assert verdict.removed == set()
    assert "without it, too, pod default/p has no place" in verdict.blocked("a")


def test_a_reservation_that_is_no_longer_offered_keeps_its_nodes() -> None:
    verdict = reserved(in_reservation("a", "cr-9"))
    assert verdict.removed == set()


def test_nodes_outside_reservations_do_not_go_first_for_want_of_capacity() -> None:
    wanted = pool("default", rule("size", "In", "huge"), FRESH, annotations={TERMINATE_FIRST: "10m"}, after="Never")
    verdict = disrupted(old("a", "default"), pods=[BUSY[0]], pools=[wanted], types=[SMALL])
    assert verdict.removed == set()


def test_a_static_pool_of_a_full_reservation_goes_first() -> None:
    wanted = pool("default", RESERVED_ONLY, FRESH, replicas=2, after="Never", annotations={TERMINATE_FIRST: "10m"})
    verdict = reserved(in_reservation("a"), in_reservation("b"), pools=[wanted])
    assert methods(verdict) == [(Method.TERMINATE_FIRST, ("a",))]


def test_consolidation_waits_for_it() -> None:
    spare = [small("x"), small("y")]
    cheap = [pod_on("r", "x"), pod_on("s", "y")]
    verdict = disrupted(*PAIR, *spare, pods=[*BUSY, *cheap], pools=[full(), pool()], types=BOTH)
    commands: tuple[DisruptionProposal, ...] = verdict.commands
    assert [command.method for command in commands] == [Method.TERMINATE_FIRST]
