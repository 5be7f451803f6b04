"""The fault `nodes-deleted`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.manifests.deleted_objects import DeletedObjects


class NodesDeletedFault(DeletedObjects):
    """Somebody deletes `amount` Nodes."""

    name = "nodes-deleted"
    amount = Whole(1, 3)
    plural = "nodes"
