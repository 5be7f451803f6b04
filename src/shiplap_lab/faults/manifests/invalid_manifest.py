"""The fault `invalid-manifest`."""

from __future__ import annotations

from typing import Any

from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class InvalidManifestFault(ManifestFaultKind):
    """The first NodePool does not validate."""

    name = "invalid-manifest"
    amount = Always()

    def edit(self, cluster: str, template: dict[str, Any]) -> None:
        """Set an expiry that is no duration."""
        if self.lasts_in(cluster):
            template["spec"]["expireAfter"] = "soon"
