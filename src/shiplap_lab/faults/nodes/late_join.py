"""The fault `late-join`."""

from __future__ import annotations

from random import Random

from shiplap.ports import Instance
from shiplap_lab.faults.fault_kind import FaultKind


class LateJoinFault(FaultKind):
    """Instances launched meanwhile join `amount` seconds late."""

    name = "late-join"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(30, 400))

    def joins(self, machine: Instance) -> float | None:  # noqa: ARG002 - any machine
        """The amount."""
        return self.faults.amount_of(self.name)
