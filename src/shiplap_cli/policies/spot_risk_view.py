"""The risk of spot on the command line: its evidence, and a launch in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shiplap.instances.offerings.node_prices import MONTH_HOURS
from shiplap.scheduling.model.scheduling_plan import OfferingRisk, PlannedClaim, RiskOfLaunch
from shiplap_cli.policy_views import PolicyView, Unread


class SpotRiskView(PolicyView):
    """Tells how much of a list is left out."""

    unread: ClassVar[Mapping[str, Unread]] = {
        "spot_evidence": Unread("evidence about spot", "all spot has the prior risk", ())
    }

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
