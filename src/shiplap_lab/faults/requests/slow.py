"""The fault `slow`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import EFFECTS


class SlowFault(FaultKind):
    """Effects `target` take `amount` seconds longer."""

    name = "slow"
    amount = Between(1, 90)
    targets = EFFECTS

    def slows_s(self, effect: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, effect)
