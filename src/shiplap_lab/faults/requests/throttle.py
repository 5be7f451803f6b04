"""The fault `throttle`."""

from __future__ import annotations

from shiplap.errors import ShiplapError
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import EC2, refusal


class ThrottleFault(FaultKind):
    """EC2 refuses requests `target`, such as compute.launch, with probability `amount`."""

    name = "throttle"
    amount = Between(0.5, 1, 2)
    targets = ("compute.*", "compute.launch", "compute.terminate", "compute.instances")

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:
        """Refuse requests to EC2 by chance."""
        if not effect.startswith(EC2) or not self.faults.hits(self.name, effect):
            return None
        self.faults.trace.record("refused", invocation=invocation, effect=effect)
        return refusal(effect)
