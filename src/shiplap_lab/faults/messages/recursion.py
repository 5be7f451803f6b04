"""The fault `recursion`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault_kind import FaultKind

MOST_TURNS = 16
"""Invocations of one function in one chain of messages, where Lambda does not allow recursive loops."""


class RecursionFault(FaultKind):
    """Lambda drops a message that continues a chain of sixteen of the same function, as where recursive loops are not
    allowed.
    """

    name = "recursion"
    amount = Always()
    place = -1

    def drops(self, queue: str, turns: int) -> bool:
        """True at the end of the longest chain."""
        if turns <= MOST_TURNS:
            return False
        self.took_effect()
        self.faults.trace.record("message dropped", queue=queue, turns=turns)
        return True
