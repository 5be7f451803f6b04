"""The fault `late-warning`."""

from __future__ import annotations

from functools import partial

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.instances.spot_notices import WARNING_S, spot_instances, warn

_LATER_S = 45.0
"""How much later than the first a second spot warning says that it happened, in seconds."""


class LateWarningFault(FaultKind):
    """Spot takes back the share `amount` of its instances; the warning comes up to two minutes late, and twice: the
    second names a later moment.
    """

    name = "late-warning"

    def begin(self, number: int, fault: Fault) -> None:
        """Take one instance after the other back within the fault's minutes."""
        for delay_s, instance in self.faults.drawn_from(spot_instances(self.world), number, fault):
            self.faults.loop.after(delay_s, partial(self._take_back, number, instance.id))

    def _take_back(self, number: int, instance_id: str) -> None:
        chance, loop = self.faults.random_of(number), self.faults.loop
        now = loop.now()
        self.took_effect()
        self.faults.trace.record("spot warning", instance=instance_id, late=True)
        for moment in (now, now + chance.uniform(0, _LATER_S)):
            loop.after(chance.uniform(1, WARNING_S), partial(warn, self.world, instance_id, moment))
        loop.after(WARNING_S, partial(self.world.lose, instance_id, ""))
