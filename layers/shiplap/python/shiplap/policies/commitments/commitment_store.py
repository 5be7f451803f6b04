"""The port to the account's commitments as they were last described."""

from __future__ import annotations

from typing import Protocol

from shiplap.policies.commitments.account_commitments import AccountCommitments


class CommitmentStore(Protocol):
    """The account's commitments in one Region as last described, in the bucket."""

    def load(self) -> AccountCommitments | None:
        """None before they were first described. Raises StoreError."""
        ...

    def save(self, commitments: AccountCommitments) -> None:
        """Raises StoreError."""
        ...
