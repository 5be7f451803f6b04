"""The port to evidence about spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shiplap.policies.spot_risk.risk_evidence import EvidenceChange, OfferingEvidence


class SpotEvidenceStore(Protocol):
    """Evidence about spot in table `capacity`, shared by all clusters of the account."""

    def read(self, now: float) -> tuple[OfferingEvidence, ...]:
        """Read all of it in weights of `now`, epoch seconds, sorted by zone id and type; it may lag by a second."""
        ...

    def counted_days(self, cluster: str) -> Mapping[tuple[str, str], int]:
        """Read the last day, in days since 1970, that was added for a cluster, by zone id and type."""
        ...

    def add(self, changes: Sequence[EvidenceChange], cluster: str = "", day: int = 0) -> bool:
        """Add changes of one offering; whether they were added.

        With a cluster, they are all of its hours of a day (since 1970): nothing is added for that day again.
        """
        ...
