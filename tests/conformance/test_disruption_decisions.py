"""Emptiness, drift, expiration, consolidation and budgets: what is given up, what replaces it, what blocks the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.consolidation import MOST_NODES
from shiplap.disruption.decision_memory import confirmed
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta, Pod
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.template_hash import (
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
    marks_of,
)
from shiplap.scheduling.model.snapshot import SchedulingSettings
from tests.builders.pods import pod_on, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type, ladder
from tests.conformance.disruptions import (
    BOTH,
    LARGE,
    ON_DEMAND,
    SMALL,
    Standing,
    disrupted,
    large,
    pdb,
    small,
    standing,
)
from tests.conformance.given import NOW

# Emptiness


@pytest.mark.parametrize(("nodes", "gone"), [("100%", 10), ("0%", 0), ("30%", 3)])
def test_173_budgets_bound_how_many_empty_nodes_go(nodes: str, gone: int) -> None:
    verdict = disrupted(
        *(small(f"n{place}") for place in range(10)), pools=[pool(budgets=[{"nodes": nodes}])], types=BOTH
    )
    assert len(verdict.removed) == gone
    assert len(verdict.decision.blocked) == 10 - gone


def test_173_every_pool_has_its_own_budget() -> None:
    nodes = [small(f"p{p}-{place}", pool=f"p{p}") for p in range(10) for place in range(3)]
    verdict = disrupted(*nodes, pools=[pool(f"p{p}", budgets=[{"nodes": "50%"}]) for p in range(10)], types=BOTH)
    assert len(verdict.removed) == 20


@pytest.mark.parametrize(("value", "gone"), [("true", set()), ("false", {"n"})])
def test_179_the_annotation_keeps_an_empty_node(value: str, gone: set[str]) -> None:
    verdict = disrupted(small("n", annotations={"karpenter.sh/do-not-disrupt": value}), types=BOTH)
    assert verdict.removed == gone


def test_181_an_empty_node_that_a_pending_pod_will_use_stays() -> None:
    verdict = disrupted(small("n"), pods=[pod_on("waits")], types=BOTH)
    assert verdict.removed == set()
    assert "nominated" in verdict.blocked("n")


def test_183_several_empty_nodes_go_in_one_command() -> None:
    verdict = disrupted(small("a"), small("b"), types=BOTH)
    assert verdict.command.nodes == ("a", "b")
    assert verdict.command.reason is Reason.EMPTY
    assert verdict.command.savings_hourly == 2.0
    assert verdict.command.replacements == ()


def test_183_nodes_of_static_pools_stay() -> None:
    verdict = disrupted(small("a"), pools=[pool(replicas=1)], types=BOTH)
    assert verdict.removed == set()
    assert "static" in verdict.blocked("a")


def test_171_a_budget_that_cannot_be_read_blocks_its_pool_visibly() -> None:
    verdict = disrupted(
        small("a"),
        small("b", pool="other"),
        pools=[pool(budgets=[{"nodes": "1000a%"}]), pool("other")],
        types=BOTH,
    )
    assert verdict.removed == {"b"}
    assert "1000a%" in verdict.blocked("a")


def test_a_daemon_pod_does_not_fill_a_node() -> None:
    verdict = disrupted(small("a"), pods=[pod_on("agent", "a", owner="agent")], types=BOTH)
    assert verdict.removed == {"a"}


# Consolidation


def test_185_an_expensive_node_with_one_small_pod_is_replaced_by_another_type() -> None:
    verdict = disrupted(large("a"), pods=[pod_on("p", "a")], pools=[pool("default", ON_DEMAND)], types=BOTH)
    command = verdict.command
    assert command.reason is Reason.UNDERUTILIZED
    assert [claim.instance_types for claim in command.replacements] == [("small",)]
    assert command.savings_hourly == pytest.approx(3.0)
    assert command.moved == 1


def test_201_of_two_equal_nodes_only_the_one_with_fewest_pods_goes() -> None:
    verdict = disrupted(
        small("a"), small("b"), pods=[pod_on("p1", "a"), pod_on("p2", "b"), pod_on("p3", "b")], types=BOTH
    )
    assert verdict.command.nodes == ("a",)
    assert verdict.command.replacements == ()


def test_191_the_dearest_zone_decides_whether_spot_saves() -> None:
    kind = fake_type("cheap", cpu="4", memory="8Gi", price=9.0)
    prices = {Z1: 1.0, Z2: 0.2, Z3: 0.4}
    spread = InstanceType(
        **{field: getattr(kind, field) for field in kind.__struct_fields__ if field != "offerings"},
        offerings=tuple(type(kind.offerings[0])(zone, "spot", price) for zone, price in prices.items()),
    )
    verdict = disrupted(
        standing("a", "half", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        types=[fake_type("half", cpu="4", memory="8Gi", price=0.5, offerings=(("on-demand", Z1),)), spread],
    )
    assert verdict.removed == set()
    assert "cheaper" in verdict.blocked("a")


def test_187_spot_is_replaced_by_the_fifteen_cheapest_types() -> None:
    verdict = disrupted(
        standing("a", "t19", capacity_type="spot", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        types=ladder(20),
    )
    assert verdict.command.replacements[0].instance_types == tuple(f"t{place:02}" for place in range(15))


def test_187_spot_with_too_few_cheaper_types_stays() -> None:
    verdict = disrupted(
        standing("a", "t14", capacity_type="spot", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        types=ladder(20),
    )
    assert verdict.removed == set()
    assert "got 14" in verdict.blocked("a")


def test_spot_to_spot_can_be_forbidden() -> None:
    verdict = disrupted(
        standing("a", "t19", capacity_type="spot", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        types=ladder(20),
        settings=DisruptionSettings(spot_to_spot=False),
    )
    assert verdict.removed == set()


def test_an_on_demand_node_is_replaced_by_spot_only_where_both_are_offered() -> None:
    verdict = disrupted(large("a"), pods=[pod_on("p", "a")], types=BOTH)
    requirements = {entry.key: entry.values for entry in verdict.command.replacements[0].requirements}
    assert requirements["karpenter.sh/capacity-type"] == ("spot",)


@pytest.mark.parametrize(("left", "allowed", "gone"), [(1, True, {"a"}), (0, True, set()), (1, False, set())])
def test_an_on_demand_node_moves_into_a_reservation_that_has_room(left: int, allowed: bool, gone: set[str]) -> None:
    held = Offering(Z1, "reserved", 0.00001, left > 0, reservation_id="cr-1", reservation_capacity=left)
    only = fake_type("large", cpu="16", memory="32Gi", pods="50", price=4.0, offerings=(("on-demand", Z1),))
    sold = msgspec.structs.replace(only, offerings=(*only.offerings, held))
    rule = {"key": "karpenter.sh/capacity-type", "operator": "In"}
    kinds = ["on-demand", "reserved"] if allowed else ["on-demand"]
    verdict = disrupted(
        large("a"), pods=[pod_on("p", "a", cpu="3")], pools=[pool("default", rule | {"values": kinds})], types=[sold]
    )
    assert verdict.removed == gone
    for claim in (item for command in verdict.commands for item in command.replacements):
        assert claim.launch.reservation_id == "cr-1"


def test_three_nodes_become_one_larger() -> None:
    dear = fake_type("dear", cpu="4", memory="8Gi", pods="20", price=2.0)
    nodes = [standing(f"n{place}", "dear", cpu="3900m", memory="8000Mi") for place in range(3)]
    verdict = disrupted(
        *nodes,
        pods=[pod_on(f"p{place}", f"n{place}", cpu="3") for place in range(3)],
        pools=[pool("default", ON_DEMAND)],
        types=[dear, fake_type("wide", cpu="16", memory="32Gi", pods="50", price=3.0)],
    )
    assert verdict.removed == {"n0", "n1", "n2"}
    assert [claim.instance_types for claim in verdict.command.replacements] == [("wide",)]


def test_one_node_becomes_two_cheaper_ones() -> None:
    huge = fake_type("huge", cpu="16", memory="32Gi", pods="50", price=40.0)
    waiting = [pod_on(f"p{place}", "a", cpu="3") for place in range(2)]
    verdict = disrupted(
        standing("a", "huge", cpu="15900m", memory="32000Mi"),
        pods=waiting,
        pools=[pool("default", ON_DEMAND)],
        types=[SMALL, huge],
    )
    assert verdict.command.nodes == ("a",)
    assert [claim.instance_types for claim in verdict.command.replacements] == [("small",), ("small",)]
    assert verdict.command.savings_hourly == pytest.approx(38.0)


def test_193_a_node_whose_pods_have_just_changed_stays() -> None:
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p1", "a"), pod_on("p2", "b")],
        pools=[pool("default", ON_DEMAND, after="60s")],
        types=[LARGE],
        histories=[NodeHistory("a", last_pod_event_at=NOW - 10)],
    )
    assert verdict.removed == set()
    assert "consolidateAfter" in verdict.blocked("a")


def test_193_a_node_whose_pods_have_rested_long_enough_goes() -> None:
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p1", "a"), pod_on("p2", "b")],
        pools=[pool("default", ON_DEMAND, after="60s")],
        types=[LARGE],
        histories=[NodeHistory("a", last_pod_event_at=NOW - 60), NodeHistory("b", last_pod_event_at=NOW - 60)],
    )
    assert len(verdict.removed) == 1


def test_193_its_neighbour_goes_when_it_has_another_home() -> None:
    verdict = disrupted(
        large("a"),
        large("b"),
        large("c"),
        pods=[pod_on("p1", "a"), pod_on("p2", "b"), pod_on("p3", "c")],
        pools=[pool("default", ON_DEMAND, after="60s")],
        types=[LARGE],
        histories=[NodeHistory("a", last_pod_event_at=NOW - 10)],
    )
    assert len(verdict.removed) == 1
    assert "a" not in verdict.removed


def test_when_empty_pools_keep_their_used_nodes() -> None:
    verdict = disrupted(large("a"), pods=[pod_on("p", "a")], pools=[pool(policy="WhenEmpty")], types=BOTH)
    assert "WhenEmpty" in verdict.blocked("a")


def test_never_disables_consolidation_and_emptiness() -> None:
    verdict = disrupted(large("a"), small("b"), pods=[pod_on("p", "a")], pools=[pool(after="Never")], types=BOTH)
    assert verdict.removed == set()
    assert "disabled" in verdict.blocked("a")
    assert "disabled" in verdict.blocked("b")


def test_189_a_pool_without_a_catalogue_does_not_stop_the_others() -> None:
    verdict = disrupted(
        large("a"),
        large("b", pool="blind"),
        pods=[pod_on("p", "a"), pod_on("q", "b")],
        pools=[pool(), pool("blind", node_class="gone")],
        types=BOTH,
    )
    assert verdict.removed == {"a"}
    assert "not found" in verdict.blocked("b")


def test_a_saving_below_the_floor_moves_no_pod() -> None:
    case: dict[str, Any] = {"pods": [pod_on("p", "a")], "types": BOTH, "pools": [pool("default", ON_DEMAND)]}
    assert disrupted(large("a"), **case, settings=DisruptionSettings(least_saving_per_pod=2.9)).removed == {"a"}
    verdict = disrupted(large("a"), **case, settings=DisruptionSettings(least_saving_per_pod=3.0))
    assert verdict.removed == set()
    assert "less than" in verdict.blocked("a")


def test_a_saving_that_is_a_small_part_of_the_price_replaces_no_node() -> None:
    case: dict[str, Any] = {"pods": [pod_on("p", "a")], "types": BOTH, "pools": [pool("default", ON_DEMAND)]}
    assert disrupted(large("a"), **case, settings=DisruptionSettings(least_saving_share=0.75)).removed == {"a"}
    verdict = disrupted(large("a"), **case, settings=DisruptionSettings(least_saving_share=0.76))
    assert verdict.removed == set()
    assert "less than 76%" in verdict.blocked("a")


def test_a_large_rebuild_is_several_commands_that_stand_alone() -> None:
    nodes = [large(f"n{place:02}") for place in range(60)]
    bound = [pod_on(f"p{place:02}", f"n{place:02}", cpu="3") for place in range(60)]
    dear = fake_type("large", cpu="16", memory="32Gi", pods="50", price=8.0)
    verdict = disrupted(*nodes, pods=bound, pools=[pool("default", ON_DEMAND)], types=[SMALL, dear])
    assert len(verdict.removed) == 60
    assert len(verdict.commands) > 2
    assert all(len(command.nodes) <= MOST_NODES for command in verdict.commands)
    homes = [ref.name for command in verdict.commands for claim in command.replacements for ref in claim.pods]
    homes += [ref.name for command in verdict.commands for place in command.placements for ref in place.pods]
    assert sorted(homes) == [item.metadata.name for item in bound]
    staying = {place.name for command in verdict.commands for place in command.placements}
    assert not staying & verdict.removed


def test_pods_that_were_moved_just_now_stay_for_a_while() -> None:
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a")],
        types=BOTH,
        histories=[NodeHistory("a", moved_in_at=NOW - 60)],
        settings=DisruptionSettings(settle_s=600),
    )
    assert "moved here 60 s ago" in verdict.blocked("a")


def test_a_node_is_not_taken_before_its_pods_have_started() -> None:
    verdict = disrupted(large("a"), pods=[pod_on("p", "a", status={"phase": "Pending"})], types=BOTH)
    assert "has not started" in verdict.blocked("a")


@pytest.mark.parametrize(("used", "goes"), [(1, True), (14, False)])
def test_balanced_weighs_savings_against_disruption(used: int, goes: bool) -> None:
    """A node that costs a quarter of its pool goes when its pods are few of the pool's, not when they are most."""
    nodes = [large("a"), *(large(f"full{place}") for place in range(3))]
    filling = [pod_on(f"f{n}-{place}", f"full{n}", cpu="5") for n in range(3) for place in range(2)]
    mine = [pod_on(f"p{place}", "a", cpu="200m") for place in range(used)]
    verdict = disrupted(*nodes, pods=[*filling, *mine], pools=[pool(policy="Balanced")], types=[LARGE])
    assert ("a" in verdict.removed) is goes


