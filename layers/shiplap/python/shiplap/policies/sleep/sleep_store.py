"""The port to the notes of sleep."""

from __future__ import annotations

from typing import Protocol

from shiplap.policies.sleep.sleep_state import SleepNotes


class SleepStore(Protocol):
    """Stores the notes of each cluster's sleep, in table `state`."""

    def read(self, cluster: str) -> SleepNotes:
        """Read everything, consistently; empty notes if there are none. Raises StoreError."""
        ...

    def save(self, cluster: str, notes: SleepNotes, now: float) -> SleepNotes:
        """Replace all but the wake of a person; returns the notes as written, their version one higher.

        Raises:
            ConditionFailed: others have written since the notes were read.
            StoreError.
        """
        ...

    def wake(self, cluster: str, woken_at: int, awake_until: int) -> None:
        """Note that a person wakes the cluster, epoch seconds; the last one counts. Raises StoreError."""
        ...
