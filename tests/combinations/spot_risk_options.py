"""The option of spot risk."""

from __future__ import annotations

from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, OfferingEvidence
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from tests.combinations.cluster_draft import ZONES, ClusterDraft


def spot_risk(draft: ClusterDraft) -> None:
    """Evidence that one type is interrupted often."""
    hours = (500.0,) * DAY_PARTS
    evidence = tuple(
        OfferingEvidence(zone, name, hours, (interruptions,) * DAY_PARTS)
        for zone in ZONES
        for name, interruptions in (("c.large", 20.0), ("m.large", 0.1))
    )
    draft.add_policy(SpotRiskInput(KnownSpotRisk(SpotRiskSettings("prefer"), 0.025, evidence)))
