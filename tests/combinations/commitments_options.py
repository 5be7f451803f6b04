"""The options of commitments."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom, RegionalRoom
from tests.combinations.cluster_draft import ClusterDraft
from tests.conformance import given as case


def savings_plan(draft: ClusterDraft) -> None:
    """Add a Savings Plan of some dollars, for one family or for all."""
    dollars = draft.rng.choice([0.05, 0.5, 5])
    held = SavingsPlan("sp", round(dollars * MICROS), case.NOW * 2, draft.rng.choice(["", "m"]), rate_ppm=700_000)
    _add_commitment(draft, savings_plans=(held,))


def reserved_instances(draft: ClusterDraft) -> None:
    """Add regional Reserved Instances of one family."""
    _add_commitment(draft, regional=(RegionalRoom(draft.rng.choice(["c", "m"]), draft.rng.choice([16, 64])),))


def _add_commitment(draft: ClusterDraft, **held: object) -> None:
    before = draft.policy(CommitmentInput)
    draft.add_policy(CommitmentInput(replace(CommitmentRoom() if before is None else before.room, **held)))
