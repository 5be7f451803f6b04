"""The kinds of faults of one run, and those of them that are at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shiplap_lab.faults.active_faults import ActiveFaults, Record, VirtualTime
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_kinds import FAULTS
from shiplap_lab.faults.fault_world import FaultWorld

_Kind = TypeVar("_Kind", bound=FaultKind)


class PlayedFaults(ActiveFaults):
    """Active faults, and what each kind of fault does in this run.

    Attributes:
        kinds: all of them, in the order in which they act at a point.
    """

    def __init__(self, loop: VirtualTime, trace: Record, seed: int) -> None:
        super().__init__(loop, trace, seed)
        self.kinds = tuple(kind(self) for kind in sorted(FAULTS, key=lambda kind: kind.place))
        self._by_name = {kind.name: kind for kind in self.kinds}

    @property
    def at_work(self) -> Sequence[FaultKind]:
        """The kinds of which a fault is active, in the order in which they act."""
        if not self.active:
            return ()
        active = {fault.kind for fault in self.active.values()}
        return [kind for kind in self.kinds if kind.name in active]

    def of(self, kind: type[_Kind]) -> _Kind:
        """One kind in this run."""
        found = self._by_name[kind.name]
        assert isinstance(found, kind)  # noqa: S101 - by its name
        return found

    def connect(self, world: FaultWorld) -> None:
        """The run is set up."""
        for kind in self.kinds:
            kind.connect(world)

    def begin(self, number: int, fault: Fault) -> bool:
        """Begin a fault; True if it is active from now on."""
        kind = self._by_name[fault.kind]
        if kind.lasts:
            self.active[number] = fault
            self.adjust()
        kind.begin(number, fault)
        return kind.lasts

    def end(self, number: int) -> Fault | None:
        """End a fault; None if it was not active."""
        over = self.active.pop(number, None)
        self.adjust()
        if over is not None:
            self._by_name[over.kind].end(number, over)
        return over

    def adjust(self) -> None:
        """Make EC2 as the active faults want it."""
        for kind in self.kinds:
            kind.adjust()
