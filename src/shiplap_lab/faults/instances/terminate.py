"""The fault `terminate`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class TerminateFault(FaultKind):
    """`amount` instances end without a warning."""

    name = "terminate"
    is_momentary = True
    lasts = False

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return chance.randrange(1, 4)

    def begin(self, number: int, fault: Fault) -> None:
        """End some instances of any capacity type."""
        alive = list(self.world.compute.alive())
        for instance in self.faults.random_of(number).sample(alive, min(len(alive), int(fault.amount))):
            self.took_effect()
            self.world.lose(instance.id, "")
