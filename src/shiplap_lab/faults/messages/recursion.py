"""The fault `recursion`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.fault_kind import FaultKind

MOST_TURNS = 16
"""Invocations of one function in one chain of messages, where Lambda does not allow recursive loops."""


class RecursionFault(FaultKind):
    """Lambda drops a message that continues a chain of sixteen of the same function, as where recursive loops are not
    allowed.
    """

    name = "recursion"
    place = -1

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return 1.0

    def drops(self, queue: str, turns: int) -> bool:
        """True at the end of the longest chain."""
        if turns <= MOST_TURNS:
            return False
        self.took_effect()
        self.faults.trace.record("message dropped", queue=queue, turns=turns)
        return True
