"""The risk of spot in one line."""

from __future__ import annotations

from shiplap.policies.spot_risk.risk_rates import MONTH_HOURS
from shiplap.scheduling.model.scheduling_plan import OfferingRisk, RiskOfLaunch


def risk_text(risk: RiskOfLaunch) -> str:
    """Return how much of a launch list is left out, and its interruptions and its cheapest price before and after."""
    verb = "would be left out" if risk.observed else "left out"
    before, after = _per_month(risk.as_is), _per_month(risk.preferred)
    prices = f"${risk.as_is.price_micros / 1e6:.4f} -> ${risk.preferred.price_micros / 1e6:.4f}"
    return f"{risk.left_out} of {risk.listed} {verb}: {before:.1f} -> {after:.1f} %/month, {prices}"


def _per_month(risk: OfferingRisk) -> float:
    """Per cent of the nodes of the mean offering of a list that are interrupted in a month."""
    return risk.mean_of_list / 1e6 * MONTH_HOURS * 100
