"""The fault `double`."""

from __future__ import annotations

from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.messages.queue_names import QUEUES


class DoubleFault(FaultKind):
    """Messages of the queues `target` come twice, each with probability `amount`."""

    name = "double"
    targets = QUEUES

    def doubles(self, queue: str) -> bool:
        """True by chance."""
        return self.faults.hits(self.name, queue)
