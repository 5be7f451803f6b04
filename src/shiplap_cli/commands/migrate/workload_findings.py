"""Finds what the workloads of a cluster are used to under Cluster Autoscaler, and would meet differently.

Cluster Autoscaler keeps a node because of pods it would not evict; Shiplap moves every pod that comes back elsewhere
and that no PodDisruptionBudget or annotation protects. So those pods are named, with the annotation that protects them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of, namespaced_name
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod, goes_with_node
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.manifests.files.documents import Document
from shiplap_cli.commands.migrate.migration_findings import MatchQuality, MigrationFinding

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_MOST_NAMED = 5
_PROTECT = f'annotate {labels.DO_NOT_DISRUPT}: "true" on the pod template'


def workload_findings(
    pods: Sequence[Pod],
    nodes: Iterable[Node],
    budgets: Sequence[PodDisruptionBudget],
    *,
    from_autoscaler: bool,
    local: Collection[str],
    renamed: Mapping[str, str],
) -> tuple[MigrationFinding, ...]:
    """Pods and nodes that say something about the old autoscaler.

    Args:
        pods: those present.
        nodes: those present.
        budgets: PodDisruptionBudgets.
        from_autoscaler: whether Cluster Autoscaler is left, whose habits differ from Karpenter's.
        local: `namespace/name` of pods with data on their node, see `with_local_storage`.
        renamed: new names of NodePools that pods may select by label.
    """
    alive = [pod for pod in pods if pod.status.phase not in TERMINAL_PHASES]
    findings = list(_selecting(alive, renamed))
    if from_autoscaler:
        findings += _protected_pods(alive, budgets, local)
        findings += _protected_nodes(nodes)
    return tuple(findings)


def _protected_pods(
    alive: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], local: Collection[str]
) -> Iterable[MigrationFinding]:
    """Pods whose node Cluster Autoscaler keeps and Shiplap may not."""
    groups = (
        (
            MatchQuality.APPROXIMATE,
            f'annotation {SAFE_TO_EVICT}: "false"',
            [pod for pod in alive if pod.metadata.annotations.get(SAFE_TO_EVICT) == "false"],
            f'{labels.DO_NOT_DISRUPT}: "true"',
            "Shiplap does not read Cluster Autoscaler's annotation; write this one beside it before the workload moves",
        ),
        (
            MatchQuality.NONE,
            "pods without a controller",
            [pod for pod in alive if not pod.metadata.owner_references],
            "",
            f"Cluster Autoscaler keeps their node; Shiplap may evict them, and nothing creates them again: {_PROTECT}",
        ),
        (
            MatchQuality.NONE,
            "kube-system pods without a PodDisruptionBudget",
            [pod for pod in alive if _is_system_pod(pod) and not any(budget.selects(pod) for budget in budgets)],
            "",
            "Cluster Autoscaler keeps their node; Shiplap moves them: write a PodDisruptionBudget",
        ),
        (
            MatchQuality.NONE,
            "pods with local storage",
            [pod for pod in alive if pod.key in local and not goes_with_node(pod.metadata)],
            "",
            f"Cluster Autoscaler keeps their node; what lies in emptyDir or hostPath is lost on a move: {_PROTECT}",
        ),
    )
    for match, field, members, becomes, note in groups:
        if members:
            yield MigrationFinding(match, _pod_list(members), field, becomes, note)


def _protected_nodes(nodes: Iterable[Node]) -> Iterable[MigrationFinding]:
    kept = sorted(n.metadata.name for n in nodes if n.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true")
    if kept:
        note = "write it on the nodes, or they go with their group"
        field = f'annotation {SCALE_DOWN_DISABLED}: "true"'
        yield MigrationFinding(
            MatchQuality.APPROXIMATE, _list("node", kept), field, f'{labels.DO_NOT_DISRUPT}: "true"', note
        )


def _selecting(pods: Sequence[Pod], renamed: Mapping[str, str]) -> Iterable[MigrationFinding]:
    """Pods that select a node group or a NodePool by its name, and so stay with it."""
    for key in (labels.NODE_POOL, "eks.amazonaws.com/nodegroup"):
        members = [pod for pod in pods if pod.spec.node_selector.get(key) in renamed]
        if members:
            names = sorted({pod.spec.node_selector[key] for pod in members})
            becomes = ", ".join(f"{labels.NODE_POOL}: {label_value_of(renamed[name])}" for name in names)
            yield MigrationFinding(
                MatchQuality.APPROXIMATE, _pod_list(members), f"nodeSelector {key}", becomes, "change it to move them"
            )


def _is_system_pod(pod: Pod) -> bool:
    return pod.metadata.namespace == "kube-system" and not goes_with_node(pod.metadata)


def with_local_storage(documents: Iterable[Document]) -> frozenset[str]:
    """`namespace/name` of the Pods among objects that keep data on their node: emptyDir not in memory, or hostPath."""
    local = set()
    for document in documents:
        spec = document.data.get("spec")
        volumes = spec.get("volumes") if document.data.get("kind") == "Pod" and isinstance(spec, dict) else None
        if any(map(_keeps_data, volumes if isinstance(volumes, list) else ())):
            metadata = document.data.get("metadata") or {}
            local.add(namespaced_name(metadata.get("namespace") or "", metadata.get("name", "")))
    return frozenset(local)


def _keeps_data(volume: Any) -> bool:
    if not isinstance(volume, dict):
        return False
    empty = volume.get("emptyDir")
    return "hostPath" in volume or ("emptyDir" in volume and (empty or {}).get("medium") != "Memory")


def _pod_list(pods: Sequence[Pod]) -> str:
    return _list("pod", sorted(pod.key for pod in pods))


def _list(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{noun} {shown}{more}" if len(names) == 1 else f"{noun}s {shown}{more}"
