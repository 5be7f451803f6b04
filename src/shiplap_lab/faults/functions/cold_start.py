"""The fault `cold-start`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class ColdStartFault(FaultKind):
    """Each invocation of function `target` is in a new container that takes `amount` seconds to start."""

    name = "cold-start"
    amount = Between(1, 8, 1)

    def starts_late_s(self, function: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, function)
