"""The option of deletion costs: pods have one, some by Shiplap and one by its user."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.kubernetes.labels import DELETION_COST, MANAGED_COST
from tests.combinations.cluster_draft import ClusterDraft
from tests.combinations.deletion_costs_laws import with_written_cost


def deletion_costs(draft: ClusterDraft) -> None:
    """A NodePool whose pods have deletion costs; the user of the first pod has set its own one."""
    draft.some_pool().fields["annotations"] = {MANAGED_COST: "managed"}
    draft.bound = [with_written_cost(pod) for pod in draft.bound]
    for pod in draft.bound[:1]:
        own = {DELETION_COST: draft.rng.choice(["-100", "2147483647", "none"])}
        draft.bound[0] = replace(pod, metadata=replace(pod.metadata, annotations=own))
