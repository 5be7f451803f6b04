"""The fault `pools-deleted`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class PoolsDeletedFault(ManifestFaultKind):
    """All NodePools are deleted, and created again when it is over."""

    name = "pools-deleted"
    amount = Always()
    suspends = True

    def removes_pools(self, cluster: str) -> bool:
        """True while it lasts."""
        return self.lasts_in(cluster)
