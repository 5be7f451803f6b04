"""Options of sleep: a NodePool or a namespace sleeps."""

from __future__ import annotations

from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import NAMESPACE, NODE_POOL, SleepingScope, SleepState
from tests.combinations.cluster_draft import ClusterDraft, PoolDraft, Workload
from tests.conformance import given as case

_HOUR_S = 3600


def sleeping_pool(draft: ClusterDraft) -> None:
    """A NodePool that sleeps and would be preferred."""
    draft.pools.append(PoolDraft("night", fields={"limits": {}, "weight": 30}))
    draft.add_policy(SleepInput(_asleep(NODE_POOL, "night")))


def sleeping_namespace(draft: ClusterDraft) -> None:
    """A workload of a namespace that sleeps."""
    draft.workloads.append(Workload("nightly", draft.rng.randint(1, 3), {"app": "job"}, "asleep", {"cpu": "500m"}))
    draft.add_policy(SleepInput(_asleep(NAMESPACE, "asleep")))


def _asleep(kind: str, name: str) -> SleepState:
    began, wakes, ends = int(case.NOW) - 600, int(case.NOW) + 8 * _HOUR_S, int(case.NOW) + 9 * _HOUR_S
    return SleepState(("pool-0", "night"), (SleepingScope(kind, name, began, ends, wakes),), 100)