def test_197_pods_without_an_owner_are_moved_too() -> None:
    assert disrupted(large("a"), pods=[pod_on("bare", "a")], types=BOTH).removed == {"a"}


# Protection


def test_a_pod_that_must_not_be_disrupted_keeps_its_node() -> None:
    marked = pod_on("p", "a", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    verdict = disrupted(large("a"), pods=[marked], types=BOTH)
    assert verdict.removed == set()
    assert "default/p" in verdict.blocked("a")


@pytest.mark.parametrize(
    ("value", "started", "goes"),
    [
        ("10m", "2027-01-15T07:55:00Z", False),
        ("2m", "2027-01-15T07:55:00Z", True),
        ("10m", "", False),
        ("-5m", "", True),
    ],
)
def test_a_protection_with_a_duration_ends(value: str, started: str, goes: bool) -> None:
    """NOW is 2027-01-15 08:00 UTC."""
    annotated = pod_on(
        "p",
        "a",
        metadata={"annotations": {"karpenter.sh/do-not-disrupt": value}},
        status={"phase": "Running", "startTime": started},
    )
    assert (disrupted(large("a"), pods=[annotated], types=BOTH).removed == {"a"}) is goes


def test_an_exhausted_pdb_keeps_the_node() -> None:
    labelled = pod_on("p", "a", metadata={"labels": {"app": "db"}})
    verdict = disrupted(large("a"), pods=[labelled], types=BOTH, budgets=[pdb("db", 0, app="db")])
    assert "pdb default/db" in verdict.blocked("a")
    assert disrupted(large("a"), pods=[labelled], types=BOTH, budgets=[pdb("db", 1, app="db")]).removed == {"a"}


def test_a_pdb_from_a_file_is_reckoned_without_a_controller() -> None:
    labelled = pod_on("p", "a", metadata={"labels": {"app": "db"}})
    assert disrupted(large("a"), pods=[labelled], types=BOTH, budgets=[pdb("db", app="db")]).removed == set()


def test_several_pdbs_on_a_pod_block() -> None:
    labelled = pod_on("p", "a", metadata={"labels": {"app": "db"}})
    budgets = [pdb("one", 5, app="db"), pdb("two", 5, app="db")]
    assert "several" in disrupted(large("a"), pods=[labelled], types=BOTH, budgets=budgets).blocked("a")


# Candidates


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (large("a", claimed=False), "no NodeClaim"),
        (large("a", deleting=True), "being deleted"),
        (large("a", state=ClaimState.DISRUPTING), "under way"),
        (large("a", initialized=False), "not initialized"),
        (large("a", pool="unknown"), "is not known"),
    ],
    ids=["only a node", "deleting", "in a command", "uninitialised", "unknown pool"],
)
def test_211_nodes_that_are_no_candidates(node: Standing, reason: str) -> None:
    verdict = disrupted(node, types=BOTH)
    assert verdict.removed == set()
    assert reason in verdict.blocked("a")


