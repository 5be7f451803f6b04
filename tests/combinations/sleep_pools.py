"""NodePools that launch nothing while they sleep."""

from __future__ import annotations

from collections.abc import Collection

from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import NODE_POOL
from shiplap.scheduling.model.snapshot import Snapshot


def closed(snapshot: Snapshot) -> Collection[str]:
    """Return the names of the NodePools that sleep."""
    sleep = snapshot.policy(SleepInput)
    return sleep.state.asleep(NODE_POOL) if sleep is not None else ()
