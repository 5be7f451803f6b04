"""Sleep within flows: what sleeps is read, noted before nodes leave, and asked for again before pods do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from shiplap.disruption.commands import Decision, DisruptionProposal, Reason
from shiplap.flows.policies.policy import DecisionFacts, Policy
from shiplap.flows.policies.sleep_inputs import SLEEP, read_sleep
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.sleep.sleep_objections import objection_to_sleep
from shiplap.policies.sleep.sleep_state import SleepState
from shiplap.scheduling.model.snapshot import Snapshot

if TYPE_CHECKING:
    from shiplap.flows.policies.sleep_round import SleepRound
    from shiplap.policies.sleep.sleep_input import SleepInput


class SleepPolicy(Policy):
    """Sleep: read with the supply of an invocation, noted before nodes leave, and asked again before pods do."""

    reason = Reason.ASLEEP
    ports = (SLEEP,)

    def planning_input(self, facts: DecisionFacts) -> SleepInput | None:
        """Return what sleeps now."""
        from shiplap.policies.sleep.sleep_input import SleepInput  # noqa: PLC0415 - only what decides needs the planner

        state = read_sleep(self.settings, self.context, facts.joins)
        return None if state is None else SleepInput(state)

    def noted(self, proposals: Sequence[DisruptionProposal], snapshot: Snapshot) -> Sequence[DisruptionProposal]:
        """Note rehearsals and nodes that are about to leave; what cannot be noted does not begin."""
        return self._round.noted(proposals, self._state(snapshot))

    def tell(self, decision: Decision, snapshot: Snapshot, told: Sequence[str]) -> tuple[str, ...]:
        """Count nodes that stay, and tell of those that would leave if this were no rehearsal."""
        return self._round.tell(decision, self._state(snapshot), snapshot.view.nodes, told)

    def objection(self, claim: NodeClaim, pods: Sequence[Pod], *, has_begun: bool = False) -> str:
        """Return why a node must not leave for sleep after all. What cannot be read keeps it."""
        state, pools = self._going_on if has_begun else self._beginning, self.settings.manifests.node_pools
        return objection_to_sleep(state, claim.plan.node_pool, pods, pools, has_begun=has_begun)

    @cached_property
    def _beginning(self) -> SleepState | None:
        """The state of sleep when it is first asked for: somebody may have woken the cluster since the decision."""
        return read_sleep(self.settings, self.context)

    @cached_property
    def _going_on(self) -> SleepState | None:
        """The same where pods have left already: how long nodes take to join does not matter then."""
        return read_sleep(self.settings, self.context, JoinHistory())

    @cached_property
    def _round(self) -> SleepRound:
        from shiplap.flows.policies.sleep_round import SleepRound  # noqa: PLC0415 - only the disrupt function notes

        return SleepRound(self.settings, self.context)

    @staticmethod
    def _state(snapshot: Snapshot) -> SleepState | None:
        from shiplap.policies.sleep.sleep_input import SleepInput  # noqa: PLC0415 - as above

        known = snapshot.policy(SleepInput)
        return None if known is None else known.state
