"""The risk of spot in a drawn install: its settings, and evidence of it."""

from __future__ import annotations

from random import Random

from shiplap.aws import session
from shiplap.aws.policies.spot_risk_adapters import DynamoSpotEvidence
from shiplap.policies.spot_risk.risk_evidence import EvidenceChange
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.settings import ClusterSettings


def settings(_at: float) -> SpotRiskSettings:
    """The cluster prefers offerings that are interrupted less often."""
    return SpotRiskSettings("prefer")


def remember(_install: ClusterSettings, at: float, _draw: Random) -> None:
    """Store what was seen two hours before."""
    change = EvidenceChange(zone_id="euw1-az1", instance_type="m5.large", at=at - 7200, interruptions=2)
    DynamoSpotEvidence(session.client("dynamodb"), "capacity").add([change], "", 0)
