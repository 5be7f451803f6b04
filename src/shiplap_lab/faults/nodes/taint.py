"""The fault `taint`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault_kind import FaultKind

_NEIGHBOUR_TAINT = {"key": "neighbour.example.com/claimed", "effect": "NoSchedule"}
"""The taint of a hostile neighbour."""


class TaintFault(FaultKind):
    """Somebody else taints every instance launched meanwhile as soon as it joins."""

    name = "taint"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._tainted: set[str] = set()

    def joins(self, machine: Instance) -> float | None:
        """Remember the machine."""
        self._tainted.add(machine.id)
        self.took_effect()
        return 0.0

    def taints(self, machine: Instance) -> list[dict[str, str]]:
        """The taint, from the first moment on."""
        return [_NEIGHBOUR_TAINT] if machine.id in self._tainted else []
