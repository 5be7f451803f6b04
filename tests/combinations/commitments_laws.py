"""The laws that commitments that are all in use change nothing, and that no pod loses its place to commitments."""

from __future__ import annotations

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom, RegionalRoom
from shiplap.scheduling.model.snapshot import PlanStage, Snapshot

NAME = "commitments in use change nothing"
ADDED = "commitments leave no more pods out"


def idle(snapshot: Snapshot) -> Snapshot | None:
    """Nothing is left of them."""
    if snapshot.policy(CommitmentInput) is not None:
        return None
    return snapshot.with_policy(CommitmentInput(CommitmentRoom()))


def added(snapshot: Snapshot) -> Snapshot | None:
    """Some commitments. Ceilings, gangs and sleep may decide on other nodes then."""
    if {policy.stage for policy in snapshot.policies} - {PlanStage.LAUNCHES}:
        return None
    plan = SavingsPlan("sp", MICROS // 2, round(2 * snapshot.now), "", rate_ppm=700_000)
    return snapshot.with_policy(
        CommitmentInput(CommitmentRoom(regional=(RegionalRoom("m", 16),), savings_plans=(plan,)))
    )
