"""What uses up a budget of a NodePool: nodes that leave already, empty or not, and none of another NodePool."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pools import pool
from tests.conformance.disruptions import BOTH, Standing, Verdict, disrupted, small

ONE = [{"nodes": "1"}]
LEAVES: dict[str, dict[str, Any]] = {
    "somebody deletes it": {"deleting": True},
    "it is drained": {"state": ClaimState.DRAINING},
    "it is not ready": {"ready": False},
}
STAYS: dict[str, dict[str, Any]] = {
    "its instance ends": {"state": ClaimState.TERMINATING},
    "it is not initialised": {"initialized": False, "state": ClaimState.REGISTERED},
}


def decided(*nodes: Standing, budgets: list[dict[str, str]] = ONE, others: list[dict[str, str]] = ONE) -> Verdict:
    """Nodes without pods, each of which could go."""
    return disrupted(*nodes, pools=[pool("default", budgets=budgets), pool("other", budgets=others)], types=BOTH)


@pytest.mark.parametrize("why", LEAVES)
def test_an_empty_node_that_leaves_uses_up_the_budget_of_its_pool(why: str) -> None:
    """No pod of it is on its way to the others: they stay for the budget alone."""
    verdict = decided(small("going", **LEAVES[why]), small("a"), small("b"))

    assert verdict.removed == set()
    assert "budgets[0] of NodePool default" in verdict.blocked("a")


@pytest.mark.parametrize("why", STAYS)
def test_a_node_that_does_not_count_uses_up_nothing(why: str) -> None:
    assert len(decided(small("x", **STAYS[why]), small("a"), small("b")).removed) == 1


@pytest.mark.parametrize("why", LEAVES)
def test_a_node_of_another_pool_uses_up_nothing(why: str) -> None:
    verdict = decided(small("going", pool="other", **LEAVES[why]), small("a"), small("b"), small("c", pool="other"))

    assert len(verdict.removed & {"a", "b"}) == 1
    assert "c" not in verdict.removed


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_share_counts_nodes_that_leave_among_all_of_the_pool(number: int) -> None:
    """Half of six nodes, of which some are being deleted."""
    going = [small(f"going-{place}", deleting=True) for place in range(number)]
    staying = [small(f"n{place}") for place in range(6 - number)]

    assert len(decided(*going, *staying, budgets=[{"nodes": "50%"}]).removed) == 3 - number
