"""The fault `slow-end`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class SlowEndFault(FaultKind):
    """Instances ended meanwhile are shutting-down for `amount` seconds."""

    name = "slow-end"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(30, 400))

    def ending_s(self) -> float:
        """The amount."""
        return self.faults.amount_of(self.name)
