"""Pending pods in, instances out: the queue `provisioning`, one flow per cluster for a whole batch, in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shiplap.flows import batch, claim_events
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.live_settings import KnownManifests, listed_settings
from shiplap.flows.messages import MANIFESTS_CHANGED, TURN_MISSED, PodsPending, Sweep, for_schedule
from shiplap.flows.optional.optional_calls import EVENTS
from shiplap.flows.planning.decision_inputs import CarriedPods
from shiplap.flows.schedule.schedule import schedule
from shiplap.flows.schedule.standalone_launches import with_standalone_claims
from shiplap.flows.shown_claims import show_claims
from shiplap.flows.sweep.manifest_statuses import publish_statuses
from shiplap.flows.turns import FULL_SWEEP_S, Due, IdleClusters, Turns, TurnTimes, check_answers, needs_sweep
from shiplap.settings import ClusterSettings


class SweepTimes:
    """Remembers when this process last swept a cluster, epoch seconds by name."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, cluster: str, now: float) -> None:
        """A sweep begins."""
        self._at[cluster] = now

    def is_overdue(self, cluster: str, now: float) -> bool:
        """True if even an idle cluster is to be swept."""
        return self._at.get(cluster, 0.0) + FULL_SWEEP_S <= now


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, Any]:
    """A batch of SQS records in, the messages to deliver again out."""
    clock, idle, swept = install.clock, install.warm.of(IdleClusters), install.warm.of(SweepTimes)
    known = install.warm.of(KnownManifests)
    deadline = clock.now() + context.get_remaining_time_in_millis() / 1000

    def probe(due: Due) -> bool:
        ports = install.context(due.cluster)
        if due.named:
            return check_answers(ports)
        overdue = swept.is_overdue(due.cluster.name, clock.now())
        return needs_sweep(due.cluster, ports, idle) or overdue

    def flow(cluster: ClusterSettings, hints: Sequence[PodsPending | Sweep], until: float) -> str:
        if any(isinstance(hint, Sweep) for hint in hints):
            swept.note(cluster.name, clock.now())
        ports = install.context(cluster)
        current, state = listed_settings(cluster, ports, known, keep=True)
        is_due = any(isinstance(hint, Sweep) or hint.reason == MANIFESTS_CHANGED for hint in hints)
        if is_due:
            state = with_standalone_claims(state, current, ports, known)
        report = schedule(
            current,
            hints,
            ports,
            owner=context.aws_request_id,
            deadline=until,
            manifest_state=state,
            bound_pods=install.warm.of(CarriedPods).of(cluster.name, ports),
        )
        if known.note_buffers(cluster.name, report.buffers) or is_due:
            publish_statuses(current, ports, known, state)  # last: no launch waits for it
        else:
            show_claims(report.launched, current, ports, state)
        return report.unfinished

    def hand_on(cluster: ClusterSettings, since: float) -> None:
        """By way of the bus: a function that filled its own queue would be a loop to Lambda, which ends those."""
        now = clock.now()
        event_id = f"{cluster.name}/turn/{now:.3f}"
        hint = claim_events.pods_pending(cluster.name, (), TURN_MISSED, since or now, event_id=event_id)
        ports = install.context(cluster)
        ports.within(EVENTS, ports.bus).publish([hint])

    with install.reporting(context.aws_request_id):
        return batch.run(
            event["Records"],
            for_schedule,
            flow,
            settings=install.served,
            dead_letters=install.dead_letters,
            meter=install.meter,
            turns=Turns(clock, deadline, probe, executor=install.executor, times=install.warm.of(TurnTimes)),
            hand_on=hand_on,
        )
