"""In which order nodes go, what a command says of money and reasons, and what is said of the nodes that stay."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.disruption.commands import Blocked, Method, Reason
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import fake_type
from tests.conformance.disruption_order import TINY, fallen, static, tiny
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, disrupted, large, small
from tests.conformance.given import NOW

GONE = rule("gone", "DoesNotExist")
DRIFTS = {"gone": "x"}


def one_at_a_time(*rules: Any, **fields: Any) -> NodePool:
    return pool("default", *rules, budgets=[{"nodes": "1"}], **fields)


# Empty nodes


def test_the_dearest_empty_node_goes_first_and_names_break_ties() -> None:
    nodes = [small("a"), large("c"), large("b")]
    first = disrupted(*nodes, pools=[one_at_a_time(ON_DEMAND)], types=BOTH)
    assert (first.command.nodes, first.command.method) == (("b",), Method.EMPTINESS)
    two = disrupted(*nodes, pools=[pool("default", ON_DEMAND, budgets=[{"nodes": "2"}])], types=BOTH)
    assert two.command.nodes == ("b", "c")
    assert (two.command.savings_hourly, two.command.moved) == (8.0, 0)
    assert two.command.detail == "no pod needs them"
    assert "no allowed disruptions for Empty" in two.blocked("a")
    assert "2 go now" in two.blocked("a")
    assert "1 goes now" in first.blocked("a")


def test_money_is_said_in_millionths_of_a_dollar() -> None:
    odd = fake_type("small", cpu="4", memory="8Gi", pods="20", price=0.12345678)
    assert disrupted(small("a"), pools=[pool("default", ON_DEMAND)], types=[odd]).command.savings_hourly == 0.123457
    drifted = disrupted(
        small("a", labels=DRIFTS), pods=[pod_on("p", "a")], pools=[pool("default", ON_DEMAND, GONE)], types=[odd]
    )
    assert drifted.command.savings_hourly == 0.0
    dearer = fake_type("large", cpu="16", memory="32Gi", pods="50", price=1.98765432)
    wanted = pool("default", ON_DEMAND, rule("node.kubernetes.io/instance-type", "In", "large"))
    moved = disrupted(small("a"), pods=[pod_on("p", "a")], pools=[wanted], types=[odd, dearer])
    assert moved.command.savings_hourly == round(0.12345678 - 1.98765432, 6)
    replaced = disrupted(
        small("a", pool="fixed", labels=DRIFTS), pools=[static("fixed", 1, ON_DEMAND, GONE)], types=[odd]
    )
    assert (replaced.command.savings_hourly, len(replaced.command.replacements)) == (0.0, 1)
    cheaper = fake_type("tiny", cpu="4", memory="8Gi", pods="20", price=0.01234567)
    saving = disrupted(
        small("a", pool="fixed", labels=DRIFTS), pools=[static("fixed", 1, ON_DEMAND, GONE)], types=[odd, cheaper]
    )
    assert saving.command.savings_hourly == 0.111111


def test_what_only_cheap_pods_need_says_so() -> None:
    cheap = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483647"}}
    verdict = disrupted(
        large("a"),
        pods=[pod_on("p", "a", metadata=cheap)],
        pools=[pool("default", ON_DEMAND, policy="WhenEmpty")],
        types=BOTH,
    )
    assert verdict.command.detail == "no pod that it costs anything to move needs them"


# Drift and expiration


def test_nodes_that_go_are_not_among_those_that_stay() -> None:
    """An empty node whose pool is never consolidated goes because it has drifted."""
    verdict = disrupted(
        small("a", labels=DRIFTS), small("b"), pools=[pool("default", ON_DEMAND, GONE, after="Never")], types=BOTH
    )
    assert verdict.removed == {"a"}
    assert [entry.node for entry in verdict.decision.blocked] == ["b"]


def test_drift_is_told_apart_from_age_and_looked_for_on_every_node() -> None:
    nodes = [small("a"), small("b", labels=DRIFTS), small("c", made={"expire_after": "1h"}), small("d", labels=DRIFTS)]
    bound = [pod_on(f"p{name}", name, cpu="3") for name in "abcd"]
    verdict = disrupted(*nodes, pods=bound, pools=[pool("default", ON_DEMAND, GONE, after="Never")], types=BOTH)
    assert verdict.decision.drifted == ("b", "d")
    assert [(command.nodes, command.reason) for command in verdict.commands] == [(("c",), Reason.EXPIRED)]
    assert verdict.blocked("b") == verdict.blocked("d") == "pods of nodes that go now are moved first"


def test_nodes_of_a_pool_that_has_not_settled_keep_no_other_from_being_looked_at() -> None:
    """They do not drift yet, and age all the same."""
    pools = [pool(name, ON_DEMAND, GONE, after="Never") for name in ("a-pool", "b-pool")]
    nodes = [
        small("a", pool="a-pool", labels=DRIFTS),
        small("b", pool="b-pool", labels=DRIFTS),
        small("c", pool="a-pool", created_at=NOW - 3601, made={"expire_after": "1h"}),
    ]
    bound = [pod_on(f"p{name}", name, cpu="3") for name in "abc"]
    verdict = disrupted(*nodes, pods=bound, pools=pools, types=BOTH, unsettled=["a-pool"])
    assert verdict.decision.drifted == ("b",)
    assert [(command.nodes, command.reason) for command in verdict.commands] == [(("c",), Reason.EXPIRED)]


@pytest.mark.parametrize(
    ("histories", "created", "first"),
    [
        ({"b": 10.0, "a": 20.0}, {}, "b"),
        ({}, {"a": NOW - 7200, "b": NOW - 9000}, "b"),
        ({}, {}, "a"),
        ({"a": 10.0, "b": 10.0}, {"a": NOW - 7200, "b": NOW - 7300}, "b"),
    ],
    ids=["drifted first", "oldest", "by name", "as long, older"],
)
def test_of_drifted_nodes_those_go_first_that_have_drifted_longest_then_the_oldest(
    histories: dict[str, float], created: dict[str, float], first: str
) -> None:
    nodes = [small(name, labels=DRIFTS, created_at=created.get(name, NOW - 8000)) for name in "ab"]
    verdict = disrupted(
        *nodes,
        pods=[pod_on(f"p{name}", name, cpu="3") for name in "ab"],
        pools=[one_at_a_time(ON_DEMAND, GONE, after="Never")],
        types=BOTH,
        histories=[NodeHistory(name, drifted_at=at) for name, at in histories.items()],
    )
    assert verdict.removed == {first}


def protected(name: str, node: str) -> Any:
    return pod_on(name, node, cpu="3", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})


def test_a_protected_pod_is_the_reason_while_others_drift() -> None:
    verdict = disrupted(
        small("a", labels=DRIFTS),
        small("b", labels=DRIFTS),
        pods=[protected("p", "a"), pod_on("q", "b", cpu="3")],
        pools=[pool("default", ON_DEMAND, GONE, after="Never")],
        types=BOTH,
    )
    assert verdict.removed == {"b"}
    assert verdict.blocked("a") == "pod default/p has the annotation karpenter.sh/do-not-disrupt=true"


def expired(name: str, **fields: Any) -> Standing:
    return small(name, created_at=NOW - 3601, made={"expire_after": "1h"}, **fields)


@pytest.mark.parametrize(("anyway", "gone"), [(False, set()), (True, {"a"})])
def test_an_expired_node_with_a_protected_pod_is_overdue_unless_the_cluster_lets_it_go(
    anyway: bool, gone: set[str]
) -> None:
    verdict = disrupted(
        expired("a"),
        pods=[protected("p", "a")],
        pools=[pool("default", ON_DEMAND)],
        types=BOTH,
        settings=DisruptionSettings(expire_protected=anyway),
    )
    assert verdict.removed == gone
    assert verdict.decision.overdue == (() if anyway else ("a",))
    assert anyway or "has expired (older than 1h) and stays because pod default/p" in verdict.blocked("a")


def test_an_expired_node_is_older_than_its_time_and_not_as_old() -> None:
    wanted = {"pools": [pool("default", ON_DEMAND, after="Never")], "types": BOTH, "pods": [pod_on("p", "a")]}
    assert disrupted(small("a", created_at=NOW - 3600, made={"expire_after": "1h"}), **wanted).removed == set()
    assert disrupted(expired("a"), **wanted).command.method is Method.EXPIRATION


def test_expiration_comes_before_drift_and_they_share_a_budget() -> None:
    verdict = disrupted(
        small("a", labels=DRIFTS),
        expired("b"),
        pods=[pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")],
        pools=[one_at_a_time(ON_DEMAND, GONE, after="Never")],
        types=BOTH,
    )
    assert (verdict.removed, verdict.command.reason) == ({"b"}, Reason.EXPIRED)
    assert verdict.blocked("a") != ""


@pytest.mark.parametrize(("nodes", "gone"), [("1", {"a"}), ("2", {"a", "b"})])
def test_empty_nodes_that_expire_leave_those_that_drift_the_rest_of_a_budget(nodes: str, gone: set[str]) -> None:
    wanted = pool("default", ON_DEMAND, GONE, after="Never", expire_after="1h", budgets=[{"nodes": nodes}], limits={})
    old, young = small("a", created_at=NOW - 3700), small("b", created_at=NOW - 60, labels=DRIFTS)
    verdict = disrupted(old, young, pools=[wanted], types=BOTH)
    assert verdict.removed == gone
    assert [command.reason for command in verdict.commands] == [Reason.EXPIRED, Reason.DRIFTED][: len(gone)]


def test_of_drifted_nodes_only_those_wait_that_take_pods_of_expired_ones() -> None:
    """Without a limit, the needs of both are added up."""
    wanted = pool("default", ON_DEMAND, GONE, after="Never", expire_after="1h", limits={})
    young = {"created_at": NOW - 60, "labels": DRIFTS}
    verdict = disrupted(
        large("a", created_at=NOW - 3700),
        large("b", **young),
        small("c", **young),
        pods=[pod_on("p", "a"), pod_on("q", "b", cpu="13"), pod_on("r", "c", cpu="3")],
        pools=[wanted],
        types=BOTH,
    )
    assert verdict.removed == {"a", "c"}
    assert verdict.blocked("b") == "pods of nodes that go now are moved first"
    expired, drifted = verdict.commands
    assert ([place.name for place in expired.placements], len(expired.replacements)) == (["b"], 0)
    assert (drifted.placements, len(drifted.replacements)) == ((), 1), "what is left of b is too small"


def test_the_reasons_of_nodes_that_go_together_are_all_named() -> None:
    nodes = [small("a", labels=DRIFTS), small("b", labels={"other": "x"})]
    wanted = pool("default", ON_DEMAND, GONE, rule("other", "DoesNotExist"), after="Never")
    verdict = disrupted(*nodes, pods=[pod_on("p", "a"), pod_on("q", "b")], pools=[wanted], types=BOTH)
    assert verdict.command.nodes == ("a", "b")
    first, second = verdict.command.detail.split("; ")
    assert ("gone" in first, "other" in second) == (True, True)


def test_a_node_whose_last_command_was_given_up_rests_unless_it_is_empty() -> None:
    history = NodeHistory("a", undone_at=NOW - 60, undone=1)
    case: dict[str, Any] = {"pools": [pool("default", ON_DEMAND, GONE, after="Never")], "types": BOTH}
    used = disrupted(small("a", labels=DRIFTS), pods=[pod_on("p", "a")], histories=[history], **case)
    assert used.removed == set()
    empty = disrupted(small("a", labels=DRIFTS), histories=[history], **case)
    assert empty.removed == {"a"}


# Static pools


def test_a_static_pool_that_can_launch_nothing_does_not_hold_up_another() -> None:
    pools = [static("first", 2, GONE, ON_DEMAND), static("second", 1, GONE, ON_DEMAND)]
    nodes = [small("a", pool="first", labels=DRIFTS), small("b", pool="second", labels=DRIFTS)]
    verdict = disrupted(*nodes, pools=pools, types=BOTH)
    assert verdict.removed == {"b"}
    assert verdict.blocked("a") == "NodePool first can launch no replacement now"


def test_an_expired_node_of_a_static_pool_is_replaced_for_that() -> None:
    wanted = static("fixed", 2, GONE, ON_DEMAND)
    verdict = disrupted(expired("a", pool="fixed"), small("b", pool="fixed", labels=DRIFTS), pools=[wanted], types=BOTH)
    assert [(command.nodes, command.method) for command in verdict.commands] == [
        (("a",), Method.EXPIRATION),
        (("b",), Method.STATIC_DRIFT),
    ]
    names = [claim.name for command in verdict.commands for claim in command.replacements]
    assert len(set(names)) == 2


def test_a_surplus_node_says_what_it_saves_and_takes_no_pods_of_others() -> None:
    nodes = [small("a", pool="fixed"), small("b", pool="fixed"), small("x", labels=DRIFTS)]
    verdict = disrupted(
        *nodes,
        pods=[pod_on("p", "a", cpu="3"), pod_on("q", "x")],
        pools=[static("fixed", 1, ON_DEMAND), pool("default", ON_DEMAND, GONE, after="Never")],
        types=BOTH,
    )
    down, drift = verdict.commands
    assert (down.nodes, down.savings_hourly, down.moved) == (("b",), 1.0, 0)
    assert (down.method, down.detail) == (Method.SCALE_DOWN, "NodePool fixed has more than 1 replicas")
    assert "b" not in {place.name for place in drift.placements}


# What counts against a budget


@pytest.mark.parametrize(
    ("other", "busy", "gone"),
    [
        (small("b"), [], {"a"}),
        (small("b", ready=False), [], set()),
        (small("b", state=ClaimState.DRAINING), [], set()),
        (small("b", state=ClaimState.DISRUPTING), ["b"], set()),
    ],
    ids=["in service", "not ready", "leaving", "in a command"],
)
def test_a_node_that_is_out_of_service_uses_up_a_budget(other: Standing, busy: list[str], gone: set[str]) -> None:
    verdict = disrupted(
        small("a", labels=DRIFTS),
        other,
        pods=[pod_on("p", "a", cpu="3"), pod_on("q", "b", cpu="3")],
        pools=[one_at_a_time(ON_DEMAND, GONE, after="Never")],
        types=BOTH,
        busy=busy,
    )
    assert verdict.removed == gone


# Fallback tiers


@pytest.mark.parametrize(("age_s", "gone"), [(3599.0, set()), (3600.0, {"a"})])
def test_a_node_climbs_back_when_it_is_as_old_as_settings_say(age_s: float, gone: set[str]) -> None:
    assert fallen(small("a", tier=1, created_at=NOW - age_s)).removed == gone


@pytest.mark.parametrize(("second", "climbs"), [("small", True), ("tiny", False)])
def test_a_node_climbs_back_only_if_all_its_pods_get_a_better_tier(second: str, climbs: bool) -> None:
    kinds = {"p": "large", "q": second}
    pods = [pod_on(name, "a", cpu="1", selector={labels.INSTANCE_TYPE: kind}) for name, kind in kinds.items()]
    odd = fake_type("small", cpu="4", memory="8Gi", pods="20", price=1.12345678)
    verdict = fallen(tiny("a", tier=2), pods=pods, types=[odd, BOTH[1], TINY])
    assert verdict.removed == ({"a"} if climbs else set())
    if climbs:
        assert [claim.tier for claim in verdict.command.replacements] in ([0, 1], [1, 0])
        assert verdict.command.detail.startswith("tier 0 of NodePool default has capacity again")
        assert verdict.command.savings_hourly == round(0.9 - 4.0 - 1.12345678, 6)


@pytest.mark.parametrize(("stuck", "gone"), [(7, {"z"}), (8, set())])
def test_no_more_than_eight_nodes_are_tried_in_one_decision(stuck: int, gone: set[str]) -> None:
    names = [f"a{number}" for number in range(stuck)]
    kept = [pod_on(f"p{name}", name, cpu="3", selector={labels.INSTANCE_TYPE: "tiny"}) for name in names]
    nodes = [*(tiny(name, tier=2) for name in names), small("z", tier=1)]
    assert fallen(*nodes, pods=[*kept, pod_on("pz", "z", cpu="3")]).removed == gone


def test_the_lowest_tier_climbs_first_then_the_oldest_then_by_name() -> None:
    young, old = NOW - 7200, NOW - 7300
    low = fallen(small("a", tier=1, created_at=old), tiny("b", tier=2, created_at=young))
    assert (low.removed, low.command.method, low.command.reason) == ({"b"}, Method.CLIMB_BACK, Reason.DRIFTED)
    assert low.command.detail == "tier 0 of NodePool default has capacity again, the node is of tier 2"
    assert low.command.savings_hourly == pytest.approx(0.9 - 4.0)
    aged = fallen(small("a", tier=1, created_at=young), small("b", tier=1, created_at=old))
    assert aged.removed == {"b"}
    named = fallen(small("b", tier=1, created_at=old), small("a", tier=1, created_at=old))
    assert named.removed == {"a"}


@pytest.mark.parametrize(
    "fields",
    [
        {"histories": [NodeHistory("a", undone_at=NOW - 60, undone=1)]},
        {"pods": []},
        {"pods": [protected("p", "a")]},
    ],
    ids=["rests", "empty", "protected"],
)
def test_a_node_that_must_not_be_moved_does_not_climb(fields: dict[str, Any]) -> None:
    verdict = fallen(small("a", tier=1), **fields)
    assert all(command.method is not Method.CLIMB_BACK for command in verdict.commands)


def test_blocked_nodes_are_listed_by_name() -> None:
    nodes = [large(name) for name in ("c", "a", "b")]
    verdict = disrupted(*nodes, pools=[pool("default", ON_DEMAND, after="Never")], types=BOTH)
    assert verdict.decision.blocked == tuple(
        Blocked(name, "NodePool default has consolidation disabled") for name in "abc"
    )
