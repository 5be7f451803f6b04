"""The fault `twice`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class TwiceFault(FaultKind):
    """Schedules invoke function `target` again after `amount` seconds."""

    name = "twice"
    targets = ("disrupt", "*")

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(0, 30), 1)

    def invoked_again_s(self, function: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, function)
