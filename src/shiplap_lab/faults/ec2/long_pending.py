"""The fault `long-pending`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind


class LongPendingFault(FaultKind):
    """Instances launched meanwhile are pending for `amount` seconds."""

    name = "long-pending"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return round(chance.uniform(30, 240))

    def pending_s(self) -> float:
        """The amount."""
        return self.faults.amount_of(self.name)
