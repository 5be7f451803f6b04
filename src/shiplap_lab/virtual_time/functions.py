"""The Lambda functions of a simulated install: queues, schedules and containers around the entries of the real ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from shiplap.errors import ShiplapError
from shiplap.flows import messages
from shiplap.flows.catalog import entry as catalog_entry
from shiplap.flows.claim_events import DISRUPTION_DUE
from shiplap.flows.disrupt import entry as disrupt_entry
from shiplap.flows.disrupt.entry import LastDecisions
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.interrupt import entry as interrupt_entry
from shiplap.flows.lifecycle import entry as lifecycle_entry
from shiplap.flows.messages import rfc3339
from shiplap.flows.schedule import entry as schedule_entry
from shiplap.flows.watch import entry as watch_entry
from shiplap.ports import BusEvent
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector, Invocation
from shiplap_lab.virtual_time.queues import DeliverySettings, SimulatedQueue
from shiplap_lab.virtual_time.trace import Trace

_LOG = logging.getLogger(__name__)

Answer = Mapping[str, Any]
Entry = Callable[[Mapping[str, Any], InvocationContext, FunctionInstall], Answer]


class SimulatedFunction(NamedTuple):
    """A function as it is deployed: where it begins, and after how many seconds Lambda ends it."""

    entry: Entry
    timeout_s: float


FUNCTIONS = {
    "schedule": SimulatedFunction(schedule_entry.handle, 300.0),
    "lifecycle": SimulatedFunction(lifecycle_entry.handle, 60.0),
    "interrupt": SimulatedFunction(interrupt_entry.handle, 10.0),
    "disrupt": SimulatedFunction(disrupt_entry.handle, 300.0),
    "catalog": SimulatedFunction(catalog_entry.handle, 300.0),
    "watch": SimulatedFunction(watch_entry.handle, 900.0),
}

VISIBILITY_FACTOR = 6
"""How many times longer than its function's timeout a message that was delivered stays invisible."""


class QueueFeed(NamedTuple):
    """Connects a queue to the function that it feeds. A window collects a burst into one invocation."""

    function: str
    batch_size: int
    window_s: float
    max_concurrency: int


FEEDS = {
    "provisioning": QueueFeed("schedule", 1000, 1.0, 2),  # with more clusters, as many at once as there are
    "lifecycle": QueueFeed("lifecycle", 10, 0.0, 10),
    "interruption": QueueFeed("interrupt", 10, 0.0, 10),
}
"""The queues as they are deployed."""

_ROUTES = {
    messages.POD_PENDING: "provisioning",
    messages.NODE_JOINED: "lifecycle",
    messages.NODE_READY: "lifecycle",
}
"""The queue to which the rules of the bus route an event."""


class ScheduledEvent(NamedTuple):
    """One message of EventBridge Scheduler to a queue or a function: every so many seconds, first after `first_s`."""

    target: str
    every_s: float
    first_s: float
    message: Mapping[str, Any]


_INSPECTION = {"kind": "inspect"}
"""What reads nothing but the Region and the manifests: it finds the same as long as no fault changes them."""

SCHEDULES = (
    ScheduledEvent("provisioning", 60.0, 7.0, {"kind": "sweep"}),
    ScheduledEvent("disrupt", 60.0, 31.0, {}),
    ScheduledEvent("catalog", 3600.0, 1800.0, {}),
    ScheduledEvent("catalog", 300.0, 150.0, _INSPECTION),
)


_RESTING = ("provisioning", "disrupt")
"""Targets of schedules that change nothing while all is at rest."""

WATCH_EVERY_S = 780.0
"""How often a watch begins, in seconds: before its predecessor ends."""


