"""The fault `answer-lost`."""

from __future__ import annotations

from shiplap.errors import ShiplapError
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import silence


class AnswerLostFault(FaultKind):
    """Effects `target` happen, and their answer is lost with probability `amount`."""

    name = "answer-lost"
    targets = (
        "state.advance",
        "state.advance_all",
        "state.commit",
        "state.*",
        "compute.terminate",
        "cluster.patch_node",
    )

    def loses_answer(self, effect: str, invocation: str) -> ShiplapError | None:
        """Lose the answer by chance."""
        if not self.faults.hits(self.name, effect):
            return None
        self.faults.trace.record("answer lost", invocation=invocation, effect=effect)
        return silence(effect)
