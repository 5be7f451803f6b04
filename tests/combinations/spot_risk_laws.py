"""The law that spot risk without evidence changes nothing."""

from __future__ import annotations

from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.model.snapshot import Snapshot

NAME = "spot risk without evidence changes nothing"


def idle(snapshot: Snapshot) -> Snapshot | None:
    """No evidence yet."""
    if snapshot.policy(SpotRiskInput) is not None:
        return None
    return snapshot.with_policy(SpotRiskInput(KnownSpotRisk(SpotRiskSettings("prefer"), 0.025)))
