"""Options of gangs: a workload whose pods are of use only together."""

from __future__ import annotations

from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_input import GangInput
from tests.combinations.cluster_draft import ClusterDraft, Workload
from tests.rules import ZONE


def gang(draft: ClusterDraft) -> None:
    """Pods that start together or not at all."""
    draft.workloads.append(_gang("gang", draft.rng.randint(2, 4), {}))
    draft.add_policy(GangInput(KnownGangs()))


def gang_of_a_zone(draft: ClusterDraft) -> None:
    """Pods that start together in one zone, of a higher priority than others."""
    topology = {"kueue.x-k8s.io/podset-required-topology": ZONE}
    draft.workloads.append(_gang("near", draft.rng.randint(2, 3), topology, priority=7))
    draft.add_policy(GangInput(KnownGangs()))


def _gang(name: str, count: int, annotations: dict[str, str], **fields: int) -> Workload:
    total = {"kueue.x-k8s.io/pod-group-total-count": str(count)}
    labels = {"app": name, "kueue.x-k8s.io/pod-group-name": name}
    return Workload(
        name, count, labels, fields={"cpu": "900m", **fields}, metadata={"annotations": total | annotations}
    )
