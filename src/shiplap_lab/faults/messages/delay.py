"""The fault `delay`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.messages.queue_names import QUEUES


class DelayFault(FaultKind):
    """Messages of the queues `target` come up to `amount` seconds late, and so in another order."""

    name = "delay"
    amount = Between(1, 300)
    targets = QUEUES

    def delays_s(self, queue: str) -> float:
        """Draw a delay for each active fault."""
        active = self.faults.active_of(self.name, queue)
        late = sum(self.faults.random_of(number).uniform(0, fault.amount) for number, fault in active)
        self.faults.effects[self.name] += late > 0
        return late
