"""The fault `ami-drift`."""

from __future__ import annotations

from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class AmiDriftFault(FaultKind):
    """From now on each EC2NodeClass has another AMI."""

    name = "ami-drift"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._releases = 0

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Release an AMI."""
        self._releases += 1
        classes = {item.metadata.name for each in self.world.manifests.values() for item in each.node_classes}
        self.world.compute.amis.update(_amis(sorted(classes), self._releases))
        self.faults.effects[self.name] += bool(self.world.compute.alive())


def _amis(names: list[str], version: int) -> dict[str, tuple[Ami, ...]]:
    """The AMI of each EC2NodeClass after so many releases."""
    return {name: (Ami(f"ami-{name}-{version}", f"{name}-{version}", "2026-02-01T00:00:00Z"),) for name in names}
