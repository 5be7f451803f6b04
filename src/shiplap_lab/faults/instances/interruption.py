"""The fault `interrupt`."""

from __future__ import annotations

from functools import partial

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.instances.spot_notices import WARNING_S, spot_instances, warn


class InterruptFault(FaultKind):
    """Spot takes back the share `amount` of its instances, with the warning of two minutes."""

    name = "interrupt"
    lasts = False

    def begin(self, number: int, fault: Fault) -> None:
        """Warn one instance after the other within the fault's minutes."""
        for delay_s, instance in self.faults.drawn_from(spot_instances(self.world), number, fault):
            self.faults.loop.after(delay_s, partial(self.warn, instance.id))

    def warn(self, instance_id: str) -> None:
        """Warn an instance, and end it when the warning is over."""
        self.faults.trace.record("spot warning", instance=instance_id)
        self.took_effect()
        warn(self.world, instance_id, self.faults.loop.now())
        self.faults.loop.after(WARNING_S, partial(self.world.lose, instance_id, ""))
