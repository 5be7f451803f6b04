"""The fault `snapshot-lost`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class SnapshotLostFault(FaultKind):
    """The object is not in the bucket."""

    name = "snapshot-lost"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return 1.0

    def loses_snapshot(self) -> bool:
        """True."""
        self.took_effect()
        return True
