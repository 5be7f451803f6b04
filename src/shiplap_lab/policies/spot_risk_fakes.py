"""Evidence about spot in memory, held to the same contract as the adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from shiplap.policies.spot_risk.risk_evidence import (
    EvidenceChange,
    OfferingEvidence,
    evidence_of_sums,
    sorted_evidence,
    summed,
)
from shiplap_lab.fakes.faults import Faults


class FakeSpotEvidence:
    """A SpotEvidenceStore; `sums` holds the stored sums by zone id and type, `days` what was counted by cluster too."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._lock = Lock()
        self.sums: dict[tuple[str, str], dict[str, float]] = {}
        self.days: dict[tuple[str, str, str], int] = {}

    def read(self, now: float) -> tuple[OfferingEvidence, ...]:
        with self.faults.locked_effect("spot_evidence.read", self._lock):
            return sorted_evidence(evidence_of_sums(*offering, sums, now) for offering, sums in self.sums.items())

    def counted_days(self, cluster: str) -> Mapping[tuple[str, str], int]:
        with self.faults.locked_effect("spot_evidence.counted_days", self._lock):
            return {offering[1:]: day for offering, day in self.days.items() if offering[0] == cluster}

    def add(self, changes: Sequence[EvidenceChange], cluster: str = "", day: int = 0) -> bool:
        offering = (changes[0].zone_id, changes[0].instance_type)
        with self.faults.locked_effect("spot_evidence.add", self._lock):
            if cluster and self.days.get((cluster, *offering), 0) >= day:
                return False
            if cluster:
                self.days[cluster, *offering] = day
            stored = self.sums.setdefault(offering, {})
            for name, amount in summed(changes).items():
                stored[name] = stored.get(name, 0.0) + float(f"{amount:.6g}")
        return True


def fakes(faults: Faults) -> dict[str, object]:
    """Return the ports of the feature by name."""
    return {"spot_evidence": FakeSpotEvidence(faults)}