def test_211_a_nominated_node_is_no_candidate() -> None:
    verdict = disrupted(large("a"), pods=[pod_on("p", status={"nominatedNodeName": "a"})], types=BOTH)
    assert "nominated" in verdict.blocked("a")


def test_nodes_of_others_are_not_mentioned() -> None:
    verdict = disrupted(standing("theirs", pool="", claimed=False), types=BOTH)
    assert verdict.decision.commands == ()
    assert verdict.decision.blocked == ()


def test_211_a_node_without_its_type_label_can_still_drift() -> None:
    node = large("a", labels={"node.kubernetes.io/instance-type": ""})
    verdict = disrupted(node, pods=[pod_on("p", "a")], types=BOTH)
    assert verdict.command.reason is Reason.DRIFTED
    assert "InstanceTypeNotFound" in verdict.command.detail


UNKNOWN: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "no zone": ({}, {labels.ZONE: ""}, False),
    "no capacity type": ({}, {labels.CAPACITY_TYPE: ""}, False),
    "neither": ({}, {labels.ZONE: "", labels.CAPACITY_TYPE: ""}, False),
    "the claim alone knows its zone": ({"zone": "elsewhere"}, {labels.ZONE: ""}, True),
    "the claim alone knows its type": ({"instance_type": "large"}, {labels.INSTANCE_TYPE: ""}, False),
    "the claim's labels alone know its zone": ({"labels": {labels.ZONE: "elsewhere"}}, {labels.ZONE: ""}, True),
    "a zone in which nothing is sold": ({}, {labels.ZONE: "elsewhere"}, True),
    "a capacity type that is not sold": ({}, {labels.CAPACITY_TYPE: "reserved-no-more"}, True),
}


