"""The fault `long-pending`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class LongPendingFault(FaultKind):
    """Instances launched meanwhile are pending for `amount` seconds."""

    name = "long-pending"
    amount = Between(30, 240)

    def pending_s(self) -> float:
        """The amount."""
        return self.faults.amount_of(self.name)
