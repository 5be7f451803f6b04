"""The fault `subnets`."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.instances.catalog.resolved_nodeclass import Subnet
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_world import FaultWorld, FaultyEc2


class SubnetsFault(FaultKind):
    """The answer of a launch is lost with probability `amount`; EC2NodeClasses then select other subnets and a zone
    less.
    """

    name = "subnets"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._all: tuple[Subnet, ...] = ()
        self._selections = 0

    def connect(self, world: FaultWorld) -> None:
        """Keep the subnets that are selected without faults."""
        super().connect(world)
        self._all = world.compute.subnets

    def forgets_launch(self, compute: FaultyEc2) -> bool:
        """Select other subnets by chance: the token is asked again with them."""
        if not self.faults.hits(self.name):
            return False
        self._selections += 1
        left = [net for number, net in enumerate(self._all) if number != self._selections % len(self._all)]
        compute.subnets = tuple(replace(net, id=f"{net.id}-{self._selections}") for net in left)
        return True

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Select all subnets again."""
        if not self.is_active:
            self.world.compute.subnets = self._all
