"""How often one decision tries in vain to place pods of a class: counted, so that no pod can keep a decision busy.

An attempt is one look for room of one kind (nodes, open claims, a new claim) under one set of constraints. Those that
place something are not counted: pods bound their number. Preferences are given up all at once when their attempts are
spent; what a class requires has attempts of its own.
"""

from __future__ import annotations

from shiplap.scheduling.classes import PodClass

PREFERRING, REQUIRING = 128, 512
"""Vain attempts of one class with preferences held to, and with required constraints alone."""

ALL_PREFERRING, ALL_REQUIRING = 2_000, 8_000
"""The same of all classes together, who share it equally."""

LEAST_PREFERRING, LEAST_REQUIRING = 2, 12
"""What every class has, however many there are."""


class Attempts:
    """The vain attempts of one packing, by class."""

    def __init__(self, classes: int) -> None:
        number = max(classes, 1)
        self._most = {
            True: max(LEAST_PREFERRING, min(PREFERRING, ALL_PREFERRING // number)),
            False: max(LEAST_REQUIRING, min(REQUIRING, ALL_REQUIRING // number)),
        }
        self.vain: dict[tuple[int, bool], int] = {}
        self.spent: set[int] = set()
        """Classes whose attempts with required constraints alone are spent."""

    def left(self, item: PodClass, *, preferring: bool) -> bool:
        """Whether a class may try once more; every required node-affinity term may be tried at least once."""
        most = self._most[preferring] + (0 if preferring else 2 * len(item.terms))
        if self.vain.get((item.index, preferring), 0) < most:
            return True
        if not preferring:
            self.spent.add(item.index)
        return False

    def failed(self, item: PodClass, *, preferring: bool) -> None:
        """Count an attempt that placed nothing."""
        key = (item.index, preferring)
        self.vain[key] = self.vain.get(key, 0) + 1
