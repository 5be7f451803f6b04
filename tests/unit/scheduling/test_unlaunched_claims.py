"""A plan without claims that are not launched: whoever would have had room there waits, with the reason."""

from __future__ import annotations

from typing import Any

from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import (
    BufferState,
    LaunchChoice,
    Plan,
    PlannedClaim,
    StaticPool,
    Unschedulable,
)
from shiplap.scheduling.packing.unlaunched_claims import without_claims


def _planned(name: str, *pods: PodReference, node_pool: str = "default", **fields: Any) -> PlannedClaim:
    return PlannedClaim(
        name=name,
        node_pool=node_pool,
        node_class="default",
        tier=0,
        requirements=(),
        taints=(),
        labels={},
        instance_types=("m5.large",),
        launch=LaunchChoice("m5.large", "eu-west-1a", "on-demand", 0.1),
        requests={},
        pods=pods,
        **fields,
    )


def _named(name: str, namespace: str = "default") -> PodReference:
    return PodReference(namespace, name, name)


def test_pods_wait_beside_those_that_wait_already() -> None:
    before = Unschedulable(_named("b"), "no instance type has room")
    claims = (_planned("one", _named("c")), _planned("two", _named("a")))
    plan = Plan(node_claims=claims, unschedulable=(before,), hourly=0.2)
    left = without_claims(plan, claims[1:], {"two": "held"})
    assert [claim.name for claim in left.node_claims] == ["one"]
    assert left.hourly == 0.1
    assert left.unschedulable == (Unschedulable(_named("a"), "held"), before)


def test_static_pools_lack_their_own_nodes_and_keep_an_earlier_reason() -> None:
    claims = (
        _planned("one", node_pool="fixed"),
        _planned("two", node_pool="fixed"),
        _planned("three", node_pool="old"),
    )
    pools = (StaticPool("fixed", 3, 1), StaticPool("free", 1, 1), StaticPool("old", 2, 0, 1, "limit reached"))
    plan = Plan(node_claims=claims, static_pools=pools)
    left = without_claims(plan, claims, {"one": "first", "two": "second", "three": "third"})
    assert left.static_pools == (
        StaticPool("fixed", 3, 1, 2, "first"),
        StaticPool("free", 1, 1),
        StaticPool("old", 2, 0, 2, "limit reached"),
    )


def test_buffers_lose_the_room_of_their_own_virtual_pods() -> None:
    claim = _planned("one", virtual_pods=(_named("spare-0"), _named("spare-1"), _named("spare-0", "other")))
    buffers = (
        BufferState("default", "spare", replicas=3, new=3),
        BufferState("default", "spare-0", replicas=1, new=1),
        BufferState("other", "spare", replicas=2, existing=1, new=1, reason="limit reached"),
    )
    left = without_claims(Plan(node_claims=(claim,), buffers=buffers), [claim], {"one": "held"})
    assert left.buffers == (
        BufferState("default", "spare", replicas=3, new=1, missing=2, reason="held"),
        buffers[1],
        BufferState("other", "spare", replicas=2, existing=1, missing=1, reason="limit reached"),
    )
