"""Alarms: quiet while all is well, each with a section in docs/how-to/operations.md that says what to do.

None of them asks for attention because nothing happens: a cluster at rest writes no metrics, and missing ones count as
good. The catalogue's age is the exception, as it is written every few minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

from shiplap_cdk.constructs.dashboard import own
from shiplap_cdk.constructs.events import WorkQueue

RUNBOOK = "docs/how-to/operations.md"

# Seconds that the oldest message of a queue may have; timers are delayed by up to 900.
_OLDEST_S = {"provisioning": 600, "lifecycle": 2400, "interruption": 120}
_OLDEST_CATALOG_S = 3 * 3600
# Functions whose errors raise the age of their queue, or the number of its dead letters, within a quarter of an hour.
_TOLD_BY_QUEUES = ("schedule", "interrupt")
# The function that sends messages to its own queue: no other is part of a ring that Lambda sees.
_IN_A_RING = "lifecycle"
# An invocation of `watch` lasts 14 minutes and fails at its end.
_MINUTES_OF_WATCH = 15


class Alarm(NamedTuple):
    """An alarm: when a metric is above a threshold in so many periods on end. `section` is the runbook's anchor."""

    name: str
    section: str
    says: str
    metric: cloudwatch.IMetric
    above: float
    periods: int = 1
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING


class Alarms(Construct):
    """All alarms of an install, told to an SNS topic when there is one."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: str,
        functions: Mapping[str, lambda_.Function],
        queues: Mapping[str, WorkQueue],
        topic_arn: str,
        has_live_manifests: bool,
        has_sleep: bool,
    ) -> None:
        super().__init__(scope, id_)
        topic = sns.Topic.from_topic_arn(self, "Topic", topic_arn) if topic_arn else None
        of_manifests = _of_manifests(install) if has_live_manifests else ()
        of_sleep = _of_sleep(install) if has_sleep else ()
        of_repairs = _of_repairs(install) if topic_arn else ()  # it asks for people, so that nobody else pays for it
        of_features = (*of_manifests, *of_sleep, *of_repairs)
        for alarm in (*_of_queues(queues), *_of_functions(functions), *_of_nodes(install), *of_features):
            made = cloudwatch.Alarm(
                self,
                alarm.name,
                alarm_name=f"{install}-{alarm.name}",
                alarm_description=f"{alarm.says} See {RUNBOOK}#{alarm.section}",
                metric=alarm.metric,
                threshold=alarm.above,
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                evaluation_periods=alarm.periods,
                treat_missing_data=alarm.missing,
            )
            if topic is not None:
                made.add_alarm_action(actions.SnsAction(topic))
                made.add_ok_action(actions.SnsAction(topic))


def _of_queues(queues: Mapping[str, WorkQueue]) -> Iterator[Alarm]:
    for name, work in queues.items():
        letters = work.dead_letters.metric(
            "ApproximateNumberOfMessagesVisible", statistic="Maximum", period=Duration.minutes(5)
        )
        says = f"Messages of the queue {name} could not be handled and were set aside."
        yield Alarm(f"{name}-dead-letters", "dead-letters", says, letters, 0)
        age = work.queue.metric("ApproximateAgeOfOldestMessage", statistic="Maximum", period=Duration.minutes(1))
        says = f"The queue {name} is not worked off."
        yield Alarm(f"{name}-queue-age", "queue-age", says, age, _OLDEST_S[name.partition("-")[0]], periods=5)


def _of_functions(functions: Mapping[str, lambda_.Function]) -> Iterator[Alarm]:
    """Errors, unless the queue that feeds a function tells of them as soon; and what Lambda takes for loops."""
    for name, function in functions.items():
        if name.partition("-")[0] in _TOLD_BY_QUEUES:
            continue
        minutes = _MINUTES_OF_WATCH if name.partition("-")[0] == "watch" else 5
        errors = function.metric_errors(period=Duration.minutes(minutes))
        says = f"The function {name} ends in errors again and again."
        yield Alarm(f"{name}-errors", "function-errors", says, errors, 0, periods=2 if minutes > 5 else 3)
    for name, function in functions.items():
        if name.partition("-")[0] != _IN_A_RING:
            continue
        dropped = function.metric("RecursiveInvocationsDropped", statistic="Sum", period=Duration.minutes(5))
        says = "Lambda took timers for an endless loop and dropped them."
        yield Alarm(f"{name}-recursion", "recursion", says, dropped, 0)


def _of_manifests(install: str) -> Iterator[Alarm]:
    says = "Nothing is launched and no node is disrupted in a cluster, because its manifests cannot be relied on."
    suspended = own(install, "ClustersSuspended").with_(period=Duration.minutes(5))
    yield Alarm("clusters-suspended", "suspended-clusters", says, suspended, 0, periods=2)


def _of_sleep(install: str) -> Iterator[Alarm]:
    says = "What should sleep stays awake, because it is not understood."
    doubts = own(install, "SleepInDoubt").with_(period=Duration.minutes(5))
    yield Alarm("sleep-in-doubt", "sleep-in-doubt", says, doubts, 0, periods=2)


def _of_repairs(install: str) -> Iterator[Alarm]:
    says = "Sick nodes stay, because several of one AMI fell sick within an hour."
    stopped = own(install, "RepairsStopped").with_(period=Duration.minutes(5))
    yield Alarm("repairs-stopped", "repairs-stopped", says, stopped, 0, periods=2)


def _of_nodes(install: str) -> Iterator[Alarm]:
    five = Duration.minutes(5)
    yield Alarm(
        "catalog-stale",
        "stale-catalogue",
        "Instance types and prices are not refreshed any more.",
        own(install, "CatalogAge", "Maximum").with_(period=five),
        _OLDEST_CATALOG_S,
        periods=3,
        missing=cloudwatch.TreatMissingData.MISSING,
    )
    says = "Nothing can be launched from an EC2NodeClass."
    not_ready = own(install, "NodeClassNotReady").with_(period=five)
    yield Alarm("nodeclass-not-ready", "nodeclass-not-ready", says, not_ready, 0, periods=3)
    fruitless = own(install, "LaunchesFruitless").with_(period=five)
    yield Alarm("launches-failing", "launches-failing", "Launches fail and none succeeds.", fruitless, 0, periods=3)
    says = "Another install launches nodes in a cluster of this one."
    others = own(install, "InstancesOfOtherInstalls").with_(period=five)
    yield Alarm("other-installs", "other-installs", says, others, 0, periods=3)
    hourly = Duration.hours(1)
    not_joined = own(install, "NodesNotJoined").with_(period=hourly)
    yield Alarm("nodes-not-joining", "nodes-not-joining", "Instances do not become nodes.", not_joined, 2)
    misses = own(install, "NodeClaimsMissed").with_(period=hourly)
    yield Alarm("misses", "misses", "Nodes are smaller than planned, more than once in an hour.", misses, 1)
