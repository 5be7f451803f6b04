"""The present pods of a cluster on other NodePools, as if it had no node: what they would cost there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from shiplap.disruption.candidates import is_reschedulable
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod, PodCondition, PodStatus
from shiplap.scheduling.planner import plan
from shiplap_cli.commands.migrate.migration_page import MigrationCost
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.money import Money
from shiplap_cli.options import Sources
from shiplap_cli.render.totals import totals_of

_UNSCHEDULABLE = PodStatus(
    phase="Pending", conditions=(PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
)


def cost_of_migration(manifests: Path, state: Sequence[Path], region: str) -> MigrationCost:
    """Plan every pod that would come back elsewhere, on new nodes of these manifests only.

    Raises:
        InvalidInput: the cluster's state or the manifests cannot be used.
    """
    inputs = load_inputs(Sources(cluster_state=list(state), manifests=[manifests], region=region))
    snapshot = inputs.snapshot
    pods = tuple(_unbound(pod) for pod in snapshot.view.pods if is_reschedulable(pod))
    world = msgspec.structs.replace(snapshot.view, pods=pods, nodes=(), events=())
    decided = plan(msgspec.structs.replace(snapshot, view=world, claims=()))
    money = Money(snapshot)
    totals = totals_of(snapshot, decided, money, from_scratch=True)
    return MigrationCost(
        pods=len(pods),
        nodes=len(decided.node_claims),
        hourly=decided.hourly,
        estimated=money.of_launches(decided.node_claims).estimated,
        present_nodes=totals.now.nodes,
        present_hourly=round(totals.now.hourly, 6),
        present_estimated=totals.now.estimated,
        unpriced_nodes=totals.unpriced,
        left_out=tuple((e.pod.key, e.message) for e in decided.unschedulable),
        region=inputs.region,
        notes=inputs.notes,
    )


def _unbound(pod: Pod) -> Pod:
    """The pod as it would be without a node, on any pool: not held to the group it runs on."""
    ties = (labels.NODE_POOL, "eks.amazonaws.com/nodegroup")
    selector = {key: value for key, value in pod.spec.node_selector.items() if key not in ties}
    spec = msgspec.structs.replace(pod.spec, node_name="", node_selector=selector)
    return msgspec.structs.replace(pod, spec=spec, status=_UNSCHEDULABLE)
