"""Repairs of one cluster beside those of its other NodePools: each has its share, and all have one bound together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from shiplap.disruption.commands import Reason
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.flows.sweep.repair import MOST_AT_ONCE, RepairBounds, SickNode, choose_repairs, room_for_repairs
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.claims import node_claim
from tests.builders.pools import pool


def nodes_of(of: str, number: int, state: ClaimState = ClaimState.INITIALIZED, failure: str = "") -> list[NodeClaim]:
    """Nodes of a NodePool, in service unless a state is given."""
    return [
        node_claim(
            name=f"{of}-{state}-{place:03}", node_pool=of, state=state, failure=failure, instance_id=f"i-{place}"
        )
        for place in range(number)
    ]


def in_repair(of: str, number: int) -> list[NodeClaim]:
    return nodes_of(of, number, ClaimState.DRAINING, NoticeKind.UNHEALTHY)


def sick(claims: Iterable[NodeClaim]) -> list[SickNode]:
    return [SickNode(claim, NoticeKind.UNHEALTHY, "it is sick") for claim in claims]


def repaired(claims: list[NodeClaim], unwell: list[NodeClaim], bounds: RepairBounds | None = None) -> dict[str, int]:
    """How many nodes of each NodePool are repaired now."""
    verdict = choose_repairs(claims, sick(unwell), bounds or RepairBounds())
    assert len(verdict.repaired) + len(verdict.blocked) == len(unwell)
    return dict(Counter(item.claim.plan.node_pool for item in verdict.repaired))


def test_all_pools_of_a_cluster_have_one_bound_together() -> None:
    """Each is large enough for its own sick nodes."""
    batch, web = nodes_of("batch", 100), nodes_of("web", 100)
    found = repaired([*batch, *web], [*batch[:8], *web[:8]])
    assert found == {"batch": 8, "web": MOST_AT_ONCE - 8}


@pytest.mark.parametrize("under_way", [0, 4, MOST_AT_ONCE])
def test_repairs_under_way_in_another_pool_count(under_way: int) -> None:
    claims = [*in_repair("batch", under_way), *nodes_of("batch", 100), *(web := nodes_of("web", 100))]
    left = MOST_AT_ONCE - under_way
    assert repaired(claims, web[:12]) == ({"web": left} if left else {})


def test_nodes_that_leave_for_another_reason_are_no_repairs() -> None:
    drifted = nodes_of("batch", 30, ClaimState.DRAINING, "Drifted")
    web = nodes_of("web", 100)
    assert repaired([*drifted, *web], web[:12]) == {"web": MOST_AT_ONCE}


def test_a_budget_bounds_its_own_pool_alone() -> None:
    """What one pool has in repair takes nothing of the other one's budget, and its nodes are no part of its share."""
    bounded = pool("batch", budgets=[{"nodes": "10%", "reasons": ["Unhealthy"]}])
    batch, web = nodes_of("batch", 20), nodes_of("web", 90)
    claims = [*in_repair("web", 3), *batch, *web]
    left = room_for_repairs(bounded, claims, Reason.UNHEALTHY, 0.0)
    assert left == 2
    assert repaired(claims, [*batch[:4], *web[:3]], RepairBounds({"batch": left})) == {"batch": 2, "web": 3}


def test_a_full_pool_has_one_node_in_repair_at_a_time() -> None:
    bounds = RepairBounds(full={"batch"})
    batch, web = nodes_of("batch", 20), nodes_of("web", 90)
    claims = [*batch, *web]
    assert repaired(claims, [*batch[:2], *web[:2]], bounds) == {"batch": 1, "web": 2}
    assert repaired([*in_repair("batch", 1), *claims], batch[:2], bounds) == {}
    assert repaired(claims, batch[:2], RepairBounds({"batch": 0}, {"batch"})) == {}


def test_a_pool_with_many_sick_nodes_leaves_the_bound_to_the_others() -> None:
    """None of it is replaced, so none of it counts."""
    zone, web = nodes_of("a-zone", 20), nodes_of("web", 100)
    assert repaired([*zone, *web], [*zone[:15], *web[:12]]) == {"web": MOST_AT_ONCE}
