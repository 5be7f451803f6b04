"""Limits the search by counted work instead of time, so that equal snapshots give equal plans on every machine."""

from __future__ import annotations


class Effort:
    """A budget in microseconds of a reference machine (one 2.5 GHz server core).

    Every costly step charges what it would take there by its array sizes. A slower machine takes longer over the same
    steps and comes to the same plan.
    """

    def __init__(self, micros: float) -> None:
        self.left = micros

    @classmethod
    def of(cls, seconds: float) -> Effort:
        """The effort that takes about so long on the reference machine."""
        return cls(seconds * 1e6)

    @property
    def spent(self) -> bool:
        """True if no effort is left."""
        return self.left <= 0

    def charge(self, steps: int, elements: float) -> None:
        """Pay for `steps` array operations that touch `elements` array elements in all."""
        self.left -= 1.5 * steps + 0.0015 * elements

    def share(self, part: float) -> Effort:
        """A budget of its own, taken from this one: `part` of what is left."""
        micros = max(self.left, 0.0) * part
        self.left -= micros
        return Effort(micros)

    def give_back(self, rest: Effort) -> None:
        """Return the unused rest of a share."""
        self.left += rest.left
