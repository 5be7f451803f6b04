"""Sleep within decisions: pods that sleep are not planned for, and nodes leave whose pods all sleep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate, is_reschedulable
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.sleep.awake_part import NOTHING_ASLEEP, awake_part
from shiplap.policies.sleep.sleep_state import SleepState
from shiplap.policies.sleep.sleep_windows import LEAST_SLEEP_S
from shiplap.policies.sleep.sleeping_nodes import SleepingNodes, find_sleeping
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot


class SleepInput(PolicyInput, DisruptionMethod, frozen=True):
    """The state of a cluster's sleep at the moment of a decision."""

    state: SleepState

    stage: ClassVar[PlanStage] = PlanStage.PODS
    recorded_as: ClassVar[str] = "sleep"

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        """Plan for what is awake. What sleeps waits, and says until when."""
        awake, asleep = awake_part(snapshot, self.state)
        decided = decide(awake)
        if asleep == NOTHING_ASLEEP:
            return decided
        return replace(
            decided,
            unschedulable=tuple(sorted((*decided.unschedulable, *asleep.pods), key=lambda entry: entry.pod)),
            buffers=tuple(sorted((*decided.buffers, *asleep.buffers), key=lambda state: (state.namespace, state.name))),
        )

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """Remove all nodes whose pods sleep and that the budgets allow, in one command; the others wait."""
        if not self.state.scopes:
            return ()
        progress.clock.note(scope.wakes_at - LEAST_SLEEP_S for scope in self.state.scopes)
        pools = progress.snapshot.scheduling.manifests.node_pools
        room = {pool.metadata.name: progress.budgets.left(pool, Reason.ASLEEP) for pool in pools}
        found = self._found(self.state, progress, candidates, room)
        leaving = {item.name for item in (*found.going, *found.waiting)}
        rehearsed = {item.name for item in self._found(self.state.rehearsing(), progress, candidates).going}
        progress.keep_within_budget(found.waiting, Reason.ASLEEP)
        progress.simulator.cordon(sorted(leaving))
        progress.leaving |= leaving
        progress.kept_by_policies |= {name: f"does not sleep: {why}" for name, why in found.kept.items()}
        progress.rehearsed += tuple(sorted(rehearsed - leaving))
        return self._commands(found, progress)

    def _commands(self, found: SleepingNodes, progress: DecisionProgress) -> tuple[DisruptionProposal, ...]:
        if not found.going:
            return ()
        progress.use_budget(found.going)
        names = tuple(sorted(item.name for item in found.going))
        savings, moved = round(sum(item.price for item in found.going), 6), sum(len(item.pods) for item in found.going)
        until = min(scope.until for scope in self.state.scopes if not scope.rehearsal)
        why = f"all their pods sleep, until {rfc3339(until)} at least"
        return (DisruptionProposal(Reason.ASLEEP, Method.SLEEP, names, (), (), savings, moved, why),)

    def _found(
        self,
        state: SleepState,
        progress: DecisionProgress,
        candidates: Sequence[Candidate],
        room: Mapping[str, int] | None = None,
    ) -> SleepingNodes:
        snapshot = progress.snapshot
        scheduling = snapshot.scheduling
        going = progress.candidate_nodes.leaving | snapshot.busy
        leaving = (
            pod for name in sorted(going) for pod in scheduling.view.by_node.get(name, ()) if is_reschedulable(pod)
        )
        able = [item for item in candidates if not progress.backing_off(item)]
        pools = scheduling.manifests.node_pools
        return find_sleeping(state, able, pools, progress.pdb_limits, leaving, scheduling.now, room)
