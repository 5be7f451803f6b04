"""Counts of a NodePool's nodes: by state, and of the drifted ones why they stay."""

from __future__ import annotations

import msgspec

from shiplap.flows.sweep.pool_nodes import nodes_of_pools
from shiplap.instances.readiness.object_statuses import PoolNodes
from shiplap.kubernetes.objects import Node, ObjectMeta
from shiplap.manifests.custom_resources import Budget, Disruption, NodePool
from shiplap.manifests.live.nodeclaim_objects import ClaimDisruption
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.claims import running_claim
from tests.builders.pools import pool

NOW = 1_700_000_000.0
DRIFTED = ClaimDisruption(is_drifted=True)


def with_budgets(name: str, *budgets: Budget) -> NodePool:
    made = pool(name)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, disruption=Disruption(budgets=budgets))
    )


def test_nodes_are_counted_by_state_and_pool() -> None:
    claims = [
        running_claim("a"),
        running_claim("b", reboots_at=(NOW,), reboot_cause="XID48"),
        running_claim("c", state=ClaimState.DRAINING),
        running_claim("d", state=ClaimState.LAUNCHED),
        running_claim("e", state=ClaimState.GONE),
        running_claim("f", node_pool="other"),
    ]
    found = nodes_of_pools([pool("default"), pool("other"), pool("none")], claims, (), {}, NOW)
    assert found == {"default": PoolNodes(4, 0, 1, 2), "other": PoolNodes(1), "none": PoolNodes(0)}


def test_drifted_nodes_that_stay_have_a_reason() -> None:
    claims = [running_claim(name) for name in "abc"] + [running_claim("d", state=ClaimState.DRAINING)]
    drifted = dict.fromkeys("abcd", DRIFTED)
    kept = Node(ObjectMeta("node-a", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    shut = with_budgets("default", Budget(nodes="0", reasons=("Drifted",)))
    (found,) = nodes_of_pools([shut], claims, [kept], drifted, NOW).values()
    assert (found.nodes, found.drifted, found.leaving) == (4, 4, 1)
    (annotation, one), (budget, two) = found.blocked
    assert (annotation, one, two) == ("annotation karpenter.sh/do-not-disrupt", 1, 2)
    assert budget == "budgets[0] of NodePool default allows no disruption now (0)"
    (free,) = nodes_of_pools([with_budgets("default", Budget(nodes="4"))], claims, (), drifted, NOW).values()
    assert free.blocked == ()


def test_nothing_is_counted_while_disruption_is_not_known() -> None:
    assert nodes_of_pools([pool("default")], [running_claim("a")], (), None, NOW) == {}
