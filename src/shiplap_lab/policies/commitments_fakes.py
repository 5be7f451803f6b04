"""The account's commitments in memory, held to the same contract as the adapter."""

from __future__ import annotations

from shiplap.errors import AwsError
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap_lab.fakes.faults import Faults


class FakeCommitments:
    """A CommitmentStore, and a CommitmentSource of what `shown` says."""

    def __init__(self, shown: AccountCommitments | None = None, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.shown = shown
        self.others_alone: list[bool] = []
        self._known: AccountCommitments | None = None

    def describe(self, *, others_alone: bool = False) -> AccountCommitments:
        self.others_alone.append(others_alone)
        with self.faults.effect("commitments.describe"):
            if self.shown is None:
                raise AwsError("not now", code="ServiceUnavailable")
            return self.shown

    def load(self) -> AccountCommitments | None:
        with self.faults.effect("commitments.load"):
            return self._known

    def save(self, commitments: AccountCommitments) -> None:
        with self.faults.effect("commitments.save"):
            self._known = commitments


def fakes(faults: Faults) -> dict[str, object]:
    """Return the ports of the feature by name."""
    known = FakeCommitments(faults=faults)
    return {"commitments": known, "commitment_source": known}
