"""Ceilings in dollars within flows: spending is read with each decision, and counted with what is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shiplap.flows.context import FlowContext
from shiplap.flows.policies.ceilings_inputs import counted_with, read_spending, view_of_spending, with_most_prices
from shiplap.flows.policies.policy import DecisionFacts, Launches, Policy, SweptFacts
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.ceilings.ceiling_use import ClusterSpending
from shiplap.policies.ceilings.ceilings import SpendingView, WantedLaunch
from shiplap.policies.ceilings.ceilings_settings import NO_CEILINGS, CeilingSettings
from shiplap.ports import DecisionState
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import CountChange

if TYPE_CHECKING:
    from shiplap.policies.ceilings.ceiling_input import CeilingInput


class CeilingPolicy(Policy):
    """Ceilings in dollars: spending is read with each decision, and what is launched is counted with its claims."""

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        super().__init__(settings, context)
        self._wants = settings.policy(CeilingSettings) or NO_CEILINGS
        self._spending: ClusterSpending | None = None
        self._wanted_of: Sequence[PlannedClaim] = ()
        self._wanted_launches: list[WantedLaunch] = []

    def read(self, state: DecisionState, now: float) -> None:
        """Read what the cluster spends."""
        self._spending = read_spending(self.settings, state, self.context.state, now)

    def planning_input(self, facts: DecisionFacts) -> CeilingInput | None:
        """Return the ceilings, and how much of each is used."""
        if self._spending is None:
            return None
        from shiplap.policies.ceilings.ceiling_input import CeilingInput  # noqa: PLC0415 - only what decides needs the planner

        return CeilingInput(view_of_spending(self.settings, facts.state, self._spending))

    def disruption_policies(self, policies: tuple[PolicyInput, ...]) -> tuple[PolicyInput, ...]:
        """Leave out ceilings that refuse no replacement: decisions would change with each minute for nothing."""
        if self._wants.stops_launches:
            return policies
        return tuple(item for item in policies if item.stage is not PlanStage.ADMISSION)

    def marked(self, launches: Launches) -> Sequence[NodeClaim]:
        """Return the claims with the most that each may cost, which bounds what it is launched as."""
        return with_most_prices(launches.records, self._wanted(launches))

    def counted(self, launches: Launches) -> CountChange | None:
        """Return what the claims add to the counters of the account, if it has a ceiling."""
        view = self._view(launches)
        if self._spending is None or view is None or not self._wants.of_account:
            return None
        names = {claim.name for claim in launches.records}
        wanted = [item for item in self._wanted(launches) if item.name in names]
        return counted_with(launches.state, self._spending, view, wanted, self.context.clock.now())

    def _wanted(self, launches: Launches) -> list[WantedLaunch]:
        from shiplap.policies.ceilings.launch_costs import wanted_launches  # noqa: PLC0415 - as above

        view = self._view(launches)
        if view is None:
            return []
        if self._wanted_of is not launches.planned:  # the claims are marked first, then counted
            self._wanted_of = launches.planned
            self._wanted_launches = wanted_launches(
                launches.snapshot, view, launches.planned, replaces=launches.replaces
            )
        return self._wanted_launches

    @staticmethod
    def _view(launches: Launches) -> SpendingView | None:
        """Return the ceilings that the plan of these launches was made with."""
        from shiplap.policies.ceilings.ceiling_input import CeilingInput  # noqa: PLC0415 - as above

        known = launches.snapshot.policy(CeilingInput)
        return None if known is None else known.view

    def sweep(self, facts: SweptFacts) -> None:
        """Post what the last hours cost, and make the account's counters true."""
        from shiplap.flows.policies.ceilings_ledger import keep_ledger  # noqa: PLC0415 - only sweeps post

        keep_ledger(self.settings, facts, self._spending, self.context)
