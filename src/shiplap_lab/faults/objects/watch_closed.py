"""The fault `watch-closed`."""

from __future__ import annotations

from shiplap_lab.faults.fault_kind import FaultKind


class WatchClosedFault(FaultKind):
    """The API server ends watches of `target` (nodes, pods, bound), with probability `amount` at a change."""

    name = "watch-closed"

    def closes_watch(self, watched: str) -> bool:
        """True by chance."""
        return self.faults.hits(self.name, watched)
