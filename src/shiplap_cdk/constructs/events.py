"""The bus, the queues and the rules between them.

A message is only a hint, so all queues are standard ones: doubled or reordered messages cost a look, never a node. What
cannot be delivered or read ends in the queue's dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from shiplap.flows.claim_events import DISRUPTION_DUE, INSPECTION_DUE
from shiplap.flows.interrupt.notices import STARTS
from shiplap_cdk.constructs.spread import spread
from shiplap_cdk.stack_values import MOST_DELIVERIES

PATTERN_CHARACTERS = 2048
"""What EventBridge allows in the pattern of a rule, unless the account's quota was raised."""

# AWS advises a visibility timeout of six times the function's, so that a batch is not delivered again while it is
# being retried by the event source mapping.
VISIBILITY_FACTOR = 6

# What AWS publishes on the default bus about instances that are about to go, or have gone; `STARTS` is of capacity.
_OF_EC2 = {
    "SpotInterruption": "EC2 Spot Instance Interruption Warning",
    "Rebalance": "EC2 Instance Rebalance Recommendation",
    "InstanceStateChange": "EC2 Instance State-change Notification",
    "CapacityReservationInterruption": "EC2 Capacity Reservation Instance Interruption Warning",
}
_STATES_OF_AN_END = ["stopping", "stopped", "shutting-down", "terminated"]


class WorkQueue(NamedTuple):
    """A queue and its dead letters."""

    queue: sqs.Queue
    dead_letters: sqs.Queue


class Queues(NamedTuple):
    """The queues that feed the functions of a network group."""

    provisioning: WorkQueue
    lifecycle: WorkQueue


class Events(Construct):
    """Bus `name`, and the queue `name-interruption`, fed by AWS: what AWS itself says arrives on the default bus.

    Sources are `shiplap.<origin>`; anyone whom the account allows PutEvents may add an origin.
    """

    def __init__(self, scope: Construct, id_: str, *, name: str, interruption_timeout_s: int) -> None:
        super().__init__(scope, id_)
        self.bus = events.EventBus(self, "Bus", event_bus_name=name)
        self.interruption = _work_queue(self, "Interruption", f"{name}-interruption", interruption_timeout_s)
        for rule, detail_type in _OF_EC2.items():
            detail = {"state": _STATES_OF_AN_END} if rule == "InstanceStateChange" else None
            self._rule(rule, events.EventPattern(source=["aws.ec2"], detail_type=[detail_type], detail=detail))
        self._rule("CapacityStarted", events.EventPattern(source=["aws.ec2"], detail_type=list(STARTS)))
        of_instances = {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]}
        health = events.EventPattern(source=["aws.health"], detail_type=["AWS Health Event"], detail=of_instances)
        self._rule("ScheduledChange", health)

    def _rule(self, id_: str, pattern: events.EventPattern) -> None:
        """A rule on the account's default bus."""
        events.Rule(self, id_, event_pattern=pattern, targets=[_deliver(self.interruption)])


class ClusterEvents(Construct):
    """The queues `name-provisioning` and `name-lifecycle` of a network group, fed by the bus.

    The whole event is the message's body, as on any other target. `clusters` are those whose events the queues get;
    None for every event, where there is no other group.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        bus: events.IEventBus,
        queue_name: Callable[[str], str],
        clusters: Sequence[str] | None,
        provisioning_timeout_s: int,
        lifecycle_timeout_s: int,
    ) -> None:
        super().__init__(scope, id_)
        self._bus = bus
        self.queues = Queues(
            _work_queue(self, "Provisioning", queue_name("provisioning"), provisioning_timeout_s),
            _work_queue(self, "Lifecycle", queue_name("lifecycle"), lifecycle_timeout_s),
        )
        self._route("PodPending", ["PodPending"], clusters, self.queues.provisioning)
        self._route("NodeSeen", ["NodeJoined", "NodeReady"], clusters, self.queues.lifecycle)

    def _route(self, id_: str, detail_types: list[str], clusters: Sequence[str] | None, to: WorkQueue) -> None:
        """One rule for all clusters, or several where their names are too long for one pattern."""

        def fits(names: Sequence[str]) -> bool:
            # The source as the pattern will have it; white space does not count.
            written = {"source": [{"prefix": "shiplap."}], "detail-type": detail_types, "detail": {"cluster": names}}
            return len(json.dumps(written, separators=(",", ":"))) <= PATTERN_CHARACTERS

        routed = {"": None} if clusters is None else spread(clusters, fits)
        for bucket, names in routed.items():
            events.Rule(
                self,
                f"{id_}{bucket}",
                event_bus=self._bus,
                event_pattern=events.EventPattern(
                    source=events.Match.prefix("shiplap."),
                    detail_type=detail_types,
                    detail=None if names is None else {"cluster": list(names)},
                ),
                targets=[_deliver(to)],
            )


def hand_on_disruption(
    scope: Construct, id_: str, *, bus: events.IEventBus, network: str, disrupt: lambda_.IFunction
) -> None:
    """Route clusters that an invocation for all had no time for to an invocation of their own."""
    pattern = events.EventPattern(
        source=events.Match.prefix("shiplap."), detail_type=[DISRUPTION_DUE], detail={"network": [network]}
    )
    # As with the schedule: what comes late is worth nothing, since a minute later all clusters are looked at again.
    target = targets.LambdaFunction(disrupt, retry_attempts=0, max_event_age=Duration.minutes(1))
    events.Rule(scope, id_, event_bus=bus, event_pattern=pattern, targets=[target])


def inspect_on_demand(scope: Construct, id_: str, *, bus: events.IEventBus, catalog: lambda_.IFunction) -> None:
    """Have EC2NodeClasses inspected when somebody has just written one."""
    pattern = events.EventPattern(source=events.Match.prefix("shiplap."), detail_type=[INSPECTION_DUE])
    # What comes late is worth nothing: the schedule asks for the same every few minutes.
    target = targets.LambdaFunction(
        catalog,
        event=events.RuleTargetInput.from_object({"kind": "inspect"}),
        retry_attempts=0,
        max_event_age=Duration.minutes(2),
    )
    events.Rule(scope, id_, event_bus=bus, event_pattern=pattern, targets=[target])


def _work_queue(scope: Construct, id_: str, name: str, timeout_s: int) -> WorkQueue:
    dead_letters = _queue(scope, f"{id_}DeadLetters", f"{name}-dead-letters", retention_period=Duration.days(14))
    queue = _queue(
        scope,
        id_,
        name,
        visibility_timeout=Duration.seconds(VISIBILITY_FACTOR * timeout_s),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=MOST_DELIVERIES),
    )
    return WorkQueue(queue, dead_letters)


def _queue(
    scope: Construct,
    id_: str,
    name: str,
    *,
    retention_period: Duration | None = None,
    visibility_timeout: Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        id_,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=retention_period,
        visibility_timeout=visibility_timeout,
        dead_letter_queue=dead_letter_queue,
    )


def _deliver(to: WorkQueue) -> targets.SqsQueue:
    return targets.SqsQueue(to.queue, dead_letter_queue=to.dead_letters, retry_attempts=20)
