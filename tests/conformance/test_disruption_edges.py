"""The harder half of the disruption scenarios: who protects what from whom, where moved pods may go, what counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.snapshot import SchedulingSettings
from tests.builders.claims import node_claim
from tests.builders.nodes import node as foreign_node
from tests.builders.pods import pod_on
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
from tests.conformance.given import NOW, claim_volumes, pv, pvc

MIRROR = {"ownerReferences": [{"kind": "Node", "name": "a", "uid": "node-a", "controller": True}]}
DAEMON = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}
STATEFUL = {"ownerReferences": [{"kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}]}
REPLICA = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]}
ENDING = {"deletionTimestamp": rfc3339(NOW - 5)}


def guarded(name: str, node: str = "a", value: str = "true", **fields: Any) -> Pod:
    meta = {"annotations": {"karpenter.sh/do-not-disrupt": value}, **fields.pop("metadata", {})}
    return pod_on(name, node, metadata=meta, **fields)


# Who is protected, and from what


@pytest.mark.parametrize(
    ("protected", "goes"),
    [
        (guarded("g", metadata=MIRROR), False),
        (guarded("g", metadata=DAEMON), False),
        (guarded("g", metadata=ENDING), True),
        (guarded("g", status={"phase": "Succeeded"}), True),
        (guarded("g", status={"phase": "Failed"}), True),
        (guarded("g", value="yes"), True),
        (guarded("g", value="-5m"), True),
        (guarded("g", value="0s"), True),
        (guarded("g", value="5m", status={"phase": "Running", "startTime": rfc3339(NOW - 301)}), True),
        (guarded("g", value="5m", status={"phase": "Running", "startTime": rfc3339(NOW - 299)}), False),
        (guarded("g", value="1h30m", status={"phase": "Running"}), False),
        (guarded("g", value="5", status={"phase": "Running", "startTime": rfc3339(NOW)}), True),
    ],
    ids=[
        "mirror",
        "daemon",
        "ending",
        "done",
        "failed",
        "a word",
        "negative",
        "zero",
        "over",
        "not yet",
        "no start",
        "5",
    ],
)
@pytest.mark.parametrize("drifts", [False, True])
def test_which_annotated_pods_keep_their_node(protected: Pod, *, goes: bool, drifts: bool) -> None:
    node = large("a", labels={"gone": "x"} if drifts else {})
    wanted = pool("default", ON_DEMAND, rule("gone", "DoesNotExist"))
    verdict = disrupted(node, pods=[pod_on("p", "a"), protected], pools=[wanted], types=BOTH)
    assert (verdict.removed == {"a"}) is goes
    assert goes or "do-not-disrupt" in verdict.blocked("a")


@pytest.mark.parametrize(
    ("covered", "goes"),
    [
        (pod_on("g", "a", metadata={"labels": {"app": "db"}}), False),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}, **DAEMON}), False),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}, **MIRROR}), True),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}, **ENDING}), True),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}}, status={"phase": "Succeeded"}), True),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}, "namespace": "elsewhere"}), True),
        (pod_on("g", "a", metadata={"labels": {"app": "db"}}, tolerations=[{"operator": "Exists"}]), True),
    ],
    ids=["plain", "daemon", "mirror", "ending", "done", "other namespace", "tolerates"],
)
def test_which_pods_a_blocking_budget_covers(covered: Pod, *, goes: bool) -> None:
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a"), covered],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
        budgets=[pdb("db", 0, app="db")],
    )
    assert (verdict.removed == {"a"}) is goes


@pytest.mark.parametrize("how", ["annotation", "budget"])
@pytest.mark.parametrize(
    ("drifts", "grace", "goes"), [(False, None, False), (False, "5m", False), (True, None, False), (True, "5m", True)]
)
def test_a_deadline_opens_the_way_for_drift_and_for_nothing_that_saves_money(
    how: str, grace: str | None, *, drifts: bool, goes: bool
) -> None:
    protected = guarded("g") if how == "annotation" else pod_on("g", "a", metadata={"labels": {"app": "db"}})
    verdict = disrupted(
        large("a", labels={"gone": "x"} if drifts else {}),
        pods=[pod_on("p", "a"), protected],
        pools=[pool("default", ON_DEMAND, rule("gone", "DoesNotExist"), grace=grace)],
        types=BOTH,
        budgets=[pdb("db", 0, app="db")],
    )
    assert (verdict.removed == {"a"}) is goes


@pytest.mark.parametrize("with_volumes", [False, True])
@pytest.mark.parametrize(
    ("status", "grace", "goes"),
    [
        ({"disruptionsAllowed": 1, "observedGeneration": 1}, None, False),
        ({"disruptionsAllowed": 1, "observedGeneration": 1}, "5m", True),
        ({"disruptionsAllowed": 1, "observedGeneration": 2}, None, True),
    ],
    ids=["older than its spec", "older, with a deadline", "of its spec"],
)
def test_pods_whose_spec_of_a_budget_forbids_what_its_status_allows_move_with_their_node(
    status: dict[str, int], grace: str | None, *, goes: bool, with_volumes: bool
) -> None:
    """A node that goes leaves no pod of its own without a place, whatever a budget says of later evictions."""
    budget = msgspec.convert(
        {
            "metadata": {"name": "db", "namespace": "default", "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "db"}}, "maxUnavailable": 0},
            "status": status,
        },
        PodDisruptionBudget,
    )
    spec = claim_volumes("data") if with_volumes else {}
    verdict = disrupted(
        large("a", labels={"gone": "x"}),
        pods=[pod_on("g", "a", metadata={"labels": {"app": "db"}}, spec=spec)],
        pools=[pool("default", ON_DEMAND, rule("gone", "DoesNotExist"), grace=grace)],
        types=BOTH,
        budgets=[budget],
        volume_claims=[pvc("data", volume="disk")],
        volumes=[pv("disk")],
    )
    moved = [item.name for command in verdict.commands for claim in command.replacements for item in claim.pods]
    assert (verdict.removed, moved) == (({"a"}, ["g"]) if goes else (set(), []))
    assert goes or "status is older than its spec" in verdict.blocked("a")


@pytest.mark.parametrize("with_volumes", [False, True])
def test_consolidation_removes_no_node_whose_guarded_pod_has_no_other_place(*, with_volumes: bool) -> None:
    spec = claim_volumes("data") if with_volumes else {}
    verdict = disrupted(
        small("a"),
        pods=[pod_on("g", "a", cpu="3", metadata={"labels": {"app": "db"}}, spec=spec)],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH[:1],
        budgets=[pdb("db", 1, app="db")],
        volume_claims=[pvc("data", volume="disk")],
        volumes=[pv("disk")],
    )
    assert verdict.removed == set()


def test_the_longest_duration_of_all_pods_counts() -> None:
    started = {"phase": "Running", "startTime": rfc3339(NOW - 600)}
    two = [guarded("g", value="5m", status=started), guarded("h", value="20m", status=started)]
    case: dict[str, Any] = {"pods": two, "pools": [pool("default", ON_DEMAND)], "types": BOTH}
    assert disrupted(large("a"), **case).removed == set()
    assert disrupted(large("a"), **case, now=NOW + 601).removed == {"a"}


# What makes a node empty


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (pod_on("p", "a", metadata={**REPLICA, **ENDING}), Reason.EMPTY),
        (pod_on("p", "a", metadata={**STATEFUL, **ENDING}), Reason.UNDERUTILIZED),
        (pod_on("p", "a", metadata=DAEMON), Reason.EMPTY),
        (pod_on("p", "a", metadata=MIRROR), Reason.EMPTY),
        (pod_on("p", "a", status={"phase": "Succeeded"}), Reason.EMPTY),
        (pod_on("p", "a"), Reason.UNDERUTILIZED),
    ],
    ids=["ending", "ending of a StatefulSet", "daemon", "mirror", "done", "bare"],
)
def test_what_makes_a_node_empty(left: Pod, reason: Reason) -> None:
    verdict = disrupted(large("a"), pods=[left], pools=[pool("default", ON_DEMAND)], types=BOTH)
    assert verdict.command.reason is reason


def test_pods_that_cost_nothing_to_move_leave_a_node_empty_and_are_counted() -> None:
    cheap = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483647"}}
    wanted = pool("default", ON_DEMAND, policy="WhenEmpty")
    verdict = disrupted(large("a"), pods=[pod_on("p", "a", metadata=cheap)], pools=[wanted], types=BOTH)
    assert (verdict.command.reason, verdict.command.moved) == (Reason.EMPTY, 1)


def test_an_empty_node_that_has_drifted_too_goes_once() -> None:
    wanted = pool("default", rule("gone", "DoesNotExist"))
    verdict = disrupted(large("a", labels={"gone": "x"}), pools=[wanted], types=BOTH)
    assert verdict.command.nodes == ("a",)
    assert verdict.command.replacements == ()


def test_the_pods_of_a_drifted_node_have_no_home_on_an_empty_one_that_goes_now() -> None:
    wanted = pool("default", rule("gone", "DoesNotExist"), ON_DEMAND)
    nodes = [large("a", labels={"gone": "x"}), large("b")]
    verdict = disrupted(*nodes, pods=[pod_on("p", "a")], pools=[wanted], types=BOTH)
    assert verdict.removed == {"a", "b"}
    (drifted,) = [command for command in verdict.commands if command.nodes == ("a",)]
    assert (len(drifted.replacements), drifted.placements) == (1, ())


def test_a_node_that_takes_the_pods_of_an_expired_one_drifts_later() -> None:
    wanted = pool("default", rule("gone", "DoesNotExist"), ON_DEMAND, expire_after="1h")
    expired = large("a", created_at=NOW - 3700)
    drifted = large("b", created_at=NOW - 60, labels={"gone": "x"})
    bound = [pod_on("p", "a"), pod_on("q", "b")]
    verdict = disrupted(expired, drifted, pods=bound, pools=[wanted], types=BOTH)
    assert verdict.command.nodes == ("a",)
    assert [place.name for place in verdict.command.placements] == ["b"]
    assert verdict.blocked("b") == "pods of nodes that go now are moved first"


def test_no_pod_goes_to_a_node_of_a_static_pool_that_is_being_replaced() -> None:
    moving = pool("default", rule("gone", "DoesNotExist"), ON_DEMAND)
    static = pool("fixed", rule("gone", "DoesNotExist"), ON_DEMAND, replicas=1)
    nodes = [large("a", labels={"gone": "x"}), large("b", pool="fixed", labels={"gone": "x"})]
    verdict = disrupted(*nodes, pods=[pod_on("p", "a"), pod_on("q", "b")], pools=[moving, static], types=BOTH)
    assert verdict.removed == {"a", "b"}
    assert [command.placements for command in verdict.commands] == [(), ()]


@pytest.mark.parametrize(("policy", "after"), [("WhenEmpty", "0s"), ("WhenEmptyOrUnderutilized", "Never")])
def test_drift_does_not_ask_for_the_consolidation_policy(policy: str, after: str) -> None:
    wanted = pool("default", rule("gone", "DoesNotExist"), policy=policy, after=after)
    verdict = disrupted(
        large("a", labels={"gone": "x"}),
        large("b", labels={"gone": "x"}),
        pods=[pod_on("p", "a")],
        pools=[wanted],
        types=BOTH,
    )
    assert verdict.removed == {"a", "b"}


@pytest.mark.parametrize(
    ("policy", "after", "words"),
    [("WhenEmpty", "0s", "WhenEmpty"), ("WhenEmptyOrUnderutilized", "Never", "consolidation disabled")],
)
def test_a_node_that_may_not_be_consolidated_says_why(policy: str, after: str, words: str) -> None:
    verdict = disrupted(
        large("a"), pods=[pod_on("p", "a")], pools=[pool("default", policy=policy, after=after)], types=BOTH
    )
    assert verdict.removed == set()
    assert words in verdict.blocked("a")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("node.kubernetes.io/instance-type", "type"),
        ("topology.kubernetes.io/zone", "zone"),
        ("karpenter.sh/capacity-type", "capacity"),
    ],
)
def test_a_node_without_its_labels_is_not_consolidated_and_says_why(label: str, words: str) -> None:
    verdict = disrupted(
        large("a", labels={label: ""}), pods=[pod_on("p", "a")], pools=[pool("default", ON_DEMAND)], types=BOTH
    )
    assert words in verdict.blocked("a") or verdict.command.reason is Reason.DRIFTED


# Where moved pods may go


def test_pods_do_not_move_onto_a_node_that_is_not_initialized() -> None:
    fresh = small("fresh", initialized=False, state=ClaimState.REGISTERED)
    verdict = disrupted(
        small("a"), fresh, pods=[pod_on("p", "a", cpu="3")], pools=[pool("default", ON_DEMAND)], types=[SMALL]
    )
    assert verdict.removed == set()


def test_a_node_of_somebody_else_hides_none_that_is_not_initialized() -> None:
    foreign = standing("0", pool="", claimed=False, cpu="0")
    wanted = pool("default", rule("gone", "DoesNotExist"), ON_DEMAND)
    coming = large("b", state=ClaimState.REGISTERED, initialized=False)
    nodes = [foreign, large("a", labels={"gone": "x"}), coming]
    verdict = disrupted(*nodes, pods=[pod_on("p", "a")], pools=[wanted], types=BOTH)
    assert (len(verdict.command.replacements), verdict.command.placements) == (1, ())


def test_pods_move_onto_room_of_others() -> None:
    theirs = Standing(foreign_node("theirs", cpu="8", memory="16Gi"), None)
    verdict = disrupted(
        small("a"), theirs, pods=[pod_on("p", "a", cpu="3")], pools=[pool("default", ON_DEMAND)], types=[SMALL]
    )
    assert verdict.removed == {"a"}
    assert verdict.command.replacements == ()
    assert [place.name for place in verdict.command.placements] == ["theirs"]


@pytest.mark.parametrize("fields", [{"cordoned": True}, {"ready": False}, {"deleting": True}])
def test_pods_do_not_move_onto_a_node_that_takes_none(fields: dict[str, Any]) -> None:
    taints = [] if "ready" not in fields else [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    shut = small("shut", taints=taints, **fields)
    verdict = disrupted(
        small("a"),
        shut,
        pods=[pod_on("p", "a", cpu="3"), pod_on("q", "shut", cpu="500m")],
        pools=[pool("default", ON_DEMAND)],
        types=[SMALL],
    )
    assert "a" not in verdict.removed


def test_a_pod_that_waits_for_ever_holds_nothing_up() -> None:
    impossible = pod_on("never", selector={"no-such": "label"})
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p", "a"), pod_on("q", "b"), impossible],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
    )
    assert verdict.removed == {"a", "b"}


def test_a_node_whose_pod_fits_nowhere_else_stays() -> None:
    pinned = pod_on("p", "a", selector={"only": "here"})
    verdict = disrupted(
        large("a", labels={"only": "here"}),
        large("b"),
        pods=[pinned, pod_on("q", "b")],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
    )
    assert verdict.removed == {"b"}
    assert "default/p" in verdict.blocked("a")


def test_a_broken_pool_stops_nobody() -> None:
    broken = pool("broken", rule("node.kubernetes.io/instance-type", "In", "no-such-type"))
    verdict = disrupted(large("a"), pods=[pod_on("p", "a")], pools=[pool("default", ON_DEMAND), broken], types=BOTH)
    assert verdict.removed == {"a"}


def spread(zone: str, place: int) -> list[Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    name = f"n{place}"
    body = pod_on(
        f"p{place}", name, metadata={"labels": {"app": "web"}}, spec={"topologySpreadConstraints": [constraint]}
    )
    return [large(name, zone=zone), body]


def test_a_replacement_keeps_the_spread_over_zones() -> None:
    placed = [spread(zone, place) for place, zone in enumerate((Z1, Z2, Z3))]
    verdict = disrupted(
        *(item[0] for item in placed), pods=[item[1] for item in placed], pools=[pool("default", ON_DEMAND)], types=BOTH
    )
    assert verdict.removed == {"n0", "n1", "n2"}
    zones = set()
    for claim in (claim for command in verdict.commands for claim in command.replacements):
        (entry,) = (entry for entry in claim.requirements if entry.key == "topology.kubernetes.io/zone")
        assert len(entry.values) == 1
        zones |= set(entry.values)
    assert zones == {Z1, Z2, Z3}


def test_pods_that_shun_each_other_keep_a_node_each() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    apart: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
    }
    verdict = disrupted(
        *(small(f"n{place}") for place in range(3)),
        pods=[pod_on(f"p{place}", f"n{place}", **apart) for place in range(3)],
        pools=[pool("default", ON_DEMAND)],
        types=[SMALL],
    )
    assert verdict.removed == set()


# Several nodes, one replacement


@pytest.mark.parametrize("kinds", [("on-demand",) * 3, ("spot",) * 3, ("spot", "on-demand", "spot")])
def test_three_nodes_become_one(kinds: Sequence[str]) -> None:
    dear = fake_type("dear", cpu="4", memory="8Gi", pods="20", price=2.0)
    wide = fake_type("wide", cpu="16", memory="32Gi", pods="50", price=3.0)
    nodes = [
        standing(f"n{place}", "dear", capacity_type=kind, cpu="3900m", memory="8000Mi")
        for place, kind in enumerate(kinds)
    ]
    verdict = disrupted(
        *nodes, pods=[pod_on(f"p{place}", f"n{place}", cpu="3") for place in range(3)], types=[dear, wide]
    )
    assert verdict.removed == {"n0", "n1", "n2"}
    assert [claim.instance_types for claim in verdict.command.replacements] == [("wide",)]


def test_two_nodes_do_not_become_one_of_their_own_type() -> None:
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p", "a", cpu="6"), pod_on("q", "b", cpu="6")],
        pools=[pool("default", ON_DEMAND)],
        types=[LARGE],
    )
    assert len(verdict.removed) == 1
    assert verdict.command.replacements == ()


@pytest.mark.parametrize("policy", ["Strict", "BestEffort"])
def test_min_values_are_not_given_up_to_save_money(policy: str) -> None:
    third = fake_type("third", cpu="16", memory="32Gi", pods="50", price=5.0)
    kinds = rule("node.kubernetes.io/instance-type", "In", "small", "large", "third", min_values=2)
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", ON_DEMAND, kinds)],
        types=[SMALL, LARGE, third],
        scheduling_settings=SchedulingSettings(min_values_policy=policy),
    )
    assert verdict.removed == set()


# What counts


@pytest.mark.parametrize(
    ("others", "gone"),
    [
        ([], 1),
        ([{"ready": False}], 0),
        ([{"initialized": False, "state": ClaimState.REGISTERED}], 1),
        ([{"state": ClaimState.DRAINING}], 0),
        ([{"deleting": True}], 0),
        ([{"claimed": False}], 1),
    ],
    ids=["none", "not ready", "not initialized", "draining", "deleting", "nobody's"],
)
def test_what_uses_up_a_budget(others: list[dict[str, Any]], gone: int) -> None:
    busy = [small(f"other-{place}", **fields) for place, fields in enumerate(others)]
    bound = [pod_on(f"o{place}", f"other-{place}") for place in range(len(others))]
    verdict = disrupted(small("a"), *busy, pods=bound, pools=[pool(budgets=[{"nodes": "1"}])], types=BOTH)
    assert len(verdict.removed) == gone


def test_a_budget_of_one_reason_leaves_the_others_alone() -> None:
    case: dict[str, Any] = {"pods": [pod_on("p", "b")], "types": BOTH}
    nodes = [large("a"), large("b")]
    no_empty = pool("default", ON_DEMAND, budgets=[{"nodes": "0", "reasons": ["Empty"]}, {"nodes": "100%"}])
    verdict = disrupted(*nodes, pools=[no_empty], **case)
    assert verdict.removed == {"b"}
    assert "budgets[0] of" in verdict.blocked("a")
    no_moves = pool("default", ON_DEMAND, budgets=[{"nodes": "0", "reasons": ["Underutilized"]}])
    assert disrupted(*nodes, pools=[no_moves], **case).removed == {"a"}


def test_deletion_cost_and_priority_weigh_pods() -> None:
    cheap = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483647"}}
    verdict = disrupted(
        large("a"),
        large("b"),
        pods=[pod_on("p", "a", priority=1_000_000_000), pod_on("q", "b", metadata=cheap), pod_on("r", "b")],
        types=[LARGE],
    )
    assert verdict.command.nodes == ("b",)


@pytest.mark.parametrize("value", ["nonsense", "1e3", ""])
def test_a_deletion_cost_that_is_no_number_counts_as_none(value: str) -> None:
    odd = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": value}}
    verdict = disrupted(
        large("a"), pods=[pod_on("p", "a", metadata=odd)], pools=[pool("default", ON_DEMAND)], types=BOTH
    )
    assert verdict.removed == {"a"}


# Static pools


def limited(wanted: NodePool, nodes: int) -> NodePool:
    """The same pool with a limit of so many nodes."""
    return replace(wanted, spec=replace(wanted.spec, limits={"nodes": nodes}))


def test_static_nodes_are_replaced_only_as_far_as_the_limit_leaves_room() -> None:
    wanted = pool("fixed", ON_DEMAND, rule("gone", "DoesNotExist"), replicas=2, after="Never")
    nodes = [small(f"n{place}", pool="fixed", labels={"gone": "x"}) for place in range(2)]
    verdict = disrupted(*nodes, pools=[limited(wanted, 3)], types=BOTH)
    assert len(verdict.removed) == 1
    assert verdict.command.method is Method.STATIC_DRIFT


@pytest.mark.parametrize(("nodes", "gone"), [(2, set()), (3, {"old"}), (4, {"old", "other"})])
def test_what_expires_and_what_drifts_share_the_limit_of_a_static_pool(nodes: int, gone: set[str]) -> None:
    wanted = pool("fixed", ON_DEMAND, rule("gone", "DoesNotExist"), replicas=2, expire_after="9h", after="Never")
    verdict = disrupted(
        small("old", pool="fixed", created_at=NOW - 10 * 3600),
        small("other", pool="fixed", labels={"gone": "x"}),
        pools=[limited(wanted, nodes)],
        types=BOTH,
    )
    assert verdict.removed == gone
    assert len({claim.name for command in verdict.commands for claim in command.replacements}) == len(gone)


@pytest.mark.parametrize("with_volumes", [False, True])
def test_an_empty_node_that_goes_counts_for_its_limit_until_it_is_gone(*, with_volumes: bool) -> None:
    """One large node is worth two small ones, for which there would be room only if the empty node were gone."""
    names = ("p", "q")
    spec = {name: claim_volumes(f"data-{name}") if with_volumes else {} for name in names}
    case: dict[str, Any] = {
        "pods": [pod_on(name, "a", cpu="3", spec=spec[name]) for name in names],
        "types": BOTH,
        "volume_claims": [pvc(f"data-{name}", volume=f"disk-{name}") for name in names],
        "volumes": [pv(f"disk-{name}") for name in names],
    }
    plain = pool("default", ON_DEMAND)
    assert disrupted(large("a"), small("e"), **case, pools=[plain]).removed == {"a", "e"}
    assert disrupted(large("a"), small("e"), **case, pools=[limited(plain, 2)]).removed == {"e"}


@pytest.mark.parametrize(
    ("limits", "commands"),
    [
        ({"nodes": "2"}, [{"empty", "left"}, {"other"}]),
        ({"nodes": "3"}, [{"empty"}, {"left"}, {"other"}]),
        ({"cpu": "8"}, [{"empty", "left"}, {"other"}]),
        ({"cpu": "12"}, [{"empty"}, {"left"}, {"other"}]),
        ({"cpu": "4"}, [{"empty"}, {"other"}]),
        ({}, [{"empty"}, {"left"}, {"other"}]),
    ],
)
def test_what_a_limit_allows_only_without_another_node_goes_together_with_that_node(
    limits: dict[str, str], commands: list[set[str]]
) -> None:
    """A replacement of the preferred pool has room only once an empty node of it is gone, which may be kept."""
    changed = rule("gone", "DoesNotExist")
    preferred = pool("a", ON_DEMAND, changed, weight=10, limits=limits, after="Never")
    retired = pool("b", ON_DEMAND, changed, rule("size", "In", "none"), after="Never")
    outdated = {"labels": {"gone": "x"}}
    verdict = disrupted(
        small("kept", pool="a"),
        small("empty", pool="a", **outdated),
        small("left", pool="b", **outdated),
        small("other", pool="b", **outdated),
        pods=[pod_on("p", "kept", cpu="3"), pod_on("q", "left", cpu="3")],
        pools=[preferred, retired],
        types=(SMALL,),
    )
    assert [set(command.nodes) for command in verdict.commands] == commands


@pytest.mark.parametrize("with_volumes", [False, True])
def test_what_is_on_its_way_counts_for_its_limit(*, with_volumes: bool) -> None:
    """One large node is worth two small ones, for which there is no room beside the one that is being launched."""
    names = ("p", "q")
    spec = {name: claim_volumes(f"data-{name}") if with_volumes else {} for name in names}
    known = small("e").claim
    assert known is not None
    case: dict[str, Any] = {
        "pods": [pod_on(name, "a", cpu="3", spec=spec[name]) for name in names],
        "types": BOTH,
        "volume_claims": [pvc(f"data-{name}", volume=f"disk-{name}") for name in names],
        "volumes": [pv(f"disk-{name}") for name in names],
        "coming": [replace(known, name="coming", node_name="", state=ClaimState.LAUNCHED)],
    }
    plain = pool("default", ON_DEMAND)
    assert disrupted(large("a"), **case, pools=[limited(plain, 3)]).removed == {"a"}
    assert disrupted(large("a"), **case, pools=[limited(plain, 2)]).removed == set()


def test_pods_of_static_nodes_may_move_and_others_may_move_there() -> None:
    fixed = pool("fixed", ON_DEMAND, replicas=1, after="0s")
    verdict = disrupted(
        small("s", pool="fixed"),
        small("a"),
        pods=[pod_on("p", "a")],
        pools=[fixed, pool("default", ON_DEMAND)],
        types=BOTH,
    )
    assert verdict.removed == {"a"}
    assert verdict.command.replacements == ()


# Time


def test_a_node_of_a_patient_pool_is_taken_when_its_time_has_come() -> None:
    case: dict[str, Any] = {
        "pods": [pod_on("p", "a")],
        "pools": [pool("default", ON_DEMAND, after="10m")],
        "types": BOTH,
    }
    history = [NodeHistory("a", initialized_at=NOW - 599, last_pod_event_at=NOW - 5000)]
    assert disrupted(large("a"), **case, histories=history).removed == set()
    assert disrupted(large("a"), **case, histories=history, now=NOW + 1).removed == {"a"}


def test_expiry_counts_from_the_claim_and_not_from_the_node() -> None:
    wanted = pool(expire_after="1h", policy="WhenEmpty")
    old_claim = small("a", created_at=NOW - 3700, born=rfc3339(NOW - 60))
    old_node = small("b", created_at=NOW - 60, born=rfc3339(NOW - 9000))
    bound = [pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")]
    assert disrupted(old_claim, old_node, pods=bound, pools=[wanted], types=BOTH).removed == {"a"}


@pytest.mark.parametrize("drifts", [False, True])
def test_a_node_whose_command_was_given_up_rests_and_the_others_go_on(*, drifts: bool) -> None:
    nodes = [large(name, labels={"gone": "x"} if drifts else {}) for name in ("a", "b")]
    case: dict[str, Any] = {
        "pods": [pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")],
        "pools": [pool("default", ON_DEMAND, rule("gone", "DoesNotExist"))],
        "types": BOTH,
    }
    histories = [NodeHistory("a", undone_at=NOW - 60, undone=1)]
    verdict = disrupted(*nodes, **case, histories=histories)
    assert verdict.removed == {"b"}
    assert "given up 60 s ago" in verdict.blocked("a")
    assert "a" in disrupted(*nodes, **case, histories=histories, now=NOW + 840).removed
    assert "a" not in disrupted(*nodes, **case, histories=histories, now=NOW + 839).removed
    assert disrupted(large("a"), pools=case["pools"], types=BOTH, histories=histories).removed == {"a"}  # it is empty


# Spot


@pytest.mark.parametrize(("least", "listed"), [(16, 16), (5, 15)])
def test_min_values_lengthen_the_list_of_a_spot_replacement(least: int, listed: int) -> None:
    kinds = rule("node.kubernetes.io/instance-type", "Exists", min_values=least)
    verdict = disrupted(
        standing("a", "t29", capacity_type="spot", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", kinds)],
        types=ladder(30),
    )
    assert verdict.command.replacements[0].instance_types == tuple(f"t{place:02}" for place in range(listed))


def test_a_spot_node_among_the_fifteen_cheapest_stays() -> None:
    verdict = disrupted(
        standing("a", "t14", capacity_type="spot", cpu="3900m", memory="8000Mi"),
        pods=[pod_on("p", "a")],
        types=ladder(40),
    )
    assert verdict.removed == set()
    assert "15 cheaper instance type" in verdict.blocked("a")


def test_several_spot_nodes_become_one_without_fifteen_types() -> None:
    wide = fake_type("wide", cpu="16", memory="32Gi", pods="50", price=3.0, offerings=(("spot", Z1),))
    dear = fake_type("dear", cpu="4", memory="8Gi", pods="20", price=2.0, offerings=(("spot", Z1),))
    nodes = [standing(f"n{place}", "dear", capacity_type="spot", cpu="3900m", memory="8000Mi") for place in range(3)]
    bound = [pod_on(f"p{place}", f"n{place}", cpu="3") for place in range(3)]
    assert disrupted(*nodes, pods=bound, types=[dear, wide]).removed == {"n0", "n1", "n2"}
    forbidden = DisruptionSettings(spot_to_spot=False)
    assert disrupted(*nodes, pods=bound, types=[dear, wide], settings=forbidden).removed == set()


# Balanced


def test_a_single_node_of_a_balanced_pool_may_go() -> None:
    verdict = disrupted(
        large("a"),
        large("b", pool="plain"),
        pods=[pod_on("p", "a"), pod_on("q", "b")],
        pools=[pool("default", ON_DEMAND, policy="Balanced"), pool("plain", ON_DEMAND, after="Never")],
        types=[LARGE],
    )
    assert verdict.removed == {"a"}


def test_an_expired_node_that_a_protected_pod_keeps_is_overdue_and_says_what_would_end_it() -> None:
    node = large("a", created_at=NOW - 3700)
    wanted = pool(expire_after="1h", policy="WhenEmpty")
    kept = disrupted(node, pods=[guarded("p")], pools=[wanted], types=BOTH)
    assert kept.removed == set()
    assert kept.decision.overdue == ("a",)
    assert kept.blocked("a").startswith("has expired (older than 1h) and stays because pod default/p")
    assert "terminationGracePeriod" in kept.blocked("a")
    assert "expireProtected" in kept.blocked("a")


def test_a_setting_lets_nodes_expire_in_spite_of_protected_pods_but_not_drift() -> None:
    anyway = DisruptionSettings(expire_protected=True)
    expired = pool(expire_after="1h", policy="WhenEmpty")
    node = large("a", created_at=NOW - 3700)
    verdict = disrupted(node, pods=[guarded("p")], pools=[expired], types=BOTH, settings=anyway)
    assert (verdict.removed, verdict.decision.overdue) == ({"a"}, ())
    drifts = pool("default", rule("gone", "DoesNotExist"), policy="WhenEmpty")
    drifted = large("a", labels={"gone": "x"})
    assert disrupted(drifted, pods=[guarded("p")], pools=[drifts], types=BOTH, settings=anyway).removed == set()


@pytest.mark.parametrize("state", [ClaimState.LAUNCHED, ClaimState.REGISTERED])
def test_a_node_whose_claim_is_behind_it_is_no_candidate(state: ClaimState) -> None:
    """After a restore of the table a claim may know less than its Node says."""
    verdict = disrupted(small("a", state=state), types=BOTH)
    assert verdict.commands == ()
    assert verdict.blocked("a") == "is not initialized"


@pytest.mark.parametrize(("behind", "removed"), [(True, {"old"}), (False, set())])
def test_a_claim_that_has_not_heard_of_its_node_counts_once_towards_limits(behind: bool, removed: set[str]) -> None:
    """Without the large node the limit has room for two small ones: one that is there, and one more."""
    stays = {"karpenter.sh/do-not-disrupt": "true"}
    joined = small("new", labels={"karpenter.sh/nodeclaim": "launched"} if behind else {}, annotations=stays)
    launched = node_claim(name="launched", state=ClaimState.LAUNCHED, instance_types=("small",), created_at=NOW - 60)
    verdict = disrupted(
        large("old"),
        Standing(joined.node, None if behind else joined.claim),
        pools=[pool("default", ON_DEMAND, limits={"cpu": "10"})],
        types=BOTH,
        pods=[pod_on("small", "old"), pod_on("full", "new", cpu="3800m")],
        coming=[launched],
    )
    assert verdict.removed == removed


# Which nodes are looked at


def test_a_node_of_somebody_else_hides_none_of_ours() -> None:
    others = Standing(foreign_node("a"), None)
    verdict = disrupted(others, small("b"), pools=[pool("default", ON_DEMAND)], types=BOTH)
    assert verdict.removed == {"b"}


@pytest.mark.parametrize(
    ("state", "said"),
    [(ClaimState.PLANNED, ""), (ClaimState.LAUNCHING, "has no Node yet"), (ClaimState.LAUNCHED, "has no Node yet")],
)
def test_what_has_been_asked_for_and_has_no_node_is_said(state: ClaimState, said: str) -> None:
    coming = node_claim(name="new", node_pool="default", state=state, created_at=NOW - 5)
    assert disrupted(small("b"), pools=[pool("default", ON_DEMAND)], types=BOTH, coming=[coming]).blocked("new") == said


def test_a_node_is_as_old_as_its_claim_or_else_as_its_object() -> None:
    wanted = pool("default", ON_DEMAND, expire_after="1h")
    assert wanted.spec.template.spec.expire_after == "1h"
    hour = {"pools": [wanted], "types": BOTH, "pods": [pod_on("p", "a")]}
    young = {"created_at": NOW - 3599, "born": rfc3339(NOW - 7200)}
    assert disrupted(small("a", **young), **hour).removed == set()
    unknown = {"created_at": 0.0, "born": rfc3339(NOW - 3601)}
    assert disrupted(small("a", **unknown), **hour).command.reason is Reason.EXPIRED
    assert disrupted(small("a", **unknown | {"born": rfc3339(NOW - 3599)}), **hour).removed == set()


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("node.kubernetes.io/instance-type", "lacks the label node.kubernetes.io/instance-type"),
        ("karpenter.sh/capacity-type", "lacks the label karpenter.sh/capacity-type"),
        ("topology.kubernetes.io/zone", "lacks the label topology.kubernetes.io/zone"),
    ],
)
def test_a_node_whose_label_is_lacking_is_not_consolidated(label: str, words: str) -> None:
    node = large("a", labels={label: ""}, created_at=NOW - 1800)  # too young to drift for it
    verdict = disrupted(node, pods=[pod_on("p", "a")], types=BOTH)
    assert words in verdict.blocked("a")


@pytest.mark.parametrize(("ago_s", "stays"), [(599.0, True), (600.0, False), (601.0, False)])
def test_moved_pods_stay_until_they_have_settled(ago_s: float, stays: bool) -> None:
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a")],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
        histories=[NodeHistory("a", moved_in_at=NOW - ago_s)],
        settings=DisruptionSettings(settle_s=600),
    )
    assert (verdict.removed == set()) is stays


@pytest.mark.parametrize(("ago_s", "stays"), [(59.0, True), (60.0, False)])
def test_consolidate_after_is_over_when_as_many_seconds_have_passed(ago_s: float, stays: bool) -> None:
    history = NodeHistory("a", last_pod_event_at=NOW - ago_s)
    wanted = pool("default", ON_DEMAND, after="60s")
    verdict = disrupted(large("a"), pods=[pod_on("p", "a")], pools=[wanted], types=BOTH, histories=[history])
    assert (verdict.removed == set()) is stays


@pytest.mark.parametrize("namespace", ["default", "web"])
@pytest.mark.parametrize("fits", [True, False])
def test_pods_of_any_namespace_move_or_keep_their_node(namespace: str, fits: bool) -> None:
    """Files may leave the namespace out, which means the default one."""

    def of(item: Pod) -> Pod:
        written = "" if namespace == "default" else namespace
        return replace(item, metadata=replace(item.metadata, namespace=written))

    moved = of(pod_on("p", "a", cpu="1" if fits else "3"))
    verdict = disrupted(
        small("a"),
        small("b"),
        pods=[moved, of(pod_on("q", "b", cpu="2"))],
        pools=[pool("default", ON_DEMAND)],
        types=[SMALL],
    )
    assert verdict.removed == ({"a"} if fits else set())
    if fits:
        (place,) = verdict.command.placements
        assert (place.name, [item.name for item in place.pods]) == ("b", ["p"])
