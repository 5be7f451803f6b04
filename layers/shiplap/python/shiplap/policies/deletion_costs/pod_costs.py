"""Decides which pods of a node are written: those of ReplicaSets that ask for it and whose cost nobody else has set.

Only the ReplicaSet controller reads deletion costs. Pods that ask for spread are left to it where only their NodePool
asks for deletion costs: emptying a node may empty a zone of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from shiplap.kubernetes.labels import DELETION_COST, MANAGED_COST, WRITTEN_COST
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod, is_ready

_WRITTEN = re.compile(r"-[1-9][0-9]{6}", re.ASCII)
_MANAGED = "managed"


class CostChange(msgspec.Struct, frozen=True):
    """A pod whose deletion cost is written, or removed where there is none."""

    pod: Pod
    cost: int | None

    @property
    def annotations(self) -> dict[str, str | None]:
        """The annotations that change."""
        value = None if self.cost is None else str(self.cost)
        return {DELETION_COST: value, WRITTEN_COST: value}


def written_cost(pod: Pod) -> int | None:
    """Return the deletion cost of a pod that Shiplap wrote and nobody changed."""
    annotations = pod.metadata.annotations
    text = annotations.get(WRITTEN_COST, "")
    return int(text) if _WRITTEN.fullmatch(text) and annotations.get(DELETION_COST) == text else None


def cost_changes(pods: Iterable[Pod], cost: int | None, of_pool: Mapping[str, str]) -> list[CostChange]:
    """Return the changes that give pods of one node its cost, sorted by pod.

    Args:
        pods: all of the node.
        cost: the cost of its pods, None if they are to have none.
        of_pool: the annotations of its NodePool.
    """
    changes = []
    for pod in sorted(pods, key=lambda item: item.key):
        before = written_cost(pod)
        if pod.metadata.deletion_timestamp or pod.status.phase in TERMINAL_PHASES:
            continue
        if before is None and not _is_free(pod):
            continue
        wanted = cost if _is_managed(pod, of_pool) else None
        if wanted != before:
            changes.append(CostChange(pod, wanted))
    return changes


def _is_free(pod: Pod) -> bool:
    """True if nobody has set a cost, or taken away ours, and the pod is Ready: others are deleted before it anyway."""
    return pod.metadata.annotations.keys().isdisjoint((DELETION_COST, WRITTEN_COST)) and is_ready(pod.status)


def _is_managed(pod: Pod, of_pool: Mapping[str, str]) -> bool:
    if not any(owner.controller and owner.kind == "ReplicaSet" for owner in pod.metadata.owner_references):
        return False
    own = pod.metadata.annotations.get(MANAGED_COST)
    if own is not None:
        return own == _MANAGED
    return of_pool.get(MANAGED_COST) == _MANAGED and not pod.spec.topology_spread_constraints
