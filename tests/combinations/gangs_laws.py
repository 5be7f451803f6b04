"""The law that gangs change nothing for pods that are in none."""

from __future__ import annotations

from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.scheduling.model.snapshot import Snapshot

NAME = "gangs change nothing where no pod is in one"


def idle(snapshot: Snapshot) -> Snapshot | None:
    """Gangs are on, and no pod is in one."""
    if snapshot.policy(GangInput) is not None:
        return None
    return snapshot.with_policy(GangInput(KnownGangs()))
