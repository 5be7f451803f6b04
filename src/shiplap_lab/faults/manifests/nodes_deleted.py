"""The fault `nodes-deleted`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.manifests.deleted_objects import DeletedObjects


class NodesDeletedFault(DeletedObjects):
    """Somebody deletes `amount` Nodes."""

    name = "nodes-deleted"
    plural = "nodes"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return chance.randrange(1, 3)
