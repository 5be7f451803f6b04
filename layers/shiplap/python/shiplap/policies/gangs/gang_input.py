"""Gangs within decisions: nothing is launched for a gang that cannot have all that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.memory.gang_tries import GANGS
from shiplap.policies.gangs.running_gangs import torn_without
from shiplap.policies.gangs.waiting_gangs import waiting_gangs
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot


class GangInput(PolicyInput, DisruptionMethod, frozen=True):
    """The gangs of a cluster, as far as its pods do not say all of them."""

    known: KnownGangs

    stage: ClassVar[PlanStage] = PlanStage.PODS
    recorded_as: ClassVar[str] = GANGS

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        """Plan for each gang as a whole, or not at all."""
        if self.known.requests is None:
            return self._whole(snapshot, decide)
        from shiplap.policies.gangs.capacity_checks import with_requests  # noqa: PLC0415 - most clusters have none

        return with_requests(snapshot, self.known, lambda changed: self._whole(changed, decide))

    def _whole(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        gangs = waiting_gangs(snapshot.view, self.known, snapshot.now)
        if not gangs:
            return decide(snapshot)
        from shiplap.policies.gangs.whole_gangs import with_whole_gangs  # noqa: PLC0415 - most clusters have no gang

        return with_whole_gangs(snapshot, gangs, decide, self.known.set_aside_s, self.known.tries)

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:  # noqa: ARG002 - all nodes count
        """Remove nothing. Protect the nodes of gangs that run, as if their pods had the annotation do-not-disrupt."""
        found = progress.candidate_nodes
        torn = torn_without(progress.snapshot.scheduling.view, self.known, found.leaving | progress.snapshot.busy)
        if torn:
            protected = tuple(
                replace(item, protected=item.protected or torn.get(item.name, "")) for item in found.candidates
            )
            progress.candidate_nodes = replace(found, candidates=protected)
        return ()
