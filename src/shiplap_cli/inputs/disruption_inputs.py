"""The inputs of a disruption decision, from what was read of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot
from shiplap.flows.planning.decision_snapshots import ServiceInputs
from shiplap.flows.planning.decision_snapshots import disruption_snapshot as library_snapshot
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimPlan, ClaimState, LaunchedInstance, NodeClaim
from shiplap.scheduling.model.snapshot import PlanStage, Snapshot
from shiplap_cli.inputs.loaded_inputs import LoadedInputs
from shiplap_cli.inputs.missing_storage import notes_of_running_pods
from shiplap_cli.policy_views import views


def disruption_snapshot(inputs: LoadedInputs, **changes: Any) -> DisruptionSnapshot:
    """The snapshot of a disruption decision; `changes` are fields of its settings."""
    snapshot, budgets, decision = inputs.snapshot, inputs.state.pod_disruption_budgets, inputs.decision
    known = decision.installed.settings if decision is not None else None
    settings = asked_settings(known.disruption if known is not None else DisruptionSettings(), changes)
    if decision is not None and decision.installed.claims is not None:
        return decision.disruption(snapshot, decision.installed.claims, budgets, settings)
    service = ServiceInputs(
        claims=snapshot.claims or _inferred_claims(snapshot),
        histories=inputs.state.histories,
        pod_disruption_budgets=budgets,
    )
    return library_snapshot(snapshot.without_stage(PlanStage.PRICES), service, settings)


def told_of_missing_kinds(inputs: LoadedInputs) -> LoadedInputs:
    """The inputs, with notes where files have pods on nodes without what keeps or moves them: it may be left out."""
    view = inputs.state.view
    if inputs.live or not view.by_node:
        return inputs
    budgets = "no PodDisruptionBudget is among the objects: if the cluster has some, fewer nodes may go"
    missing = () if inputs.state.pod_disruption_budgets else (budgets,)
    return replace(inputs, notes=(*inputs.notes, *missing, *notes_of_running_pods(view)))


def asked_settings(known: DisruptionSettings, changes: Mapping[str, Any]) -> DisruptionSettings:
    """Settings with the fields that are asked for; a `move_cost` counts, though the install has the deprecated form."""
    alone = {"least_saving_per_pod": None} if "move_cost" in changes else {}
    return replace(known, **{**alone, **changes})


def rehearsed_nodes(inputs: LoadedInputs) -> tuple[str, ...]:
    """Return the nodes that would leave now if no feature rehearsed. Raises InvalidInput as `decide`."""
    if not any(view.has_rehearsal(inputs.snapshot) for _, view in views()):
        return ()
    rehearsed = decide(disruption_snapshot(inputs)).rehearsed
    return () if rehearsed is UNSET else rehearsed


def _inferred_claims(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """The claims that nodes of NodePools must have had: Shiplap keeps them in its table, not in the cluster."""
    ours = [node for node in snapshot.view.nodes if labels.NODE_POOL in node.metadata.labels]
    return tuple(_inferred(node, snapshot.manifests) for node in ours)


def _inferred(node: Node, manifests: Manifests) -> NodeClaim:
    marks, born = node.metadata.labels, node.metadata.creation_timestamp
    done = marks.get(labels.INITIALIZED) == "true"
    return NodeClaim(
        cluster="files",
        name=marks.get(labels.NODE_CLAIM, node.metadata.name),
        plan=ClaimPlan(
            node_pool=name_of_label(marks[labels.NODE_POOL], (pool.metadata.name for pool in manifests.node_pools)),
            node_class=name_of_label(
                marks.get(labels.NODE_CLASS, ""), (node_class.metadata.name for node_class in manifests.node_classes)
            ),
            labels=marks,
            annotations=node.metadata.annotations,
        ),
        state=ClaimState.INITIALIZED if done else ClaimState.REGISTERED,
        instance=LaunchedInstance(
            id=node.spec.provider_id.rpartition("/")[2],
            type=marks.get(labels.INSTANCE_TYPE, ""),
            zone=marks.get(labels.ZONE, ""),
            capacity_type=marks.get(labels.CAPACITY_TYPE, ""),
        ),
        created_at=epoch(born) if born else 0.0,
        node_name=node.metadata.name,
    )
