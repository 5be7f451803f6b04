"""The fault `watch-gone`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class WatchGoneFault(FaultKind):
    """No watch can be opened, and when it is over the API server has forgotten what has changed."""

    name = "watch-gone"
    amount = Always()

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Watches that go on from where they were broken are told to list again."""
        for cluster in self.world.clusters.values():
            cluster.server.compact()

    def breaks_watches(self) -> bool:
        """True: none can go on."""
        return True
