"""The tries for gangs in memory, held to the same contract as the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from shiplap.policies.gangs.memory.gang_tries import GangTries
from shiplap_lab.fakes.faults import Faults


class FakeGangTries:
    """The port GangTriesStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._lock = Lock()
        self._tries: dict[str, tuple[GangTries, ...]] = {}

    def read(self, cluster: str) -> tuple[GangTries, ...]:
        with self._faults.locked_effect("gang_tries.read", self._lock):
            return self._tries.get(cluster, ())

    def save(self, cluster: str, tries: Sequence[GangTries], now: float) -> None:  # noqa: ARG002 - nothing expires here
        with self._faults.locked_effect("gang_tries.save", self._lock):
            self._tries[cluster] = tuple(tries)


def fakes(faults: Faults) -> dict[str, object]:
    """Return the ports of the feature by name."""
    return {"gang_tries": FakeGangTries(faults)}
