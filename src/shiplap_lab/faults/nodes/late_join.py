"""The fault `late-join`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind


class LateJoinFault(FaultKind):
    """Instances launched meanwhile join `amount` seconds late."""

    name = "late-join"
    amount = Between(30, 400)

    def joins(self, machine: Instance) -> float | None:  # noqa: ARG002 - any machine
        """The amount."""
        return self.faults.amount_of(self.name)
