"""The risk of spot within flows: evidence is collected where it arises, and read for each invocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shiplap.flows.context import FlowContext
from shiplap.flows.policies.policy import DecisionFacts, Policy, SweptFacts
from shiplap.flows.policies.spot_risk_inputs import (
    SPOT_EVIDENCE,
    count_day,
    read_evidence,
    record_end,
    record_interruption,
    record_rebalance,
    record_refusals,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.spot_risk.risk_evidence import OfferingEvidence
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.ports import OfferingFailure
from shiplap.settings import ClusterSettings


class SpotRiskPolicy(Policy):
    """The risk of spot: evidence is collected, read once per invocation, and weighed by plans."""

    ports = (SPOT_EVIDENCE,)
    needs_zone_ids = True

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        super().__init__(settings, context)
        self._evidence: tuple[OfferingEvidence, ...] = ()

    def look_up(self) -> None:
        """Read all evidence of the account."""
        self._evidence = read_evidence(self.context)

    def planning_input(self, facts: DecisionFacts) -> SpotRiskInput:  # noqa: ARG002 - evidence is all that plans need
        """Return the evidence, and what a move of a pod costs."""
        settings = self.settings.policy(SpotRiskSettings) or SpotRiskSettings()
        return SpotRiskInput(KnownSpotRisk(settings, self.settings.disruption.move_cost, self._evidence))

    def sweep(self, facts: SweptFacts) -> None:
        """Add what spot nodes lived yesterday to the evidence."""
        count_day(facts.claims, self.settings.name, self.context)

    @classmethod
    def interrupted(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Count an interruption."""
        record_interruption(claim, context)

    @classmethod
    def rebalanced(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Count a recommendation to rebalance."""
        record_rebalance(claim, context)

    @classmethod
    def ended(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Count what a node lived today."""
        record_end(claim, context)

    @classmethod
    def refused(
        cls, failures: Iterable[OfferingFailure], types: Mapping[str, InstanceType], context: FlowContext
    ) -> None:
        """Count refusals for want of capacity."""
        record_refusals(failures, types, context)
