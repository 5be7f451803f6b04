"""The fault `refuse`."""

from __future__ import annotations

from shiplap.errors import ShiplapError
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import EFFECTS, refusal


class RefuseFault(FaultKind):
    """Effects `target` fail with probability `amount` before they happen."""

    name = "refuse"
    targets = EFFECTS

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:
        """Refuse by chance."""
        if not self.faults.hits(self.name, effect):
            return None
        self.faults.trace.record("refused", invocation=invocation, effect=effect)
        return refusal(effect)
