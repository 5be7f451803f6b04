"""The fault `index-lag`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class IndexLagFault(FaultKind):
    """The index of claims by instance shows what was written `amount` seconds ago."""

    name = "index-lag"
    amount = Between(10, 120)

    def index_lag_s(self) -> float:
        """The largest amount."""
        return max((fault.amount for _, fault in self.faults.active_of(self.name)), default=0.0)

    def index_was_late(self) -> None:
        """Count a claim that was not found."""
        self.took_effect()
