"""The fault `slow-end`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class SlowEndFault(FaultKind):
    """Instances ended meanwhile are shutting-down for `amount` seconds."""

    name = "slow-end"
    amount = Between(30, 400)

    def ending_s(self) -> float:
        """The amount."""
        return self.faults.amount_of(self.name)
