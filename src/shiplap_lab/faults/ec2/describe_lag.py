"""The fault `describe-lag`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class DescribeLagFault(FaultKind):
    """Describing shows launches and ends `amount` seconds late."""

    name = "describe-lag"
    amount = Between(5, 60)

    def adjust(self) -> None:
        """Set how late describing is."""
        for install in self.world.installs.values():
            lags = (fault.amount for _, fault in self.faults.active_of(self.name))
            install.compute.describe_lag_s = max(lags, default=0.0)

    def described(self, *, is_late: bool) -> None:
        """Count answers that differ from what is there."""
        self.faults.effects[self.name] += is_late
