"""The fault `rebalance`."""

from __future__ import annotations

from functools import partial

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.instances.spot_notices import advise, spot_instances


class RebalanceFault(FaultKind):
    """EC2 recommends to leave the share `amount` of spot instances, which run on."""

    name = "rebalance"
    lasts = False

    def begin(self, number: int, fault: Fault) -> None:
        """Advise one instance after the other within the fault's minutes."""
        for delay_s, instance in self.faults.drawn_from(spot_instances(self.world), number, fault):
            self.took_effect()
            self.faults.loop.after(delay_s, partial(advise, self.world, instance.id))
