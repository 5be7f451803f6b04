"""The key `spotRisk` of shiplap.yaml, and the permission to note evidence about spot."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.aws.policies.spot_risk_adapters import SPOT
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap_cdk.policy_document import Grant, PolicyDocument


class SpotRiskDocument(PolicyDocument):
    """Spot risk: evidence is added to where it arises; `schedule` and `disrupt` read the table anyway."""

    explanation = "Evidence about interruptions of spot, and launches that avoid what is interrupted often."
    of_cluster = (SpotRiskSettings, SpotRiskSettings())
    functions = ("schedule", "lifecycle", "interrupt")

    def settings(self, written: SpotRiskSettings) -> SpotRiskSettings | None:
        """Return the settings as they are written."""
        return written if written.is_on else None

    def grants(self) -> Sequence[Grant]:
        """Return the permission to add to the partition of evidence."""
        return [("NoteSpotEvidence", ["dynamodb:UpdateItem"], "capacity", SPOT)]


DOCUMENT = SpotRiskDocument()
