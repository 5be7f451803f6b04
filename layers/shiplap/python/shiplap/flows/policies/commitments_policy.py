"""Commitments within flows: they are looked up, and who uses them is shared among clusters by notes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.function_install import FunctionInstall
from shiplap.flows.policies.commitments_inputs import (
    COMMITMENTS,
    SOURCE,
    USE,
    commitment_room,
    note_use,
    read_commitments,
    read_use,
    refresh_commitments,
    running_use,
    used_commitments,
)
from shiplap.flows.policies.policy import DecisionFacts, Launches, Policy, SweptFacts
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.commitments.commitment_use import SharedUse
from shiplap.ports import DecisionState
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.policies.commitments.commitment_input import CommitmentInput, CommitmentsInUse

_LOG = logging.getLogger(__name__)


class CommitmentPolicy(Policy):
    """Savings Plans and Reserved Instances: looked up once per invocation, and shared with other clusters by notes."""

    ports = (COMMITMENTS, USE)  # what AWS shows is asked for beside decisions, with a limit of its own

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        super().__init__(settings, context)
        self._known: AccountCommitments | None = None
        self._noted: SharedUse | None = None

    def look_up(self) -> None:
        """Read the account's commitments."""
        self._known = read_commitments(self.settings, self.context)

    def read(self, state: DecisionState, now: float) -> None:  # noqa: ARG002 - notes have a port of their own
        """Read who uses the commitments."""
        self._noted = read_use(self.settings, self.context)

    def planning_input(self, facts: DecisionFacts) -> CommitmentInput | None:
        """Return what new nodes may use."""
        counted = self.settings.policy(CommitmentSettings)
        if counted is None:
            return None
        from shiplap.policies.commitments.commitment_input import CommitmentInput  # noqa: PLC0415 - only what decides needs the planner

        return CommitmentInput(commitment_room(counted, self._known, self._noted, self.settings.name, facts))

    def replacement_input(self, facts: DecisionFacts) -> None:
        """Return nothing: replacements are planned at list prices, so what new nodes may use is not computed."""

    def disruption_input(self, facts: DecisionFacts) -> CommitmentsInUse | None:
        """Return the commitments and who uses them."""
        counted = self.settings.policy(CommitmentSettings)
        if counted is None:
            return None
        from shiplap.policies.commitments.commitment_input import CommitmentsInUse  # noqa: PLC0415 - as above

        return CommitmentsInUse(used_commitments(counted, self._known, self._noted, self.settings.name, facts))

    @classmethod
    def refreshed(cls, cluster: ClusterSettings, install: FunctionInstall, limit_s: float) -> bool:
        """Describe the account's commitments in the Region of a cluster that has a place for them."""
        wanted, context = cluster.policy(CommitmentSettings), install.context(cluster)
        source, store = context.policy_port(SOURCE, limit_s), context.policy_port(COMMITMENTS)
        if wanted is None or source is None or store is None:
            return False
        refresh_commitments(wanted, source, store, install.meter)
        return True

    def may_commit(self, launches: Launches) -> bool:
        """Let other clusters know what of commitments these claims will use; False if one of them was first."""
        if not launches.records or self._noted is None:  # without the notes nothing was planned on commitments
            return True
        running = running_use(launches.snapshot.view.nodes, launches.snapshot.claims)
        return note_use(self.settings, self._noted, running, launches.records, self.context) is not None

    def sweep(self, facts: SweptFacts) -> None:
        """Let other clusters have what nodes of this one use no more; if that fails, the next sweep does."""
        if self._noted is None:
            return
        running = running_use(facts.view.nodes, facts.state.claims)
        try:
            self._noted = note_use(self.settings, self._noted, running, (), self.context) or self._noted
        except StoreError as error:
            self.context.meter.count("CommitmentsNotNoted")
            _LOG.warning("use of commitments not noted: %s", error, extra={"cluster": self.settings.name})
