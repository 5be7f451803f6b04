"""Counts the nodes of NodePools by what becomes of them, for the statuses that `kubectl get` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shiplap.disruption.budgets import allowance
from shiplap.disruption.commands import Reason
from shiplap.instances.readiness.object_statuses import PoolNodes
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, LEAVING, ClaimState, NodeClaim

if TYPE_CHECKING:
    from shiplap.manifests.live.nodeclaim_objects import ClaimDisruption


def nodes_of_pools(
    pools: Iterable[NodePool],
    claims: Iterable[NodeClaim],
    nodes: Iterable[Node],
    disruption: Mapping[str, ClaimDisruption] | None,
    now: float,
) -> dict[str, PoolNodes]:
    """Return the counts by NodePool; none where it is not known which nodes are drifted.

    Args:
        pools: of the cluster.
        claims: all of the cluster.
        nodes: of the cluster.
        disruption: by claim; None if it cannot be read.
        now: epoch seconds.
    """
    if disruption is None:
        return {}
    kept = {node.metadata.name for node in nodes if node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true"}
    of_pool: dict[str, list[NodeClaim]] = {}
    for claim in claims:
        if claim.state not in FINAL:
            of_pool.setdefault(claim.plan.node_pool, []).append(claim)
    return {
        pool.metadata.name: _counted(pool, of_pool.get(pool.metadata.name, ()), kept, disruption, now) for pool in pools
    }


def _counted(
    pool: NodePool,
    claims: Iterable[NodeClaim],
    kept: set[str],
    disruption: Mapping[str, ClaimDisruption],
    now: float,
) -> PoolNodes:
    joining = leaving = in_service = drifted = 0
    blocked: Counter[str] = Counter()
    staying = []
    for claim in claims:
        going = claim.state in LEAVING or claim.is_rebooting
        leaving += going
        in_service += going or claim.state is ClaimState.INITIALIZED
        joining += not going and claim.state is not ClaimState.INITIALIZED
        if (facts := disruption.get(claim.name)) is not None and facts.is_drifted:
            drifted += 1
            staying += [] if going else [claim]
    left = allowance(pool, Reason.DRIFTED, in_service, leaving, now)
    for claim in staying:
        if claim.node_name in kept:
            blocked[f"annotation {labels.DO_NOT_DISRUPT}"] += 1
        elif not left.nodes:
            blocked[left.blocking] += 1
    return PoolNodes(in_service + joining, drifted, joining, leaving, tuple(sorted(blocked.items())))
