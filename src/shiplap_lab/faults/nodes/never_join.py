"""The fault `never-join`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.fault_kind import FaultKind


class NeverJoinFault(FaultKind):
    """Instances launched meanwhile never join, with probability `amount`."""

    name = "never-join"
    place = -1

    def joins(self, machine: Instance) -> float | None:
        """None by chance."""
        if not self.faults.hits(self.name):
            return 0.0
        self.faults.trace.record("will not join", instance=machine.id)
        return None
