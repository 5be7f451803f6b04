"""HealthSource in memory: all is healthy until a test sets ailments."""

from __future__ import annotations

from shiplap.ports import InstanceProblem
from shiplap_lab.fakes.faults import Faults


class FakeHealth:
    """The port HealthSource.

    Attributes:
        ailments: what `ailing` tells.
        shifted: ids of zones that traffic is shifted away from.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self.ailments: set[InstanceProblem] = set()
        self.shifted: set[str] = set()
        self._faults = faults or Faults()

    def ailing(self) -> tuple[InstanceProblem, ...]:
        """All ailments, sorted."""
        with self._faults.effect("health.ailing"):
            return tuple(sorted(self.ailments))

    def shifted_zones(self) -> frozenset[str]:
        """The shifted zones."""
        with self._faults.effect("health.shifted_zones"):
            return frozenset(self.shifted)
