"""The risk of spot on the command line: its evidence, and a launch in one line."""

from __future__ import annotations

from typing import cast

from shiplap.aws.policy_adapters import MakePorts
from shiplap.policies.spot_risk.evidence_store import SpotEvidenceStore
from shiplap.policies.spot_risk.risk_evidence import OfferingEvidence
from shiplap.policies.spot_risk.risk_rates import MONTH_HOURS
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.model.scheduling_plan import OfferingRisk, PlannedClaim, RiskOfLaunch
from shiplap.settings import ClusterSettings
from shiplap_cli.policy_views import PolicyView


class SpotRiskView(PolicyView):
    """Reads the evidence, and tells how much of a list is left out."""

    unread = ("evidence about spot", "all spot has the prior risk")

    def read(self, ports: MakePorts, now: float) -> tuple[OfferingEvidence, ...]:
        """Read all evidence of the account."""
        return cast("SpotEvidenceStore", ports["spot_evidence"]()).read(now)

    def planning_input(
        self, settings: ClusterSettings, known: tuple[OfferingEvidence, ...] | None
    ) -> SpotRiskInput | None:
        """Return how often spot offerings are interrupted; None where spot risk is off."""
        chosen = settings.policy(SpotRiskSettings)
        if chosen is None or not chosen.is_on:
            return None
        return SpotRiskInput(KnownSpotRisk(chosen, settings.disruption.move_cost, known or ()))

    def of_launch(self, claim: PlannedClaim) -> str:
        """Return the risk of a launch that may be spot."""
        return risk_text(claim.spot_risk) if claim.spot_risk else ""


VIEW = SpotRiskView()


def risk_text(risk: RiskOfLaunch) -> str:
    """Return how much of a launch list is left out, and its interruptions and its cheapest price before and after."""
    verb = "would be left out" if risk.observed else "left out"
    before, after = _per_month(risk.as_is), _per_month(risk.preferred)
    prices = f"${risk.as_is.price_micros / 1e6:.4f} -> ${risk.preferred.price_micros / 1e6:.4f}"
    return f"{risk.left_out} of {risk.listed} {verb}: {before:.1f} -> {after:.1f} %/month, {prices}"


def _per_month(risk: OfferingRisk) -> float:
    """Per cent of the nodes of the mean offering of a list that are interrupted in a month."""
    return risk.mean_of_list / 1e6 * MONTH_HOURS * 100
