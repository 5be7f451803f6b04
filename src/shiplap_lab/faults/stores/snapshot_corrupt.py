"""The fault `snapshot-corrupt`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class SnapshotCorruptFault(FaultKind):
    """The object in the bucket cannot be read."""

    name = "snapshot-corrupt"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return 1.0

    def reads_snapshot(self, document: bytes) -> bytes:
        """Half of the document."""
        self.took_effect()
        return document[: len(document) // 2]
