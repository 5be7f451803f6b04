"""Only what may go is put in an order: what is protected, refused or hopeless holds up nothing behind it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from shiplap.disruption.commands import Method
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import NodePool
from tests.builders.nodes import node
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.disruption_order import fallen, static, tiny
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, disrupted, large, pdb, small
from tests.conformance.given import NOW, given

STAYS = {labels.DO_NOT_DISRUPT: "true"}
GONE = rule("gone", "DoesNotExist")
DRIFTS = {"gone": "x"}


def fixed(replicas: int, name: str = "fixed") -> NodePool:
    return static(name, replicas, ON_DEMAND)


# Static pools


@pytest.mark.parametrize(("replicas", "gone"), [(3, {"c"}), (2, {"c", "d"}), (1, {"c", "d"}), (0, {"c", "d"})])
def test_protected_nodes_of_a_static_pool_keep_no_other_from_going(replicas: int, gone: set[str]) -> None:
    nodes = [small(name, pool="fixed", annotations=STAYS if name in "ab" else None) for name in "abcd"]
    verdict = disrupted(*nodes, pools=[fixed(replicas)], types=BOTH)
    assert verdict.removed == gone
    assert all(command.method is Method.SCALE_DOWN for command in verdict.commands)
    assert "do-not-disrupt" in verdict.blocked("a")


def test_the_plan_names_the_surplus_nodes_that_go_and_no_protected_one() -> None:
    free = [node(name, pool="static") for name in "cd"]
    kept = [
        structs.replace(item, metadata=structs.replace(item.metadata, annotations=STAYS))
        for item in (node(name, pool="static") for name in "ab")
    ]
    one, none = (
        given(pools=[static("static", 2)], types=BOTH, nodes=nodes).plan.static_pools[0]
        for nodes in ([*kept, *free[:1]], [*kept, kept[0]])
    )
    assert one.surplus == ("c",)
    assert none.surplus == ()


def test_a_node_that_is_not_ready_goes_before_an_empty_one_that_is() -> None:
    nodes = [small("a", pool="fixed"), small("b", pool="fixed", ready=False), small("c", pool="fixed")]
    case: dict[str, Any] = {"pods": [pod_on("p", "a"), pod_on("q", "b")], "types": BOTH}
    assert disrupted(*nodes, pools=[fixed(2)], **case).removed == {"b"}
    assert disrupted(*nodes, pools=[fixed(1)], **case).removed == {"b", "c"}


def test_a_node_whose_pods_a_budget_keeps_goes_after_those_that_can_be_emptied() -> None:
    """Were it first, the pool would stay above its number until the budget lets its pods go."""
    nodes = [small("a", pool="fixed"), small("b", pool="fixed")]
    guarded = pod_on("p", "a", metadata={"labels": {"app": "db"}})
    pods = [guarded, pod_on("q", "b"), pod_on("r", "b")]
    case: dict[str, Any] = {"pods": pods, "types": BOTH, "budgets": [pdb("db", 0, app="db")]}
    assert disrupted(*nodes, pools=[fixed(1)], **case).removed == {"b"}
    assert disrupted(*nodes, pools=[fixed(1)], **case | {"budgets": []}).removed == {"a"}
    silent = [small("a", pool="fixed", ready=False), nodes[1]]
    assert disrupted(*silent, pools=[fixed(1)], **case).removed == {"a"}


def test_nodes_that_are_still_coming_are_the_surplus_before_those_in_service() -> None:
    nodes = [small("a", pool="fixed"), small("b", pool="fixed", initialized=False), small("c", pool="fixed")]
    assert disrupted(*nodes, pools=[fixed(2)], types=BOTH).removed == set()
    assert disrupted(*nodes, pools=[fixed(1)], types=BOTH).removed == {"a"}


def test_a_node_nearer_to_its_own_age_limit_goes_first() -> None:
    """The loss of a pod shrinks with what is left of its node's life, whatever the NodePool says now."""
    nodes = []
    for name, own in (("a", "9h"), ("b", "1h"), ("c", "Never")):
        item = small(name, pool="fixed", created_at=NOW - 3000, made={"expire_after": own})
        created = structs.replace(item.node.metadata, creation_timestamp=rfc3339(NOW - 3000))
        nodes.append(Standing(structs.replace(item.node, metadata=created), item.claim))
    verdict = disrupted(*nodes, pods=[pod_on(f"on-{name}", name) for name in "abc"], pools=[fixed(2)], types=BOTH)
    assert verdict.removed == {"b"}


def test_each_static_pool_gives_up_its_own_surplus() -> None:
    nodes = [small("a", pool="one", annotations=STAYS), small("b", pool="one"), small("c", pool="two"), small("d")]
    verdict = disrupted(
        *nodes, pods=[pod_on("p", "d")], pools=[fixed(1, "one"), fixed(1, "two"), pool(after="Never")], types=BOTH
    )
    assert verdict.removed == {"b"}


