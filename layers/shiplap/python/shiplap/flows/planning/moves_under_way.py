"""Pods of nodes whose disruption command waits for its replacements: they run, and get no node beside those.

The plan keeps room for them, so that nobody else is planned into the replacements. If others take that room
nevertheless, nodes are launched when the old ones are drained. Before, such a node would be empty, soon be removed for
that, and be launched again.
"""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.flows.planning.decision_snapshots import PricedSnapshot
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.planned_pods import with_pods_staying
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan


def plan_without_moves_under_way(priced: PricedSnapshot) -> tuple[PricedSnapshot, Plan]:
    """The plan that launches nothing for pods of such nodes, and the snapshot that it is made of.

    Raises InvalidInput as `planner.plan`.
    """
    decision = plan(priced.snapshot)
    running = running_on_waiting_nodes(priced.snapshot)
    while running and (without_room := running.intersection(_launched_for(decision))):
        running -= without_room
        view = with_pods_staying(priced.snapshot.view, without_room)
        priced = PricedSnapshot(replace(priced.snapshot, view=view))
        decision = plan(priced.snapshot)
    return priced, decision


def running_on_waiting_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Uids of the pods of nodes whose command waits, but for nodes that somebody has deleted."""
    waiting = {claim.node_name for claim in snapshot.claims if claim.state is ClaimState.DISRUPTING}
    if not waiting:
        return frozenset()
    waiting -= {node.metadata.name for node in snapshot.view.nodes if node.metadata.deletion_timestamp}
    pods = (pod for name in waiting for pod in snapshot.view.by_node.get(name, ()))
    return frozenset(pod.metadata.uid for pod in pods if pod.metadata.uid)


def _launched_for(decision: Plan) -> frozenset[str]:
    return frozenset(pod.uid for claim in decision.node_claims for pod in claim.pods)
