"""The fault `nodeclaims-deleted`."""

from __future__ import annotations

from random import Random

from shiplap_lab.faults.manifests.deleted_objects import DeletedObjects


class NodeclaimsDeletedFault(DeletedObjects):
    """Somebody deletes `amount` NodeClaims."""

    name = "nodeclaims-deleted"
    plural = "nodeclaims"

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return chance.randrange(1, 4)
