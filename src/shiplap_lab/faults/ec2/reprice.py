"""The fault `reprice`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import OneOf
from shiplap_lab.faults.fault_kind import FaultKind


class RepriceFault(FaultKind):
    """Spot costs `amount` times as much, of offerings `target` (type/zone), from the next hourly catalogue on."""

    name = "reprice"
    amount = OneOf((0.5, 0.8, 1.2, 1.6))
    targets = ("*", "*/eu-west-1a", "c7i.*", "m6i.*")

    def price_factors(self) -> list[tuple[str, float]]:
        """Offerings, as globs, and how many times as much they cost."""
        return [(fault.target, fault.amount) for _, fault in self.faults.active_of(self.name)]
