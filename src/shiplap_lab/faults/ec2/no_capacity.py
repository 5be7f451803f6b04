"""The fault `no-capacity`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import OneOf
from shiplap_lab.faults.fault_kind import FaultKind


class NoCapacityFault(FaultKind):
    """EC2 has only `amount` instances left of each offering `target`, type/zone/capacity type."""

    name = "no-capacity"
    amount = OneOf((0, 0, 1, 2))
    targets = ("*", "c7i-flex.*", "*/eu-west-1a/*", "*/*/spot", "m6i.*", "*/eu-west-1b/*")

    def adjust(self) -> None:
        """Set the capacity of each offering that an active fault matches."""
        self.world.compute.capacity.clear()
        for offering in self.world.offerings:
            most = [int(fault.amount) for _, fault in self.faults.active_of(self.name, "/".join(offering))]
            if most:
                self.world.compute.capacity[offering] = min(most)

    def launch_failed(self, code: str) -> None:
        """Count what EC2 refused for want of capacity."""
        self.faults.effects[self.name] += code == "InsufficientInstanceCapacity"
