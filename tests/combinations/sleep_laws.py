"""The law that sleep without an open window changes nothing."""

from __future__ import annotations

from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import SleepState
from shiplap.scheduling.model.snapshot import Snapshot

NAME = "sleep without an open window changes nothing"


def idle(snapshot: Snapshot) -> Snapshot | None:
    """Windows, none of which is open."""
    if snapshot.policy(SleepInput) is not None:
        return None
    armed = tuple(pool.metadata.name for pool in snapshot.manifests.node_pools)
    return snapshot.with_policy(SleepInput(SleepState(armed, (), 100)))
