"""The notes of sleep in memory, held to the same contract as the adapter."""

from __future__ import annotations

from threading import Lock

from msgspec.structs import replace

from shiplap.errors import ConditionFailed
from shiplap.policies.sleep.sleep_state import SleepNotes
from shiplap_lab.fakes.faults import Faults


class FakeSleep:
    """The port SleepStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._lock = Lock()
        self._notes: dict[str, SleepNotes] = {}
        self._woken: dict[str, tuple[int, int]] = {}

    def read(self, cluster: str) -> SleepNotes:
        with self._faults.locked_effect("sleep.read", self._lock):
            woken_at, awake_until = self._woken.get(cluster, (0, 0))
            return replace(self._notes.get(cluster, SleepNotes()), woken_at=woken_at, awake_until=awake_until)

    def save(self, cluster: str, notes: SleepNotes, now: float) -> SleepNotes:  # noqa: ARG002 - nothing expires here
        with self._faults.locked_effect("sleep.save", self._lock):
            if self._notes.get(cluster, SleepNotes()).version != notes.version:
                raise ConditionFailed(f"the notes of cluster {cluster} on its sleep have changed")
            written = replace(notes, version=notes.version + 1)
            self._notes[cluster] = replace(written, woken_at=0, awake_until=0)
            return written

    def wake(self, cluster: str, woken_at: int, awake_until: int) -> None:
        with self._faults.locked_effect("sleep.wake", self._lock):
            self._woken[cluster] = (woken_at, awake_until)


def fakes(faults: Faults) -> dict[str, object]:
    """Return the ports of the feature by name."""
    return {"sleep": FakeSleep(faults)}