@pytest.mark.parametrize(("made", "marks", "drifts"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_place_that_is_not_known_is_no_drift(made: dict[str, Any], marks: dict[str, str], *, drifts: bool) -> None:
    verdict = disrupted(large("a", labels=marks, made=made), pools=[pool(after="Never")], types=BOTH)
    assert (verdict.removed == {"a"}) is drifts


@pytest.mark.parametrize(
    "key",
    [
        labels.INSTANCE_TYPE,
        labels.ZONE,
        labels.ZONE_ID,
        labels.CAPACITY_TYPE,
        labels.ARCH,
        labels.OS,
        labels.REGION,
    ],
)
@pytest.mark.parametrize("operator", ["In", "Exists"])
def test_a_label_that_every_node_has_is_unknown_when_it_is_missing(key: str, operator: str) -> None:
    asked = rule(key, operator, *(["value"] if operator == "In" else []))
    node = large("a", labels={key: ""}, created_at=NOW - 60)
    assert disrupted(node, pools=[pool("default", asked, after="Never")], types=BOTH).removed == set()
    later = rule("zzz", "In", "value")
    verdict = disrupted(node, pools=[pool("default", asked, later, after="Never")], types=BOTH)
    assert "wants zzz In" in verdict.command.detail, "it hides no other"


# Drift and expiration

ARCH = "kubernetes.io/arch"
DRIFT: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "on-demand to spot": (rule("karpenter.sh/capacity-type", "In", "spot"), {}, True),
    "a requirement the node has no label for": (rule("new", "In", "x"), {}, True),
    "narrowed": (rule("kubernetes.io/os", "In", "windows"), {}, True),
    "widened": (rule("kubernetes.io/os", "In", "linux", "windows"), {}, False),
    "exists": (rule("kubernetes.io/os", "Exists"), {}, False),
    "does not exist": (rule("kubernetes.io/os", "DoesNotExist"), {}, True),
    "above": (rule("test", "Gt", "10"), {"test": "5"}, True),
    "still above": (rule("test", "Gt", "2"), {"test": "5"}, False),
    "below": (rule("test", "Lt", "1"), {"test": "2"}, True),
    "a glob that still matches": (rule("node.kubernetes.io/instance-type", "In", "lar*"), {}, False),
    "a glob that does not": (rule("node.kubernetes.io/instance-type", "In", "sm*"), {}, True),
    "an order of preference excludes nothing": (rule("node.kubernetes.io/instance-type", "In", "sm*", "*"), {}, False),
}


@pytest.mark.parametrize(("requirement", "labels", "drifts"), DRIFT.values(), ids=DRIFT.keys())
def test_217_requirements_that_the_node_no_longer_meets(
    requirement: dict[str, Any], labels: dict[str, str], drifts: bool
) -> None:
    verdict = disrupted(large("a", labels=labels), pools=[pool("default", requirement, after="Never")], types=BOTH)
    assert (verdict.removed == {"a"}) is drifts
    if drifts:
        assert "RequirementsDrifted" in verdict.command.detail


def test_a_changed_template_is_drift_and_a_changed_budget_is_not() -> None:
    before = pool(after="Never")
    node = large("a", claim_annotations=marks_of(before))
    assert disrupted(node, pools=[pool(after="Never", weight=5)], types=BOTH).removed == set()
    verdict = disrupted(node, pools=[pool(after="Never", labels={"team": "x"})], types=BOTH)
    assert "NodePoolDrifted" in verdict.command.detail


def test_217_the_hash_that_karpenter_wrote_counts_where_the_pool_has_one_too() -> None:
    theirs = {POOL_HASH: "1", POOL_HASH_VERSION: "v3"}
    case: dict[str, Any] = {"types": BOTH}
    node = large("a", claim_annotations=theirs)
    assert disrupted(node, pools=[pool(after="Never", annotations=theirs)], **case).removed == set()
    changed = {**theirs, POOL_HASH: "2"}
    assert disrupted(node, pools=[pool(after="Never", annotations=changed)], **case).removed == {"a"}
    other = {**changed, POOL_HASH_VERSION: "v4"}
    assert disrupted(node, pools=[pool(after="Never", annotations=other)], **case).removed == set()


def test_a_node_of_another_ami_than_its_type_gets_now_has_drifted() -> None:
    types = [msgspec.structs.replace(item, ami="ami-new") for item in BOTH]
    case: dict[str, Any] = {"pools": [pool(after="Never")], "types": types}
    assert disrupted(large("a", ami="ami-new"), **case).removed == set()
    assert disrupted(large("a", ami=""), **case).removed == set()
    assert "AMIDrift" in disrupted(large("a", ami="ami-old"), **case).command.detail


def test_the_hash_of_another_node_class_is_no_drift() -> None:
    classes = [
        EC2NodeClass(ObjectMeta(name=name, annotations=_hash(name)), EC2NodeClassSpec())
        for name in ("another", "default")
    ]
    case: dict[str, Any] = {"pools": [pool(after="Never")], "types": BOTH, "node_classes": classes}
    assert disrupted(large("a", claim_annotations=_hash("default")), **case).removed == set()
    assert "NodeClassDrift" in disrupted(large("a", claim_annotations=_hash("another")), **case).command.detail


def _hash(value: str) -> dict[str, str]:
    return {NODE_CLASS_HASH: value, NODE_CLASS_HASH_VERSION: "v7"}


def test_219_a_type_that_is_gone_drifts_once_the_claim_is_an_hour_old() -> None:
    case: dict[str, Any] = {"pools": [pool(after="Never")], "types": [SMALL]}
    assert disrupted(large("a"), **case).removed == {"a"}
    assert disrupted(large("a", created_at=NOW - 60), **case).removed == set()


def test_219_an_offering_that_is_gone_drifts() -> None:
    verdict = disrupted(large("a", zone="elsewhere"), pools=[pool(after="Never")], types=BOTH)
    assert verdict.command.detail.endswith("large is no longer offered as on-demand in elsewhere")
    unzoned = disrupted(
        large("a", labels={labels.ZONE: "", labels.CAPACITY_TYPE: "spot"}),
        pools=[pool(after="Never")],
        types=[SMALL, fake_type("large", offerings=(("on-demand", Z1),))],
    )
    assert unzoned.command.detail.endswith("large is no longer offered as spot")


@pytest.mark.parametrize(("sold", "drifts"), [("reserved", False), ("on-demand", False), ("spot", True)])
def test_a_reserved_node_may_be_of_a_type_that_is_sold_as_reserved_or_on_demand(sold: str, drifts: bool) -> None:
    only = msgspec.structs.replace(LARGE, offerings=(Offering(Z1, sold, 1.0),))
    verdict = disrupted(large("a", capacity_type="reserved"), pools=[pool(after="Never")], types=[only], class_says={})
    assert (verdict.removed == {"a"}) is drifts


def test_221_drift_launches_what_the_pods_need_whatever_it_costs() -> None:
    verdict = disrupted(
        small("a"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", rule("node.kubernetes.io/instance-type", "In", "large"), after="Never")],
        types=BOTH,
    )
    assert verdict.command.replacements[0].instance_types == ("large",)
    assert verdict.command.savings_hourly == pytest.approx(-3.0)


def test_221_drifted_nodes_whose_pods_fit_elsewhere_are_just_deleted() -> None:
    drifted = small("a", labels={"gone": "x"})
    wanted = pool("default", rule("gone", "DoesNotExist"), after="Never")
    verdict = disrupted(drifted, large("b"), pods=[pod_on("p", "a"), pod_on("q", "b")], pools=[wanted], types=BOTH)
    assert verdict.command.nodes == ("a",)
    assert verdict.command.replacements == ()


def test_221_the_oldest_drift_goes_first_and_empty_nodes_before_it() -> None:
    nodes = [small(f"n{place}", labels={"gone": "x"}) for place in range(3)]
    case: dict[str, Any] = {
        "pods": [pod_on("p0", "n0"), pod_on("p1", "n1")],
        "types": BOTH,
        "histories": [
            NodeHistory("n0", drifted_at=20),
            NodeHistory("n1", drifted_at=10),
            NodeHistory("n2", drifted_at=30),
        ],
    }
    rules = rule("gone", "DoesNotExist")
    first = disrupted(*nodes, pools=[pool("default", rules, after="Never", budgets=[{"nodes": "1"}])], **case)
    assert first.removed == {"n2"}
    two = disrupted(*nodes, pools=[pool("default", rules, after="Never", budgets=[{"nodes": "2"}])], **case)
    assert two.removed == {"n1", "n2"}


def test_while_nodes_drift_every_other_node_says_why_it_stays() -> None:
    """A node of a second pool, of one that only empties, a protected one and one with nowhere to go wait with it."""
    nodes = [small("old", labels={"gone": "x"}), small("a"), small("b"), small("c", pool="empties"), large("d")]
    kept = pod_on("kept", "b", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    pools = [pool("default", rule("gone", "DoesNotExist")), pool("empties", policy="WhenEmpty")]
    verdict = disrupted(
        *nodes, pods=[kept, *(pod_on(f"p-{name}", name) for name in ("old", "a", "c", "d"))], pools=pools, types=BOTH
    )
    assert verdict.removed == {"old"}
    assert verdict.command.method is Method.DRIFT
    assert verdict.blocked("a") == verdict.blocked("d") == "consolidation waits for nodes that expire or drift"
    assert "default/kept" in verdict.blocked("b")
    assert "WhenEmpty" in verdict.blocked("c")


def test_a_drifted_node_that_cannot_go_does_not_hold_up_the_others() -> None:
    pinned = pod_on("p0", "n0", selector={"only": "here"})
    nodes = [small("n0", labels={"gone": "x", "only": "here"}), small("n1", labels={"gone": "x"})]
    verdict = disrupted(
        *nodes,
        pods=[pinned, pod_on("p1", "n1")],
        pools=[pool("default", rule("gone", "DoesNotExist"), after="Never", budgets=[{"nodes": "1"}])],
        types=BOTH,
    )
    assert verdict.removed == {"n1"}
    assert "default/p0" in verdict.blocked("n0")


@pytest.mark.parametrize(("grace", "gone"), [(None, set()), ("300s", {"a"})])
def test_223_a_protected_pod_blocks_drift_unless_it_has_a_deadline(grace: str | None, gone: set[str]) -> None:
    marked = pod_on("p", "a", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    wanted = pool("default", rule("gone", "DoesNotExist"), after="Never", grace=grace)
    verdict = disrupted(small("a", labels={"gone": "x"}), pods=[marked], pools=[wanted], types=BOTH)
    assert verdict.removed == gone
    assert all(command.replacements == () for command in verdict.commands)


@pytest.mark.parametrize(("age_s", "gone"), [(3601, {"a"}), (3500, set())])
def test_229_an_expired_node_is_replaced_before_it_goes(age_s: int, gone: set[str]) -> None:
    node = small("a", created_at=NOW - age_s)
    verdict = disrupted(node, pods=[pod_on("p", "a")], pools=[pool(expire_after="1h", policy="WhenEmpty")], types=BOTH)
    assert verdict.removed == gone
    for command in verdict.commands:
        assert command.reason is Reason.EXPIRED
        assert len(command.replacements) == 1


def test_expiration_keeps_to_budgets() -> None:
    nodes = [small(f"n{place}", created_at=NOW - 7200) for place in range(10)]
    verdict = disrupted(
        *nodes,
        pods=[pod_on(f"p{place}", f"n{place}") for place in range(10)],
        pools=[pool(expire_after="1h", budgets=[{"nodes": "20%"}])],
        types=BOTH,
    )
    assert len(verdict.removed) == 2


def test_the_order_of_the_input_does_not_matter() -> None:
    nodes = [large(f"n{place}") for place in range(5)]
    bound = [*pods(3, "p", node="n1", cpu="1"), *pods(2, "q", node="n3", cpu="2"), pod_on("r", "n0")]
    one = disrupted(*nodes, pods=bound, types=BOTH)
    assert one.decision == disrupted(*reversed(nodes), pods=bound[::-1], types=BOTH).decision


# Static pools


def static(replicas: int, *rules: dict[str, Any], **fields: Any) -> NodePool:
    made = pool("fixed", *rules, replicas=replicas, after="Never", **fields)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, limits={}))


def fixed(name: str, **fields: Any) -> Standing:
    return small(name, pool="fixed", **fields)


def test_drifted_nodes_of_a_static_pool_are_replaced_one_by_one_by_nodes_of_it() -> None:
    wanted = static(3, rule("gone", "DoesNotExist"), budgets=[{"nodes": "2"}])
    nodes = [fixed(f"n{place}", labels={"gone": "x"}) for place in range(3)]
    verdict = disrupted(*nodes, pods=[pod_on("p", "n0")], pools=[wanted, pool()], types=BOTH)
    assert [command.nodes for command in verdict.commands] == [("n1",), ("n2",)]
    for command in verdict.commands:
        assert command.method is Method.STATIC_DRIFT
        assert [claim.node_pool for claim in command.replacements] == ["fixed"]
    assert "no allowed disruptions" in verdict.blocked("n0")


def test_a_static_pool_that_lacks_nodes_gets_those_before_others_are_replaced() -> None:
    wanted = static(3, rule("gone", "DoesNotExist"))
    verdict = disrupted(fixed("a", labels={"gone": "x"}), fixed("b"), pools=[wanted], types=BOTH)
    assert verdict.removed == set()
    assert "no replacement" in verdict.blocked("a")


def test_253_a_static_pool_with_fewer_replicas_gives_nodes_up() -> None:
    case: dict[str, Any] = {"pods": [pod_on("p", "a"), pod_on("q", "b"), pod_on("r", "b")], "types": BOTH}
    nodes = [fixed("a"), fixed("b"), fixed("c")]
    one = disrupted(*nodes, pools=[static(2, budgets=[{"nodes": "0"}])], **case)
    assert (one.command.nodes, one.command.reason) == (("c",), Reason.SCALED_DOWN)
    assert disrupted(*nodes, pools=[static(1)], **case).removed == {"a", "c"}
    assert disrupted(*nodes, pools=[static(3)], **case).removed == set()


def test_a_static_pool_is_not_scaled_down_while_a_node_of_it_is_replaced() -> None:
    nodes = [fixed("a"), fixed("b")]
    assert disrupted(*nodes, pools=[static(1)], types=BOTH, busy=["a", "claim-a"]).removed == set()


# Fallback


ORDERED = rule("node.kubernetes.io/instance-type", "In", "large", "*")


def test_a_node_of_a_fallback_tier_goes_when_the_preferred_one_has_capacity_again() -> None:
    case: dict[str, Any] = {"pods": [pod_on("p", "a")], "pools": [pool("default", ON_DEMAND, ORDERED)]}
    verdict = disrupted(small("a", tier=1), **case, types=BOTH)
    assert verdict.command.method is Method.CLIMB_BACK
    assert verdict.command.replacements[0].instance_types == ("large",)
    assert "tier 0" in verdict.command.detail
    offerings = tuple(msgspec.structs.replace(offering, available=False) for offering in LARGE.offerings)
    sold_out = msgspec.structs.replace(LARGE, offerings=offerings)
    assert disrupted(small("a", tier=1), **case, types=[SMALL, sold_out]).removed == set()


@pytest.mark.parametrize(
    "fields",
    [
        {"settings": DisruptionSettings(climb_back_s=9 * 3600)},
        {"pools": [pool("default", ON_DEMAND, ORDERED, budgets=[{"nodes": "0"}])]},
        {"histories": [NodeHistory("a", moved_in_at=NOW - 60)]},
        {"pools": [pool("default", ON_DEMAND, ORDERED, policy="WhenEmpty")]},
        {"pools": [pool("default", ON_DEMAND, ORDERED, after="Never")]},
    ],
    ids=["too young", "no budget", "pods have just been moved there", "only when empty", "never"],
)
def test_nodes_climb_back_in_their_time(fields: dict[str, Any]) -> None:
    case = {"pods": [pod_on("p", "a")], "pools": [pool("default", ON_DEMAND, ORDERED)], "types": BOTH, **fields}
    assert disrupted(small("a", tier=1), **case).removed == set()


def test_nodes_climb_back_one_at_a_time() -> None:
    verdict = disrupted(
        small("a", tier=1),
        small("b", tier=1),
        pods=[pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")],
        pools=[pool("default", ON_DEMAND, ORDERED)],
        types=BOTH,
    )
    assert verdict.removed == {"a"}


# What a decision remembers of the one before


def test_175_what_a_budget_held_back_goes_as_soon_as_it_allows() -> None:
    nights = {"nodes": "0", "schedule": "0 7 * * *", "duration": "2h"}
    case: dict[str, Any] = {"pods": [pod_on("p", "a")], "pools": [pool(budgets=[{"nodes": "100%"}, nights])]}
    held = disrupted(large("a"), types=BOTH, **case)
    assert "no allowed disruptions" in held.blocked("a") or "budget 1" in held.blocked("a")
    assert disrupted(large("a"), types=BOTH, now=NOW + 3601, **case).removed == {"a"}


@pytest.mark.parametrize(("busy", "gone"), [((), 3), (("n0",), 2)])
def test_177_drift_keeps_to_budgets_with_what_is_under_way(busy: tuple[str, ...], gone: int) -> None:
    nodes = [small(f"n{place}", labels={"gone": "x"} if place < 5 else {}) for place in range(10)]
    verdict = disrupted(
        *nodes,
        pods=[pod_on(f"p{place}", f"n{place}", cpu="3") for place in range(10)],
        pools=[pool("default", rule("gone", "DoesNotExist"), after="Never", budgets=[{"nodes": "30%"}])],
        types=BOTH,
        busy=busy,
    )
    assert len(verdict.removed) == gone


def test_177_every_pool_drifts_within_its_own_budget() -> None:
    rules = rule("gone", "DoesNotExist")
    pools = [pool(f"p{place}", rules, after="Never", budgets=[{"nodes": "1"}]) for place in range(10)]
    nodes = [small(f"n{p}-{place}", pool=f"p{p}", labels={"gone": "x"}) for p in range(10) for place in range(2)]
    bound = [pod_on(f"p-{item.node.metadata.name}", item.node.metadata.name, cpu="3") for item in nodes]
    assert len(disrupted(*nodes, pods=bound, pools=pools, types=BOTH).removed) == 10


@pytest.mark.parametrize(("after", "used"), [("60s", False), ("Never", True)])
def test_195_a_node_that_has_not_settled_takes_no_moved_pods(after: str, used: bool) -> None:
    verdict = disrupted(
        large("a"),
        large("b", pool="fresh"),
        pods=[pod_on("p", "a"), pod_on("q", "b")],
        pools=[pool("default", ON_DEMAND), pool("fresh", ON_DEMAND, after=after)],
        types=[LARGE],
        histories=[NodeHistory("b", last_pod_event_at=NOW - 10)],
    )
    assert (verdict.removed == {"a"}) is used


def test_195_a_new_node_may_take_what_an_unsettled_one_may_not() -> None:
    verdict = disrupted(
        large("a"),
        large("b", pool="fresh"),
        pods=[pod_on("p", "a"), pod_on("q", "b")],
        pools=[pool("default", ON_DEMAND), pool("fresh", ON_DEMAND, after="60s")],
        types=BOTH,
        histories=[NodeHistory("b", last_pod_event_at=NOW - 10)],
    )
    assert verdict.removed == {"a"}
    assert len(verdict.command.replacements) == 1


GUARDED = pod_on("guarded", "a", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
LABELLED = pod_on("labelled", "a", metadata={"labels": {"app": "db"}})


@pytest.mark.parametrize(
    ("then", "fields"),
    [
        ([pod_on("p", "a"), GUARDED], {}),
        ([pod_on("p", "a"), LABELLED], {"budgets": [pdb("db", 0, app="db")]}),
        ([pod_on("p", "a"), *pods(4, "more", node="a", cpu="3")], {}),
        ([pod_on("p", "a"), pod_on("waits", cpu="10")], {}),
        ([pod_on("p", "a")], {"types": [LARGE]}),
    ],
    ids=["do-not-disrupt", "blocking budget", "more pods", "nominated", "the cheaper type is gone"],
)
def test_199_what_no_longer_holds_at_the_second_look_is_not_begun(then: list[Pod], fields: dict[str, Any]) -> None:
    case: dict[str, Any] = {"pools": [pool("default", ON_DEMAND)], "types": BOTH}
    first = disrupted(large("a"), pods=[pod_on("p", "a")], **case)
    assert first.removed == {"a"}
    _, known = confirmed((), first.commands, NOW)
    assert confirmed(known, first.commands, NOW + 60)[0] == first.commands
    again = disrupted(large("a"), pods=then, **{**case, **fields}, now=NOW + 60)
    assert confirmed(known, again.commands, NOW + 60)[0] == ()


def test_203_of_two_equal_nodes_the_one_whose_disruption_costs_less_goes() -> None:
    verdict = disrupted(
        large("a"), large("b"), pods=[pod_on("p", "a"), pod_on("q", "a"), pod_on("r", "b")], types=[LARGE]
    )
    assert verdict.command.nodes == ("b",)


def test_205_a_node_that_pods_of_a_leaving_node_will_use_stays() -> None:
    verdict = disrupted(
        large("leaves", deleting=True),
        large("takes"),
        pods=[pod_on("p", "leaves"), pod_on("q", "takes")],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
    )
    assert verdict.removed == set()
    assert "nominated" in verdict.blocked("takes")


@pytest.mark.parametrize(("policy", "goes"), [("Respect", False), ("Ignore", True)])
def test_207_a_preference_can_keep_a_node_unless_preferences_are_ignored(policy: str, goes: bool) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    away = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    }
    apart: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "spec": {"affinity": away}}
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p", "a", **apart), pod_on("q", "b", **apart)],
        pools=[pool("default", ON_DEMAND)],
        types=[LARGE],
        scheduling_settings=SchedulingSettings(preference_policy=policy),
    )
    assert bool(verdict.removed) is goes
