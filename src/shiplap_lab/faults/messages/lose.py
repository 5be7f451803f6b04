"""The fault `lose`."""

from __future__ import annotations

from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.messages.queue_names import QUEUES


class LoseFault(FaultKind):
    """Messages of the queues `target` get lost, each with probability `amount`."""

    name = "lose"
    targets = QUEUES

    def drops(self, queue: str, turns: int) -> bool:  # noqa: ARG002 - any message
        """True by chance."""
        if not self.faults.hits(self.name, queue):
            return False
        self.faults.trace.record("message lost", queue=queue)
        return True
