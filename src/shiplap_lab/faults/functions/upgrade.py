"""The fault `upgrade`."""

from __future__ import annotations

from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind, Stored
from shiplap_lab.faults.functions.versions import as_previous_version, message_of_previous_version


class UpgradeFault(FaultKind):
    """The alias is moved and moved back: running functions die, and meanwhile the version before runs."""

    name = "upgrade"

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """The version before is in service."""
        self.world.restart()

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """The newest version is in service again."""
        self.world.restart()

    def sends(self, body: str) -> str:
        """A message as the version before sends it."""
        return message_of_previous_version(body)

    def stores(self, record: Stored) -> Stored:
        """A record as the version before writes it; claims are counted."""
        self.faults.effects[self.name] += isinstance(record, NodeClaim)
        return as_previous_version(record)
