"""The law that commitments that are all in use change nothing."""

from __future__ import annotations

from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom
from shiplap.scheduling.model.snapshot import Snapshot

NAME = "commitments in use change nothing"


def idle(snapshot: Snapshot) -> Snapshot | None:
    """Nothing is left of them."""
    if snapshot.policy(CommitmentInput) is not None:
        return None
    return snapshot.with_policy(CommitmentInput(CommitmentRoom()))
