"""The fault `quota`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.fault_kind import FaultKind


class QuotaFault(FaultKind):
    """EC2 lets the account have only `amount` more instances of the capacity type `target`."""

    name = "quota"
    amount = Whole(0, 3)
    targets = ("on-demand", "spot")

    def adjust(self) -> None:
        """Set the quota of each capacity type that an active fault names."""
        quotas = self.world.compute.quotas
        quotas.clear()
        for _, fault in self.faults.active_of(self.name):
            for capacity_type in ("on-demand", "spot"):
                if fault.target in ("*", capacity_type):
                    quotas[capacity_type] = min(int(fault.amount), quotas.get(capacity_type, int(fault.amount)))

    def launch_failed(self, code: str) -> None:
        """Count what EC2 refused for the quota."""
        self.faults.effects[self.name] += code == "VcpuLimitExceeded"
