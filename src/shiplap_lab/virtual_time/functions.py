"""The Lambda functions of the simulated install: each runs the same flow as its handler, under the same limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from shiplap.disruption.standstill import LastDecision
from shiplap.errors import ShiplapError
from shiplap.flows import batch, messages
from shiplap.flows.catalog.refresh import refresh
from shiplap.flows.context import FlowContext
from shiplap.flows.disrupt.disruption_round import disrupt
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.interrupt.notices import Notice, read_notice
from shiplap.flows.lifecycle.lifecycle import visit_claims
from shiplap.flows.messages import NodeSeen, PodsPending, Sweep, Timer, for_lifecycle, for_schedule, rfc3339
from shiplap.flows.schedule.schedule import schedule
from shiplap.flows.turns import Turns
from shiplap.ports import BusEvent
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.bucket import FakeMemory
from shiplap_lab.fakes.dead_letters import FakeDeadLetters
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector, Invocation
from shiplap_lab.virtual_time.queues import DeliverySettings, SimulatedQueue
from shiplap_lab.virtual_time.trace import Trace

TIMEOUT_S = {"schedule": 300.0, "lifecycle": 60.0, "interrupt": 10.0, "disrupt": 300.0, "catalog": 300.0}
"""Seconds after which Lambda ends each function."""

_LOG = logging.getLogger(__name__)

_VISIBILITY_FACTOR = 6

_HINTS = {messages.POD_PENDING: "provisioning", messages.NODE_JOINED: "lifecycle", messages.NODE_READY: "lifecycle"}


class SimulatedFunctions:
    """All functions of one install, its queues and its schedules."""

    def __init__(
        self,
        settings: Settings,
        loop: EventLoop,
        faults: FaultInjector,
        trace: Trace,
        *,
        state: FakeState,
        memory: FakeMemory,
        dead_letters: FakeDeadLetters,
    ) -> None:
        self.contexts: dict[str, FlowContext] = {}
        self._settings, self._loop, self._faults, self._trace = settings, loop, faults, trace
        self._state, self._memory, self._dead_letters = state, memory, dead_letters
        self._invocations = 0
        self._last_decisions: dict[str, LastDecision] = {}
        self._queues = {
            "provisioning": self._queue("provisioning", self._schedule, 1000, 1.0, "schedule", 2),
            "lifecycle": self._queue("lifecycle", self._lifecycle, 10, 0.0, "lifecycle", 10),
            "interruption": self._queue("interruption", self._interrupt, 10, 0.0, "interrupt", 10),
        }

    def _queue(
        self,
        name: str,
        deliver: Callable[[list[tuple[str, str]]], set[str] | None],
        size: int,
        window_s: float,
        function: str,
        at_once: int,
    ) -> SimulatedQueue:
        feed = DeliverySettings(size, window_s, _VISIBILITY_FACTOR * TIMEOUT_S[function], at_once)
        return SimulatedQueue(name, self._loop, self._faults, self._trace, deliver, feed)

    # Triggers

    def start(self, later_s: float = 0.0) -> None:
        """Begin the schedules."""
        for number, cluster in enumerate(self._settings.clusters):
            self._loop.every(60.0, lambda cluster=cluster: self.sweep(cluster), first_s=7.0 + number + later_s)  # type: ignore[misc]
            self._loop.every(60.0, lambda cluster=cluster: self._disrupt(cluster), first_s=31.0 + number + later_s)  # type: ignore[misc]
            self._loop.every(3600.0, lambda cluster=cluster: self._catalog(cluster), first_s=1800.0)  # type: ignore[misc]

    def forget(self) -> None:
        """Lose the memory of all processes, as when they are replaced."""
        self._last_decisions.clear()

    def sweep(self, cluster: ClusterSettings) -> None:
        """Send the message that EventBridge Scheduler sends every minute."""
        body = {"kind": "sweep", "cluster": cluster.name, "time": rfc3339(self._loop.now())}
        self._queues["provisioning"].send(json.dumps(body))

    def route(self, event: BusEvent) -> None:
        """Send an event to the queue that the rules of the bus name."""
        queue = _HINTS.get(event.detail_type)
        if queue is not None:
            body = {"detail-type": event.detail_type, "source": event.source, "detail": event.detail}
            self._queues[queue].send(json.dumps(body))

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Send a timer's message with its delay."""
        self._queues["lifecycle"].send(json.dumps({"cluster": cluster, "claim": claim, "step": step}), delay_s)

    def ec2_event(self, detail_type: str, instance_id: str, **detail: str) -> None:
        """Send an event of EC2 from the default bus."""
        body = {
            "source": "aws.ec2",
            "detail-type": detail_type,
            "time": rfc3339(self._loop.now()),
            "detail": {"instance-id": instance_id, **detail},
        }
        self._queues["interruption"].send(json.dumps(body))

    @property
    def given_up(self) -> int:
        """Messages that came to the dead letters after too many deliveries."""
        return sum(queue.dead for queue in self._queues.values())

    # Invocations

    def _invoke(self, function: str, act: Callable[[Invocation], None]) -> bool:
        self._invocations += 1
        name = f"{function}-{self._invocations}"
        invocation = Invocation(function, name, self._loop.now() + TIMEOUT_S[function], self._loop.now())
        self._trace.record("invoked", invocation=name)
        lived = self._faults.run(invocation, lambda: act(invocation))
        self._trace.record("ended", invocation=name, effects=invocation.points)
        return lived

    def _records(self, due: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        return [{"messageId": name, "body": body} for name, body in due]

    def _failed(self, function: str, act: Callable[[Invocation], dict[str, list[dict[str, str]]]]) -> set[str] | None:
        answer: dict[str, list[dict[str, str]]] = {}
        if not self._invoke(function, lambda invocation: answer.update(act(invocation))):
            return None
        return {item["itemIdentifier"] for item in answer["batchItemFailures"]}

    def _schedule(self, due: list[tuple[str, str]]) -> set[str] | None:
        def act(invocation: Invocation) -> dict[str, list[dict[str, str]]]:
            def flow(cluster: ClusterSettings, hints: Sequence[PodsPending | Sweep], until: float) -> str:
                context = self.contexts[cluster.name]
                report = schedule(cluster, hints, context, owner=invocation.name, deadline=until)
                if report.launched or report.failed or report.unfinished:
                    self._trace.record(
                        "scheduled",
                        invocation=invocation.name,
                        launched=report.launched,
                        failed=report.failed,
                        unfinished=report.unfinished,
                    )
                return report.unfinished

            return self._run(due, for_schedule, flow, invocation)

        return self._failed("schedule", act)

    def _lifecycle(self, due: list[tuple[str, str]]) -> set[str] | None:
        def flow(cluster: ClusterSettings, hints: Sequence[NodeSeen | Timer], _until: float) -> str:
            report = visit_claims(cluster, hints, self.contexts[cluster.name])
            if report.registered or report.initialized or report.ended:
                self._trace.record(
                    "attended", registered=report.registered, initialized=report.initialized, ended=report.ended
                )
            return ""

        return self._failed("lifecycle", lambda invocation: self._run(due, for_lifecycle, flow, invocation))

    def _run(
        self,
        due: list[tuple[str, str]],
        decode: Callable[[str, str], batch.Hint],
        flow: Callable[[ClusterSettings, Sequence[batch.Hint], float], str],
        invocation: Invocation,
    ) -> dict[str, list[dict[str, str]]]:
        context = next(iter(self.contexts.values()))
        return batch.run(
            self._records(due),
            decode,
            flow,
            settings=self._settings,
            dead_letters=self._dead_letters,
            meter=context.meter,
            turns=Turns(context.clock, invocation.deadline),  # without reading ahead: threads would make runs differ
        )

    def _interrupt(self, due: list[tuple[str, str]]) -> set[str] | None:
        meter = next(iter(self.contexts.values())).meter

        def flow(notice: Notice) -> None:
            interrupt(notice, self._settings, self._state, lambda cluster: self.contexts[cluster.name], meter)

        def act(_: Invocation) -> dict[str, list[dict[str, str]]]:
            return batch.run_each(self._records(due), read_notice, flow, dead_letters=self._dead_letters, meter=meter)

        return self._failed("interrupt", act)

    def _disrupt(self, cluster: ClusterSettings) -> None:
        def act(_: Invocation) -> None:
            last = self._last_decisions.setdefault(cluster.name, LastDecision())
            try:
                report = disrupt(cluster, self.contexts[cluster.name], self._memory, decision_of=last)
            except ShiplapError as error:
                self._trace.record("disrupt failed", error=type(error).__name__)
                return
            except Exception:  # noqa: BLE001 - Lambda logs unexpected errors; `TracebackHandler` reports them
                _LOG.exception("a flow broke down")
                return
            if report.begun or report.done or report.undone:
                self._trace.record("disrupted", begun=report.begun, done=report.done, undone=report.undone)

        def invoke() -> None:
            if not self._invoke("disrupt", act):
                self._last_decisions.clear()  # with the process

        self._loop.begin(invoke)

    def _catalog(self, cluster: ClusterSettings) -> None:
        context = self.contexts[cluster.name]

        def act(_: Invocation) -> None:
            try:
                if context.source is not None:
                    refresh(context.source, context.catalog, context.meter)
            except ShiplapError as error:
                self._trace.record("refresh failed", error=type(error).__name__)

        self._loop.begin(lambda: self._invoke("catalog", act))


class TracebackHandler(logging.Handler):
    """Reports the traceback of each unexpected error that a flow logs."""

    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report the traceback, if the record has one."""
        if record.exc_info and record.exc_info[1] is not None:
            self._report(logging.Formatter().formatException(record.exc_info))
