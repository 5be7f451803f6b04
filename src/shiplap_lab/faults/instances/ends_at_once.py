"""The fault `ends-at-once`."""

from __future__ import annotations

from functools import partial

from shiplap.ports import Instance
from shiplap_lab.faults.fault_kind import FaultKind

_DIES_S = (1.0, 25.0)


class EndsAtOnceFault(FaultKind):
    """Instances launched meanwhile end within seconds, with probability `amount`."""

    name = "ends-at-once"

    def launched(self, instance: Instance) -> None:
        """End it soon, by chance."""
        if self.faults.hits(self.name):
            number, _ = self.faults.active_of(self.name)[0]
            seconds = self.faults.random_of(number).uniform(*_DIES_S)
            self.faults.loop.after(seconds, partial(self.world.lose, instance.id, "Server.InternalError"))
