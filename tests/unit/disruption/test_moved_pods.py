"""Tests the new places of pods whose node is removed, and the pods that keep it: their plan, node by node."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.disruption.rescheduling import Relocation, Simulator
from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.given import claim_volumes, given

TYPES = [fake_type("two", cpu="2", memory="8Gi", offerings=(("on-demand", Z1),))]
LOST = claim_volumes("lost")
HUGE = "64"


def without(removed: tuple[str, ...], *bound: Pod, moving: tuple[str, ...] | None = None, **nodes: str) -> Relocation:
    there = [node(name, cpu=cpu) for name, cpu in nodes.items()]
    plan = given(*bound, pools=[pool()], types=TYPES, nodes=there)
    return Simulator(plan.snapshot, ()).without(removed, moving)


def other(name: str, **fields: Any) -> Pod:
    """A pod of another namespace."""
    return pod(name, metadata={"name": name, "namespace": "other", "uid": f"other-{name}"}, **fields)


def test_pods_are_received_by_nodes_and_by_new_claims_that_serve_their_nodes() -> None:
    found = without(
        ("a", "b"),
        pod("fits", cpu="1", node="a"),
        pod("too-large", cpu="1.5", node="b"),
        pod("stays", cpu="100m", node="c"),
        a="2",
        b="2",
        c="1.2",
    )
    assert {left: sorted(places) for left, places in found.received.items()} == {"a": ["c"]}
    assert [entry.name for entry in found.received["a"]["c"]] == ["fits"]
    assert [[entry.name for entry in claim.pods] for claim in found.claims] == [["too-large"]]
    assert found.serves == (frozenset({"b"}),)
    assert found.stuck == {}


@pytest.mark.parametrize("make", [pod, other])
@pytest.mark.parametrize("fields", [{"cpu": HUGE}, {"cpu": "1", "spec": LOST}], ids=["fits nowhere", "left alone"])
def test_a_pod_that_cannot_be_placed_keeps_its_node_and_says_why(make: Any, fields: dict[str, Any]) -> None:
    found = without(("a", "b"), make("held", node="a", **fields), pod("free", cpu="1", node="b"), a="64", b="2")
    assert list(found.stuck) == ["a"]
    assert found.stuck["a"].startswith(f"pod {'other' if make is other else 'default'}/held: ")


def test_the_first_reason_of_a_node_is_told_and_pods_that_wait_keep_none() -> None:
    found = without(
        ("a",), pod("z", cpu=HUGE, node="a"), pod("b", cpu=HUGE, node="a"), pod("waits", cpu=HUGE), a="200", b="2"
    )
    assert list(found.stuck) == ["a"]
    assert found.stuck["a"].startswith("pod default/b: ")


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    found = without(("a", "b"), pod("p", cpu="1", node="a"), other("p", cpu="1.8", node="b"), a="2", b="2")
    assert {
        tuple(entry.namespace for entry in claim.pods): nodes
        for claim, nodes in zip(found.claims, found.serves, strict=True)
    } == {
        ("default",): frozenset({"a"}),
        ("other",): frozenset({"b"}),
    }


def test_only_pods_of_nodes_that_are_to_move_are_planned_for() -> None:
    found = without(("a", "b"), pod("p", cpu="1", node="a"), pod("q", cpu="1", node="b"), moving=("a",), a="2", b="2")
    assert [[entry.name for entry in claim.pods] for claim in found.claims] == [["p"]]
    assert found.received == {}


def test_room_that_pods_which_wait_will_take_is_not_given_to_pods_that_are_moved() -> None:
    """Nor are those that wait among the pods that a removal moves."""
    waits = pod("waits", cpu="1500m")
    held = (pod("p", cpu="1", node="a"), pod("q", cpu="1", node="a"))
    alone = without(("a",), *held, a="2", b="2")
    assert sorted(alone.received["a"]) == ["b"]
    found = without(("a",), *held, waits, a="2", b="2")
    assert found.received == {}
    assert sorted(entry.name for claim in found.claims for entry in claim.pods) == ["p", "q"]
    assert found.stuck == {}
