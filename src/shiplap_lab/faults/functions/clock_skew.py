"""The fault `clock-skew`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class ClockSkewFault(FaultKind):
    """The clocks of containers are up to `amount` seconds apart from the clock of AWS."""

    name = "clock-skew"
    amount = Between(20, 150)

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._skews: dict[tuple[int, int], float] = {}

    def clock_s(self, container: int) -> float:
        """The sum of what the active faults draw for a container."""
        return sum(self._skew(number, fault, container) for number, fault in self.faults.active_of(self.name))

    def _skew(self, number: int, fault: Fault, container: int) -> float:
        key = (number, container)
        if key not in self._skews:
            chance = Random(f"{self.faults.seed}:{number}:clock:{container}")  # noqa: S311 - repeatable chance
            self._skews[key] = chance.uniform(-fault.amount, fault.amount)
            self.took_effect()
        return self._skews[key]
