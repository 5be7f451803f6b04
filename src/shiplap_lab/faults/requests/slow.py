"""The fault `slow`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import EFFECTS


class SlowFault(FaultKind):
    """Effects `target` take `amount` seconds longer."""

    name = "slow"
    targets = EFFECTS

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(1, 90))

    def slows_s(self, effect: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, effect)
