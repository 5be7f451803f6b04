"""The fault `never-ready`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class NeverReadyFault(FaultKind):
    """Nodes of instances launched meanwhile never become Ready, with probability `amount`."""

    name = "never-ready"
    amount = Between(0.1, 0.4, 2)

    def keeps_unready(self, machine: Instance) -> bool:
        """True by chance."""
        if not self.faults.hits(self.name):
            return False
        self.faults.trace.record("will not be ready", instance=machine.id)
        return True
