"""The fault `no-answer`."""

from __future__ import annotations

from shiplap.errors import ShiplapError
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import silence


class NoAnswerFault(FaultKind):
    """CreateFleet launches, and its answer is lost, with probability `amount`."""

    name = "no-answer"
    place = -1

    def loses_answer(self, effect: str, invocation: str) -> ShiplapError | None:
        """Lose the answer by chance."""
        if effect != "compute.launch" or not self.faults.hits(self.name):
            return None
        self.faults.trace.record("answer lost", invocation=invocation, effect=effect)
        return silence(effect)
