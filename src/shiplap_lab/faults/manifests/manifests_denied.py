"""The fault `manifests-denied`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class ManifestsDeniedFault(ManifestFaultKind):
    """The API server refuses to list manifests."""

    name = "manifests-denied"
    amount = Always()
    suspends = True

    def denies_manifests(self, cluster: str) -> bool:
        """True while it lasts."""
        return self.lasts_in(cluster)
