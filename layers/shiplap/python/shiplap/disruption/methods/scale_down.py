"""Scale-down: surplus nodes of static NodePools go. Users asked for fewer replicas, so no budget applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.planned_pods import running


class ScaleDown(DisruptionMethod):
    """A NodePool with a node that is being replaced waits: for a moment it has one node too many."""

    uses_budgets: ClassVar[bool] = False

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """A command for each node that is one too many."""
        scheduling, busy = progress.snapshot.scheduling, progress.snapshot.busy
        replacing = {claim.plan.node_pool for claim in scheduling.claims if claim.name in busy}
        pools = [pool for pool in scheduling.manifests.node_pools if pool.spec.replicas is not None]
        if pools:  # the order of removal changes with every second of the nodes' age
            progress.clock.note((progress.clock.now,))
        return [
            proposal
            for pool in sorted(pools, key=lambda item: item.metadata.name)
            if pool.metadata.name not in replacing and not pool.metadata.deletion_timestamp
            for proposal in _scaled_down(pool, pool.spec.replicas or 0, progress, candidates)
        ]


def _scaled_down(
    pool: NodePool, replicas: int, progress: DecisionProgress, candidates: Sequence[Candidate]
) -> list[DisruptionProposal]:
    from shiplap.scheduling.packing.static_pools import (  # noqa: PLC0415 - few installs have static pools
        RemovableNode,
        in_order_of_removal,
        surplus_in_service,
    )

    view, name = progress.snapshot.scheduling.view, pool.metadata.name
    by_name = {item.name: item for item in candidates if item.pool is pool}
    running_on = view.of_pods(running)
    staying = [
        node
        for node in view.nodes
        if node.metadata.labels.get(labels.NODE_POOL) == label_value_of(name)
        and node.metadata.name not in progress.candidate_nodes.leaving
    ]
    removable = [
        RemovableNode(item.node, running_on.get(item.name, ()), item.expire_after) for item in by_name.values()
    ]
    ordered = in_order_of_removal(removable, progress.pdb_limits, progress.clock.now)
    going = [by_name[node.metadata.name] for node in ordered[: surplus_in_service(staying, replicas)]]
    progress.simulator.cordon([item.name for item in going])
    why = f"NodePool {name} has more than {replicas} replicas"
    reason, method = Reason.SCALED_DOWN, Method.SCALE_DOWN
    return [DisruptionProposal(reason, method, (item.name,), (), (), item.price, len(item.pods), why) for item in going]
