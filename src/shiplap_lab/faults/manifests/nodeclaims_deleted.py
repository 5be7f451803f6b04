"""The fault `nodeclaims-deleted`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.manifests.deleted_objects import DeletedObjects


class NodeclaimsDeletedFault(DeletedObjects):
    """Somebody deletes `amount` NodeClaims."""

    name = "nodeclaims-deleted"
    amount = Whole(1, 4)
    plural = "nodeclaims"
