"""The ports to the account's commitments: as AWS shows them, as they were last described, and who uses them."""

from __future__ import annotations

from typing import Protocol

from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse


class CommitmentSource(Protocol):
    """Asks AWS for the account's Savings Plans and Reserved Instances, and for who uses them besides the install."""

    def describe(self, *, others_alone: bool = False) -> AccountCommitments:
        """Everything that applies to one Region; or `others_alone`, without plans and Reserved Instances.

        Raises AwsThrottled, AwsError.
        """
        ...


class CommitmentStore(Protocol):
    """The account's commitments in one Region as last described, in the bucket."""

    def load(self) -> AccountCommitments | None:
        """None before they were first described. Raises StoreError."""
        ...

    def save(self, commitments: AccountCommitments) -> None:
        """Raises StoreError."""
        ...


class CommitmentUseStore(Protocol):
    """The notes of all clusters of the install on the commitments that they use, in table `state`."""

    def read(self) -> SharedUse:
        """Read them, consistently; empty before the first note. Raises StoreError."""
        ...

    def note(self, known: SharedUse, cluster: str, use: ClusterUse, now: float) -> bool:
        """Replace the note of a cluster, if no cluster's has changed since `known` was read. Raises StoreError."""
        ...
