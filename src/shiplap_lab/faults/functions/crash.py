"""The fault `crash`."""

from __future__ import annotations

from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class CrashFault(FaultKind):
    """The next invocation of function `target` dies at its effect number `amount`."""

    name = "crash"
    amount = Whole(0, 60)
    targets = ("schedule", "schedule", "lifecycle", "lifecycle", "interrupt", "disrupt")
    is_momentary = True
    lasts = False

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._deaths: dict[str, list[int]] = {}

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing is drawn
        """Plan one more death."""
        self._deaths.setdefault(fault.target, []).append(int(fault.amount))

    def dies_at(self, function: str) -> int | None:
        """The first death that is planned for a function."""
        planned = self._deaths.get(function)
        return planned.pop(0) if planned else None
