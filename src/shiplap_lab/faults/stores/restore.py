"""The fault `restore`."""

from __future__ import annotations

from typing import Any

from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class RestoreFault(FaultKind):
    """When it is over, table `state` is as it was when it began; no function runs meanwhile."""

    name = "restore"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._tables: dict[int, dict[str, Any]] = {}

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - its number is enough
        """Keep the tables of all installs."""
        self._tables[number] = {name: install.state.backup() for name, install in self.world.installs.items()}

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - its number is enough
        """Put them back."""
        self.world.restart()
        for name, backup in self._tables.pop(number).items():
            install = self.world.installs[name]
            before = len(install.state.written)
            install.state.restore(backup)
            self.took_effect()
            self.faults.trace.record("restored", install=name, claims=before)
