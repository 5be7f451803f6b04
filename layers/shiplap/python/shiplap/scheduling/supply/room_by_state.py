"""The states that open claims are in, and the room that pods find there.

Claims of one group with the same load are in one state: they take as many pods, at the same price. Pods of one size
with the same constraints ask about each state once, however many claims are in it and however often they look.
"""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.model.resources import Floats, Ints


class ClaimStates:
    """Numbers states: of each the number of its group and its load."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.loads: list[Ints] = []
        self._numbers: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self.groups)

    def number(self, group: int, load: Ints) -> int:
        """The state of a claim of a group with a load [resources]."""
        number = self._numbers.setdefault((group, load.tobytes()), len(self.groups))
        if number == len(self.groups):
            self.groups.append(group)
            self.loads.append(load.copy())
        return number


class RoomByState:
    """Answers about pods of one size with the same constraints, by state of the claims; each is asked for once.

    `many` [states] pods fit, -1 where nobody asked. A pod adds `added` [states] to the price in USD per hour, infinite
    where none fits, not a number where nobody asked. `kept` [states] pods fit without another row, -1 as above.
    """

    def __init__(self) -> None:
        self.many: Ints = np.full(64, -1, np.int64)
        self.kept: Ints = np.full(64, -1, np.int64)
        self.added: Floats = np.full(64, np.nan)

    def reach(self, states: int) -> None:
        """Make room for the answers about so many states."""
        while len(self.many) < states:
            self.many = np.concatenate([self.many, np.full_like(self.many, -1)])
            self.kept = np.concatenate([self.kept, np.full_like(self.kept, -1)])
            self.added = np.concatenate([self.added, np.full_like(self.added, np.nan)])
