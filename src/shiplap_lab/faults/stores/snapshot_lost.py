"""The fault `snapshot-lost`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault_kind import FaultKind


class SnapshotLostFault(FaultKind):
    """The object is not in the bucket."""

    name = "snapshot-lost"
    amount = Always()

    def loses_snapshot(self) -> bool:
        """True."""
        self.took_effect()
        return True
