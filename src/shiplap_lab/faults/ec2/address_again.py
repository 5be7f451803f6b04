"""The fault `address-again`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class AddressAgainFault(FaultKind):
    """Instances launched have the host names of instances that have ended."""

    name = "address-again"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._ended_names: list[str] = []

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Host names of instances that have ended before are given again, too."""
        compute = self.world.compute
        used = {item.private_dns for item in compute.alive()} | set(compute.freed_names)
        compute.freed_names += [name for name in dict.fromkeys(self._ended_names) if name not in used]

    def ended(self, instance: Instance) -> None:
        """Keep the host name, for now or for later."""
        self._ended_names.append(instance.private_dns)
        if self.is_active:
            self.world.compute.freed_names.append(instance.private_dns)

    def named_again(self) -> None:
        """Count an instance that was given such a name."""
        self.took_effect()

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Give names no more."""
        if not self.is_active:
            self.world.compute.freed_names.clear()