# Budgets


def test_a_message_counts_only_nodes_that_go() -> None:
    """No node of the pool can be replaced: its limit is reached."""
    full = static("fixed", 2, ON_DEMAND, GONE, budgets=[{"nodes": "1"}])
    full = structs.replace(full, spec=structs.replace(full.spec, limits={"nodes": "2"}))
    nodes = [small("a", pool="fixed", labels=DRIFTS), small("b", pool="fixed", labels=DRIFTS)]
    verdict = disrupted(*nodes, pools=[full], types=BOTH)
    assert verdict.removed == set()
    assert {verdict.blocked("a"), verdict.blocked("b")} == {"NodePool fixed can launch no replacement now"}


def test_a_message_counts_the_nodes_of_its_own_pool() -> None:
    pools = [pool(name, ON_DEMAND, budgets=[{"nodes": "1"}]) for name in ("one", "two")]
    nodes = [small("a", pool="one"), small("b", pool="one"), small("c", pool="two"), small("d", pool="two")]
    verdict = disrupted(*nodes, pools=pools, types=BOTH)
    assert verdict.removed == {"a", "c"}
    assert verdict.blocked("b").endswith("; 1 goes now")
    assert verdict.blocked("d").endswith("; 1 goes now")


# Consolidation


@pytest.mark.parametrize("hopeless", [3, 40])
def test_dear_nodes_that_cannot_be_cheaper_keep_no_budget_from_cheap_ones(hopeless: int) -> None:
    """Each dear node is full of pods that fit no other type; the cheap ones are last in the order of what they save."""
    dear = [large(f"a{place:02}") for place in range(hopeless)]
    full = [pod_on(f"p{place:02}", f"a{place:02}", cpu="15") for place in range(hopeless)]
    verdict = disrupted(
        *dear,
        small("y"),
        small("z"),
        pods=[*full, pod_on("q", "y"), pod_on("r", "z")],
        pools=[pool("default", ON_DEMAND, budgets=[{"nodes": "1"}])],
        types=BOTH,
    )
    assert len(verdict.removed & {"y", "z"}) == 1


# Fallback tiers


@pytest.mark.parametrize("pools_of_b", ["default", "second"])
def test_a_node_that_would_take_the_room_of_others_hides_none_behind_it(pools_of_b: str) -> None:
    """Pods may only move to `kept`, which has room for those of `a` and `c`, or for the one of `b`."""
    names = {"a": "1", "b": "2900m", "c": "1"}
    nodes = [small(name, pool=pools_of_b if name == "b" else "default") for name in names]
    verdict = disrupted(
        small("kept", annotations=STAYS, labels={"here": "x"}),
        *nodes,
        pods=[
            pod_on("r", "kept", cpu="900m"),
            *(pod_on(f"p-{name}", name, cpu=cpu, selector={"here": "x"}) for name, cpu in names.items()),
        ],
        pools=[pool(name, ON_DEMAND) for name in ("default", "second")],
        types=BOTH[:1],
    )
    assert verdict.removed == {"a", "c"}
    assert verdict.blocked("b") == "removing it now saves less than what is done instead"


@pytest.mark.parametrize("pool_of_a", ["default", "second"])
def test_a_budget_that_a_node_cannot_use_is_left_to_those_behind_it(pool_of_a: str) -> None:
    """Two nodes may go: of the first ones in the order, `b` has a pod that fits nowhere else."""
    names = {"a": "500m", "b": "3500m", "c": "500m", "d": "500m"}
    pool_of = dict.fromkeys(names, "default") | {"a": pool_of_a}
    allowed = {"default": "2" if pool_of_a == "default" else "1", "second": "1"}
    verdict = disrupted(
        small("kept", annotations=STAYS),
        *(small(name, pool=pool_of[name]) for name in names),
        pods=[pod_on("r", "kept"), *(pod_on(f"p-{name}", name, cpu=cpu) for name, cpu in names.items())],
        pools=[pool(name, ON_DEMAND, budgets=[{"nodes": allowed[name]}]) for name in allowed],
        types=BOTH[:1],
    )
    assert verdict.removed == {"a", "c"}
    assert "no allowed disruptions" in verdict.blocked("d")


def test_nodes_that_cannot_climb_leave_a_turn_to_those_behind_them() -> None:
    """Within half an hour each of nine nodes is tried, eight in a decision."""
    names = [f"a{number}" for number in range(8)]
    kept = [pod_on(f"p{name}", name, cpu="3", selector={labels.INSTANCE_TYPE: "tiny"}) for name in names]
    nodes = [*(tiny(name, tier=2) for name in names), small("z", tier=1)]
    tried = [
        fallen(*nodes, pods=[*kept, pod_on("pz", "z", cpu="3")], now=NOW + turn * 900).removed for turn in range(2)
    ]
    assert sorted(tried, key=len) == [set(), {"z"}]
