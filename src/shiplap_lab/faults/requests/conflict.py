"""The fault `conflict`."""

from __future__ import annotations

from shiplap.errors import ObjectConflict, ShiplapError
from shiplap_lab.faults.fault_kind import FaultKind


class ConflictFault(FaultKind):
    """Somebody else has just written to the Node, with probability `amount`."""

    name = "conflict"
    place = -1

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:  # noqa: ARG002 - it leaves no trace
        """Refuse a patch of a Node by chance."""
        if effect != "cluster.patch_node" or not self.faults.hits(self.name):
            return None
        return ObjectConflict("the object has been modified", status=409)
