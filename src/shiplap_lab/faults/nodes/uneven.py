"""The fault `uneven`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shiplap.ports import Instance
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.fault_kind import FaultKind, Resources


class UnevenFault(FaultKind):
    """With probability `amount` an instance launched meanwhile has a little less of everything than others of its
    type.
    """

    name = "uneven"

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._uneven: set[str] = set()

    def joins(self, machine: Instance) -> float | None:
        """Remember the machine by chance."""
        if self.faults.hits(self.name):
            self._uneven.add(machine.id)
        return 0.0

    def yields(self, machine: Instance, found: Resources) -> Resources | None:
        """Less of everything, and no more cores. All such machines of a type have the same: one shows all of it."""
        if machine.id not in self._uneven:
            return None
        less = shortfall(Random(f"{self.faults.seed}:uneven:{machine.instance_type}"))  # noqa: S311 - repeatable chance
        capacity, allocatable = ({name: less(name, has) for name, has in amounts.items()} for amounts in found)
        return {**capacity, "cpu": found[0]["cpu"]}, allocatable


def shortfall(chance: Random) -> Callable[[str, int], int]:
    """Draw a machine that has less than others of its type: return what is left of a resource, by name and amount.

    Up to 2 % of memory, as firmware and kernel modules take; up to 4 % of the disk, up to a tenth of a core, a pod or
    two.
    """
    shares = {"memory": chance.uniform(0.002, 0.02), "ephemeral-storage": chance.uniform(0.005, 0.04)}
    amounts = {"cpu": chance.randrange(20, 100), "pods": chance.randrange(1, 3)}

    def left(name: str, has: int) -> int:
        return max(0, has - int(has * shares.get(name, 0.0)) - amounts.get(name, 0))

    return left
