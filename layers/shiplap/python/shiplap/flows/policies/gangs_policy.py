"""Gangs within flows: claims of a gang are launched together or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shiplap.flows.context import FlowContext
from shiplap.flows.policies.gangs_inputs import (
    POD_GROUPS,
    PROVISIONING_REQUESTS,
    TRIES,
    answer_requests,
    read_pod_groups,
    read_requests,
    read_tries,
    remember_tries,
)
from shiplap.flows.policies.policy import DecisionFacts, Launches, Policy
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gangs_settings import GangSettings
from shiplap.policies.gangs.known_requests import Consumers, KnownRequests, consumers, pods_of_requests
from shiplap.policies.gangs.memory.gang_tries import GangTries
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.policies.gangs.gang import GangMembers
    from shiplap.policies.gangs.gang_input import GangInput


class GangPolicy(Policy):
    """Gangs: nothing is launched for one that cannot have all that it needs."""

    parts = (POD_GROUPS, PROVISIONING_REQUESTS)
    ports = (TRIES,)

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        super().__init__(settings, context)
        self._chosen = settings.policy(GangSettings) or GangSettings()
        self._requests: KnownRequests | None = None
        self._taken: Consumers = {}
        self._tries: tuple[GangTries, ...] | None = None

    def pods_without_objects(self, view: ClusterView, now: float) -> Sequence[Pod]:
        """Return the pods of ProvisioningRequests: those that are to be planned, and those whose room is booked."""
        if not self._chosen.serves_requests:
            return ()
        self._requests = read_requests(self.settings.name, now, self._chosen.wait_s, self.context)
        self._taken = consumers(self._requests, view)
        return pods_of_requests(self._requests, view, self._taken, now)

    def answer(self, view: ClusterView, plan: Plan | None, now: float) -> None:
        """Write the conditions of ProvisioningRequests, and what is to be remembered of gangs that are short."""
        if self._requests is not None and self._requests.served:
            name, taken = self.settings.name, self._taken
            answer_requests(name, self._requests, taken, view.nodes, plan, now, self.context)
        if self._tries is not None and plan is not None:
            remember_tries(self.settings.name, self._tries, plan, now, self.context)

    def planning_input(self, facts: DecisionFacts) -> GangInput:
        """Return what is known of gangs that wait beside their pods."""
        found = self._known(facts.snapshot.view.unbound)
        if not _waiting(facts.snapshot.with_policies([found])):
            return found
        if self._tries is None:
            self._tries = read_tries(self.settings.name, self.context)
        return replace(found, known=replace(found.known, tries=self._tries))

    def replacement_input(self, facts: DecisionFacts) -> GangInput:
        """Return what is known of gangs that wait or run: those must not be torn."""
        return self._known(facts.snapshot.view.pods)

    def _known(self, pods: Iterable[Pod]) -> GangInput:
        from shiplap.policies.gangs.gang_input import GangInput  # noqa: PLC0415 - only what decides needs the planner

        read = read_pod_groups(self.settings.name, pods, self.context)
        known = KnownGangs(self._chosen.wait_s, read, self._chosen.set_aside_s)
        if self._requests is not None:
            known = replace(known, requests=self._requests.states, requests_unread=self._requests.unread)
        return GangInput(known)

    def marked(self, launches: Launches) -> Sequence[NodeClaim]:
        """Return the claims, those of one gang marked as one launch."""
        gangs = _waiting(launches.snapshot)
        if not gangs:
            return launches.records
        from shiplap.policies.gangs.gang_launches import launched_together  # noqa: PLC0415 - most clusters have no gang

        together = launched_together(launches.planned, gangs)
        return [
            replace(claim, launch=replace(claim.launch, atomic=together[claim.name]))
            if claim.name in together
            else claim
            for claim in launches.records
        ]

    def incomplete(
        self, plan: Plan, snapshot: Snapshot, left_out: Collection[str], unproven: Collection[str]
    ) -> Mapping[str, str]:
        """Return the claims of gangs that would be short without what is left out."""
        gangs = _waiting(snapshot)
        if not gangs:
            return {}
        from shiplap.policies.gangs.gang_launches import incomplete_gangs  # noqa: PLC0415 - as above

        return incomplete_gangs(plan, gangs, left_out, unproven)


def _waiting(snapshot: Snapshot) -> Sequence[GangMembers]:
    """The gangs that a decision was made for."""
    from shiplap.policies.gangs.gang_input import GangInput  # noqa: PLC0415 - as above
    from shiplap.policies.gangs.waiting_gangs import waiting_gangs  # noqa: PLC0415 - as above

    known = snapshot.policy(GangInput)
    return () if known is None else waiting_gangs(snapshot.view, known.known, snapshot.now)
