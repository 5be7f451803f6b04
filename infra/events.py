"""The bus, the queues and the rules between them.

A message is only a hint, so all queues are standard ones: doubled or reordered messages cost a look, never a node. What
cannot be delivered or read ends in the queue's dead letters.
"""

from __future__ import annotations

from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

# AWS advises a visibility timeout of six times the function's, so that a batch is not delivered again while it is
# being retried by the event source mapping.
VISIBILITY_FACTOR = 6
# Five deliveries: throttled invocations count as deliveries too.
MOST_DELIVERIES = 5

# What AWS publishes on the default bus about instances that are about to go, or have gone.
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


class Events(Construct):
    """Bus `name`, queues `name-provisioning` and `name-lifecycle`, fed by it, and `name-interruption`, fed by AWS.

    The whole event is the message's body, as on any other target. Sources are `shiplap.<origin>`; anyone whom the
    account allows PutEvents may add an origin. What AWS itself says arrives on the account's default bus.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        provisioning_timeout_s: int,
        lifecycle_timeout_s: int,
        interruption_timeout_s: int,
    ) -> None:
        super().__init__(scope, id_)
        self._name = name
        self.bus = events.EventBus(self, "Bus", event_bus_name=name)
        self.provisioning = self._work_queue("provisioning", provisioning_timeout_s)
        self.lifecycle = self._work_queue("lifecycle", lifecycle_timeout_s)
        self.interruption = self._work_queue("interruption", interruption_timeout_s)
        self._rule("PodPending", ["PodPending"], self.provisioning)
        self._rule("NodeSeen", ["NodeJoined", "NodeReady"], self.lifecycle)
        for rule, detail_type in _OF_EC2.items():
            detail = {"state": _STATES_OF_AN_END} if rule == "InstanceStateChange" else None
            self._aws_rule(rule, events.EventPattern(source=["aws.ec2"], detail_type=[detail_type], detail=detail))
        of_instances = {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]}
        health = events.EventPattern(source=["aws.health"], detail_type=["AWS Health Event"], detail=of_instances)
        self._aws_rule("ScheduledChange", health)

    def _work_queue(self, name: str, timeout_s: int) -> WorkQueue:
        id_ = name.capitalize()
        dead_letters = self._queue(f"{id_}DeadLetters", f"{name}-dead-letters", retention_period=Duration.days(14))
        queue = self._queue(
            id_,
            name,
            visibility_timeout=Duration.seconds(VISIBILITY_FACTOR * timeout_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=MOST_DELIVERIES),
        )
        return WorkQueue(queue, dead_letters)

    def _queue(
        self,
        id_: str,
        name: str,
        *,
        retention_period: Duration | None = None,
        visibility_timeout: Duration | None = None,
        dead_letter_queue: sqs.DeadLetterQueue | None = None,
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            id_,
            queue_name=f"{self._name}-{name}",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=retention_period,
            visibility_timeout=visibility_timeout,
            dead_letter_queue=dead_letter_queue,
        )

    def _rule(self, id_: str, detail_types: list[str], to: WorkQueue) -> None:
        events.Rule(
            self,
            id_,
            event_bus=self.bus,
            event_pattern=events.EventPattern(source=events.Match.prefix("shiplap."), detail_type=detail_types),
            targets=[_deliver(to)],
        )

    def _aws_rule(self, id_: str, pattern: events.EventPattern) -> None:
        """A rule on the account's default bus."""
        events.Rule(self, id_, event_pattern=pattern, targets=[_deliver(self.interruption)])


def _deliver(to: WorkQueue) -> targets.SqsQueue:
    return targets.SqsQueue(to.queue, dead_letter_queue=to.dead_letters, retry_attempts=20)
