"""The fault `twice`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class TwiceFault(FaultKind):
    """Schedules invoke function `target` again after `amount` seconds."""

    name = "twice"
    amount = Between(0, 30, 1)
    targets = ("disrupt", "*")

    def invoked_again_s(self, function: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, function)
