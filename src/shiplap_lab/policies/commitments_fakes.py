"""The account's commitments and who uses them in memory, held to the same contracts as the adapters."""

from __future__ import annotations

from threading import Lock

from shiplap.errors import AwsError
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse
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


class FakeCommitmentUse:
    """A CommitmentUseStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._lock = Lock()
        self._known = SharedUse()

    def read(self) -> SharedUse:
        with self._faults.locked_effect("commitment_use.read", self._lock):
            return self._known

    def note(self, known: SharedUse, cluster: str, use: ClusterUse, now: float) -> bool:
        with self._faults.locked_effect("commitment_use.note", self._lock):
            if known.version != self._known.version:
                return False
            self._known = known.with_cluster(cluster, use, now)
            return True


def fakes(faults: Faults) -> dict[str, object]:
    """Return the ports of the feature by name."""
    known = FakeCommitments(faults=faults)
    return {"commitments": known, "commitment_source": known, "commitment_use": FakeCommitmentUse(faults)}
