"""The fault `snapshot-corrupt`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault_kind import FaultKind


class SnapshotCorruptFault(FaultKind):
    """The object in the bucket cannot be read."""

    name = "snapshot-corrupt"
    amount = Always()

    def reads_snapshot(self, document: bytes) -> bytes:
        """Half of the document."""
        self.took_effect()
        return document[: len(document) // 2]
