"""The options of rollouts: pods of a NodePool, or of a workload, move by restarts of their Deployments."""

from __future__ import annotations

from shiplap.kubernetes.labels import ROLLOUT, ROLLOUT_WITHIN
from tests.combinations.cluster_draft import ClusterDraft


def rollouts_of_a_pool(draft: ClusterDraft) -> None:
    """Pods of a NodePool stay until they have moved, or are evicted after a while."""
    pool = draft.some_pool()
    wish = {ROLLOUT: draft.rng.choice(["evict", "stay"]), ROLLOUT_WITHIN: "10m"}
    pool.fields["annotations"] = pool.fields.get("annotations", {}) | wish


def rollouts_of_a_workload(draft: ClusterDraft) -> None:
    """A workload has a wish of its own, whatever its NodePool's is."""
    workload = draft.rng.choice(draft.workloads)
    wish = {ROLLOUT: draft.rng.choice(["evict", "stay", "never"])}
    workload.metadata["annotations"] = workload.metadata.get("annotations", {}) | wish