class _SimulatedContext:
    """Lambda's context object for one invocation."""

    def __init__(self, invocation: Invocation, loop: EventLoop) -> None:
        self.aws_request_id = invocation.name
        self.invoked_function_arn = f"arn:aws:lambda:eu-west-1:123456789012:function:{invocation.function}:live"
        self._invocation, self._loop = invocation, loop

    def get_remaining_time_in_millis(self) -> int:
        return max(0, round((self._invocation.deadline - self._loop.now()) * 1000))


class SimulatedFunctions:
    """All functions of one install, its queues and its schedules.

    `start_container` makes the install as a new container has it. A container serves one invocation at a time, is used
    again when that has ended, and is lost with all that it remembers when a function dies in it. The watch function is
    invoked for the clusters `watched`, if there are any.
    """

    def __init__(
        self,
        loop: EventLoop,
        faults: FaultInjector,
        trace: Trace,
        *,
        clusters: int,
        start_container: Callable[[], FunctionInstall],
        watched: Sequence[str] = (),
    ) -> None:
        self._loop, self._faults, self._trace = loop, faults, trace
        self._start_container = start_container
        self._watched = list(watched)
        self._idle: dict[str, list[FunctionInstall]] = {name: [] for name in FUNCTIONS}
        self._invocations = self._events = 0
        self._queues = {name: self._queue(name, feed, clusters) for name, feed in FEEDS.items()}

    def _queue(self, name: str, feed: QueueFeed, clusters: int) -> SimulatedQueue:
        def deliver(due: list[tuple[str, str]]) -> set[str] | None:
            turns = self._queues[name].turns_of(message for message, _ in due)
            answer = self._invoke(feed.function, _sqs_event(name, due), turns=turns)
            return None if answer is None else {item["itemIdentifier"] for item in answer["batchItemFailures"]}

        settings = DeliverySettings(
            feed.batch_size,
            feed.window_s,
            VISIBILITY_FACTOR * FUNCTIONS[feed.function].timeout_s,
            max(feed.max_concurrency, clusters if feed.function == "schedule" else 0),
        )
        return SimulatedQueue(name, self._loop, self._faults, self._trace, deliver, settings)

    # Triggers

    def start(self, later_s: float = 0.0) -> None:
        """Begin the schedules."""
        for item in SCHEDULES:
            first_s, inspects = item.first_s + later_s, item.message == _INSPECTION
            rests = item.target in _RESTING or inspects
            self._loop.every(item.every_s, self._sending(item), first_s=first_s, rests=rests, reads=not inspects)
        if self._watched:
            watch = ScheduledEvent("watch", WATCH_EVERY_S, 0.7, {"clusters": self._watched})
            self._loop.every(watch.every_s, self._sending(watch), first_s=watch.first_s + later_s)

    def _sending(self, scheduled: ScheduledEvent) -> Callable[[], object]:
        queue = self._queues.get(scheduled.target)
        if queue is not None:
            body = json.dumps(scheduled.message)
            return lambda: queue.send(body)
        return lambda: self._begin_on_schedule(scheduled)

    def _begin_on_schedule(self, scheduled: ScheduledEvent) -> None:
        """Invoke a function for its schedule, as EventBridge does: at least once."""
        self._begin(scheduled.target, scheduled.message)
        if again_s := sum(kind.invoked_again_s(scheduled.target) for kind in self._faults.at_work):
            self._loop.after(again_s, lambda: self._begin(scheduled.target, scheduled.message))

    def forget(self) -> None:
        """Replace all containers, as when another version is in service; running invocations still end in theirs."""
        self._idle = {name: [] for name in FUNCTIONS}

    def route(self, event: BusEvent) -> None:
        """Deliver an event as the rules of the bus have it."""
        self._events += 1
        body = {
            "id": f"event-{self._events}",
            "detail-type": event.detail_type,
            "source": event.source,
            "time": rfc3339(self._loop.now()),
            "detail": event.detail,
        }
        if event.detail_type == DISRUPTION_DUE:
            self._loop.after(0.0, lambda: self._begin("disrupt", body))
        elif event.detail_type in _ROUTES:
            self._queues[_ROUTES[event.detail_type]].send(json.dumps(body))

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Send a timer's message with its delay. One that `lifecycle` sends continues a chain of its own messages."""
        current = self._faults.current
        turns = current.turns if current is not None and current.function == "lifecycle" else 0
        body = json.dumps({"cluster": cluster, "claim": claim, "step": step})
        self._queues["lifecycle"].send(body, delay_s, turns)

    def ec2_event(self, detail_type: str, instance_id: str, happened_at: float, **detail: str) -> dict[str, Any]:
        """Send an event of EC2 from the default bus, with the moment that it names (epoch seconds), and return it."""
        body = {
            "source": "aws.ec2",
            "detail-type": detail_type,
            "time": rfc3339(happened_at),
            "detail": {"instance-id": instance_id, **detail},
        }
        self._queues["interruption"].send(json.dumps(body))
        return body

    @property
    def given_up(self) -> int:
        """Messages that came to the dead letters after too many deliveries."""
        return sum(queue.dead for queue in self._queues.values())

    @property
    def is_resting(self) -> bool:
        """True if no message is under way to a function."""
        return not any(map(len, self._queues.values()))

    def decided_until(self, cluster: str) -> float:
        """Epoch seconds until which the container that is used next knows what to disrupt, which is nothing."""
        idle = self._idle["disrupt"]
        return idle[-1].warm.of(LastDecisions).of[cluster].until if idle else 0.0

    # Invocations

    def _begin(self, function: str, event: Mapping[str, Any]) -> None:
        """Invoke a function without waiting for it."""
        self._loop.begin(lambda: self._invoke(function, event))

    def _invoke(self, function: str, event: Mapping[str, Any], *, turns: int = 0) -> Answer | None:
        """A function's answer; None if it failed or died. `turns`: how long the chain of its messages is."""
        self._invocations += 1
        name, began_at = f"{function}-{self._invocations}", self._loop.now()
        entry, timeout_s = FUNCTIONS[function]
        invocation = Invocation(function, name, began_at + timeout_s, began_at, turns=turns + 1)
        cold_s = sum(kind.starts_late_s(function) for kind in self._faults.at_work)
        idle = self._idle[function]
        container = idle.pop() if idle and not cold_s else self._start_container()
        answer: Answer | None = None

        def act() -> None:
            nonlocal answer
            if cold_s:
                self._faults.wait(cold_s)
            answer = self._answer(entry, event, invocation, container)

        self._trace.record("invoked", invocation=name)
        if self._faults.run(invocation, act):
            idle.append(container)
        self._trace.record("ended", invocation=name, effects=invocation.points)
        return answer

    def _answer(
        self, entry: Entry, event: Mapping[str, Any], invocation: Invocation, container: FunctionInstall
    ) -> Answer | None:
        try:
            answer = entry(event, _SimulatedContext(invocation, self._loop), container)
        except ShiplapError as error:
            self._trace.record("failed", invocation=invocation.name, error=type(error).__name__)
            return None
        except Exception:  # noqa: BLE001 - Lambda logs unexpected errors; `TracebackHandler` reports them
            _LOG.exception("a function broke down")
            return None
        if invocation.function == "disrupt" and any(answer.values()):
            self._trace.record("disrupted", invocation=invocation.name, **answer)
        return answer


def _sqs_event(queue: str, due: Sequence[tuple[str, str]]) -> dict[str, Any]:
    arn = f"arn:aws:sqs:eu-west-1:123456789012:{queue}"
    return {
        "Records": [
            {"messageId": name, "body": body, "eventSource": "aws:sqs", "eventSourceARN": arn} for name, body in due
        ]
    }


class TracebackHandler(logging.Handler):
    """Reports the traceback of each unexpected error that a flow logs."""

    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report the traceback, if the record has one."""
        if record.exc_info and record.exc_info[1] is not None:
            self._report(logging.Formatter().formatException(record.exc_info))
