"""The fault `broken-node`."""

from __future__ import annotations

from random import Random

from shiplap.ports import Instance
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.fault_kind import FaultKind, Resources

_MIB = 2**20
_OFTEN_BROKEN = ("memory", "memory", "memory", "cpu", "ephemeral-storage", "pods")
"""Of memory other types learn too, so it is drawn more often."""
_NEXT_TO_NOTHING = {"memory": 10 * _MIB, "cpu": 1, "ephemeral-storage": _MIB, "pods": 1}


class BrokenNodeFault(FaultKind):
    """With probability `amount` the kubelet of an instance launched meanwhile in clusters `target` reports next to
    nothing of one resource.
    """

    name = "broken-node"
    targets = ("*", "left")
    place = -1

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._broken: set[str] = set()

    def joins(self, machine: Instance) -> float | None:
        """Remember the machine by chance."""
        if self.faults.hits(self.name, machine.cluster):
            self._broken.add(machine.id)
            self.faults.trace.record("is broken", instance=machine.id)
        return 0.0

    def is_broken(self, machine: Instance) -> bool:
        """True if the Node does not show what its type has."""
        return machine.id in self._broken

    def yields(self, machine: Instance, found: Resources) -> Resources | None:
        """Next to nothing of one resource, in capacity and allocatable or in allocatable alone."""
        if machine.id not in self._broken:
            return None
        chance = Random(f"{self.faults.seed}:broken:{machine.id}")  # noqa: S311 - repeatable chance
        resource, everywhere = chance.choice(_OFTEN_BROKEN), chance.random() < 0.5
        capacity, allocatable = found
        nothing = {resource: _NEXT_TO_NOTHING[resource]}
        return {**capacity, **nothing} if everywhere else dict(capacity), {**allocatable, **nothing}
