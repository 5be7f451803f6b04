"""The fault `cold-start`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class ColdStartFault(FaultKind):
    """Each invocation of function `target` is in a new container that takes `amount` seconds to start."""

    name = "cold-start"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(1, 8), 1)

    def starts_late_s(self, function: str) -> float:
        """The amount."""
        return self.faults.amount_of(self.name, function)
