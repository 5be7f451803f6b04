"""The port to the tries for gangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shiplap.policies.gangs.memory.gang_tries import GangTries


class GangTriesStore(Protocol):
    """Stores the tries for the gangs of each cluster, in table `state`."""

    def read(self, cluster: str) -> tuple[GangTries, ...]:
        """Read all of a cluster; none where nothing is remembered, or nothing that can be read. Raises StoreError."""
        ...

    def save(self, cluster: str, tries: Sequence[GangTries], now: float) -> None:
        """Replace all of a cluster, whoever wrote before: what is lost costs a try. Raises StoreError."""
        ...
