"""The fault `terminate`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class TerminateFault(FaultKind):
    """`amount` instances end without a warning."""

    name = "terminate"
    amount = Whole(1, 4)
    is_momentary = True
    lasts = False

    def begin(self, number: int, fault: Fault) -> None:
        """End some instances of any capacity type."""
        alive = list(self.world.compute.alive())
        for instance in self.faults.random_of(number).sample(alive, min(len(alive), int(fault.amount))):
            self.took_effect()
            self.world.lose(instance.id, "")
