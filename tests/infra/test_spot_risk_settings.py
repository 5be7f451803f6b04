"""The key `spotRisk` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from tests.infra.written_installs import WRITTEN, refusal, written


def test_spot_risk_is_set_per_cluster_and_checked(folder: Path) -> None:
    assert written(folder, WRITTEN).clusters[0].settings.policy(SpotRiskSettings) is None
    (cluster,) = written(folder, WRITTEN + "    spotRisk: {mode: observe, mostPremium: 0.1}\n").clusters
    assert cluster.settings.policy(SpotRiskSettings) == SpotRiskSettings("observe", 0.1)
    assert cluster.settings.policies_on == ("spot_risk",)

    error = refusal(folder, WRITTEN + "    spotRisk: {mode: always}\n")

    assert error.field == "clusters[0].spotRisk.mode"
    assert "off, observe, prefer" in error.reason
