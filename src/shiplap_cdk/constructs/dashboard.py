"""One CloudWatch dashboard per install: what waits, what is launched, what it costs, what goes wrong.

It shows only metrics that the functions or AWS write anyway, and of those at most fifty: that many are free in each of
an account's first three dashboards, and whatever a search would find counts. So figures are of all clusters together;
the map shows each cluster with its pools. Metrics of ours carry the install's name as a dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from shiplap.ports import INSTALL_DIMENSION, METRICS_NAMESPACE
from shiplap_cdk.constructs.events import WorkQueue

_WIDTH = 24
_HEIGHT = 6
_MINUTE = Duration.minutes(1)
_FIVE_MINUTES = Duration.minutes(5)
_DAY = Duration.days(1)

LABELS = {
    "CatalogAge": "catalogue",
    "CeilingUse": "the most used ceiling (%)",
    "CeilingsReached": "ceilings that are reached",
    "ClaimsFailed": "launches failed",
    "CommandsBegun": "begun",
    "CommandsDone": "done",
    "CommandsUndone": "taken back",
    "EventToLaunch": "event to launch",
    "EventToReady": "event to ready",
    "FailedForAddresses": "no free addresses",
    "FailedForCapacity": "sold out",
    "FailedForConfiguration": "configuration",
    "FailedForQuota": "quota",
    "FailedForThrottling": "throttled",
    "FailedForUnknown": "other",
    "HourlyCost": "paid",
    "HourlyListPrice": "on-demand list price",
    "NodeClaimsMissed": "smaller than planned",
    "NodeClassNotReady": "EC2NodeClass not ready",
    "Nodes": "nodes",
    "NodesInitialized": "ready",
    "NodesInterrupted": "taken by AWS",
    "NodesLaunched": "launched",
    "NodesNotJoined": "did not join",
    "NodesRegistered": "joined",
    "NodesTerminated": "ended",
    "OldestPodWaiting": "the oldest waits (s)",
    "Pods": "pods",
    "PodsUnschedulable": "pods that fit nothing",
    "PodsWaiting": "pods that wait",
    "SavingsHourly": "saved (USD/h)",
}
"""What people read in place of the names of metrics."""

_PERCENTILES = {"p50": "median", "p99": "slowest of 100"}
# The groups of metrics that one graph shows, here and in the Grafana dashboard.
COMMANDS = ("CommandsBegun", "CommandsDone", "CommandsUndone")
FAILURES = tuple(name for name in LABELS if name.startswith("FailedFor"))
LIFE = ("NodesLaunched", "NodesRegistered", "NodesInitialized", "NodesTerminated", "NodesInterrupted")
BROKEN = ("ClaimsFailed", "NodesNotJoined", "NodeClassNotReady", "PodsUnschedulable", "NodeClaimsMissed")

MOST_METRICS = 50
"""Metrics on a dashboard that costs nothing, as AWS's free tier has it."""

MOST_LINES = 6
"""Lines of one graph that can be told apart."""

_UNSEEN = ("audit", "widget")
"""Functions whose errors leave no node and no pod behind."""


class _Graph(NamedTuple):
    """A graph; in the title, what comes after `|` is on the right axis."""

    title: str
    left: Sequence[cloudwatch.IMetric]
    right: Sequence[cloudwatch.IMetric] = ()
    stacked: bool = False
    weeks: int = 0
    """The range that it shows, whatever range the dashboard shows; 0: the dashboard's."""


def own(install: str, name: str, statistic: str = "Sum", **dimensions: str) -> cloudwatch.Metric:
    """A metric that the functions write."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=name,
        dimensions_map={INSTALL_DIMENSION: install, **dimensions},
        statistic=statistic,
        period=_MINUTE,
    )


def _labelled(install: str, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
    percentile = [_PERCENTILES[statistic]] if statistic in _PERCENTILES else []
    return own(install, name, statistic).with_(label=", ".join([LABELS[name], *percentile]))


class Dashboard(Construct):
    """The dashboard `<install>-<region>`; names of dashboards are unique in an account, whatever the Region."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: str,
        functions: Mapping[str, lambda_.Function],
        widget: lambda_.IFunction,
        queues: Mapping[str, WorkQueue],
        has_ceilings: bool,
    ) -> None:
        """`widget` draws the clusters; who looks at the dashboard calls it with rights of their own.

        Functions and queues are by name; where there are more than fit, the first ones by name are shown.
        """
        super().__init__(scope, id_)
        self._install, self._has_ceilings = install, has_ceilings
        rows = [[*self._waiting()], [*self._nodes()], [*self._money()], [*self._trouble()]]
        rows.append([*_health(functions, queues, self._own("CatalogAge", statistic="Maximum"))])
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{install}-{Aws.REGION}",
            default_interval=Duration.hours(3),
            widgets=[[*self._big_numbers()], [_map(widget)], *(_row(row) for row in rows)],
        )

    def _own(self, *names: str, statistic: str = "Sum") -> list[cloudwatch.IMetric]:
        return [_labelled(self._install, name, statistic) for name in names]

    def _summed(
        self, expression: str, label: str, names: Mapping[str, str], period: Duration = _FIVE_MINUTES
    ) -> cloudwatch.MathExpression:
        """Of metrics that every cluster writes once a minute; `names` by their variables in the expression."""
        used = {key: own(self._install, name).with_(period=period) for key, name in names.items()}
        return cloudwatch.MathExpression(expression=expression, using_metrics=used, label=label, period=period)

    def _total(self, name: str, label: str = "") -> cloudwatch.MathExpression:
        """Of all clusters together: a sum of five minutes, divided by five."""
        return self._summed(f"{name.lower()} / 5", label or LABELS[name], {name.lower(): name})

    def _big_numbers(self) -> Iterator[cloudwatch.IWidget]:
        saved = self._summed("(listed - paid) / 5", "saved", {"listed": "HourlyListPrice", "paid": "HourlyCost"})
        shown = (
            ("Nodes", self._total("Nodes")),
            ("Pods that wait for a node", self._total("PodsWaiting", "waiting")),
            ("USD per hour", self._total("HourlyCost")),
            ("USD per hour below on-demand list prices", saved),
        )
        for title, metric in shown:
            yield cloudwatch.SingleValueWidget(
                title=title, metrics=[metric], width=_WIDTH // len(shown), height=_HEIGHT // 2
            )

    def _waiting(self) -> Iterator[_Graph]:
        oldest = self._own("OldestPodWaiting", statistic="Maximum")
        yield _Graph("Pods that wait | seconds the oldest has", [self._total("PodsWaiting")], oldest)
        latencies = [
            _labelled(self._install, name, statistic)
            for name in ("EventToLaunch", "EventToReady")
            for statistic in _PERCENTILES
        ]
        yield _Graph("From a pod's event to its node (s)", latencies)

    def _nodes(self) -> Iterator[_Graph]:
        yield _Graph("Nodes | pods on them", [self._total("Nodes")], [self._total("Pods")])
        yield _Graph("Steps of nodes", self._own(*LIFE))

    def _money(self) -> Iterator[_Graph]:
        hourly = [self._total(name) for name in ("HourlyCost", "HourlyListPrice")]
        yield _Graph("USD per hour", hourly)
        yield _Graph("Disruption commands | USD per hour", self._own(*COMMANDS), self._own("SavingsHourly"))
        # A value a minute, in USD per hour: a sixtieth of a day's sum is what the day costs.
        daily = [
            self._summed(f"{name.lower()} / 60", LABELS[name], {name.lower(): name}, _DAY)
            for name in ("HourlyCost", "HourlyListPrice")
        ]
        yield _Graph("USD per day, four weeks", daily, weeks=4)
        if self._has_ceilings:
            used, reached = self._own("CeilingUse", statistic="Maximum"), self._total("CeilingsReached")
            yield _Graph("Spent and reserved, % of a ceiling | ceilings that are reached", used, [reached])

    def _trouble(self) -> Iterator[_Graph]:
        yield _Graph("Offerings that EC2 refused, by cause", self._own(*FAILURES), stacked=True)
        yield _Graph("What went wrong", self._own(*BROKEN))


def _map(widget: lambda_.IFunction) -> cloudwatch.IWidget:
    """All clusters; drawn anew with the dashboard, not when its range of time changes, for it shows this moment."""
    return cloudwatch.CustomWidget(
        function_arn=widget.function_arn,
        title="Nodes and what they were launched for",
        width=_WIDTH,
        height=2 * _HEIGHT,
        update_on_refresh=True,
        update_on_resize=True,
        update_on_time_range_change=False,
    )


def _row(graphs: Sequence[_Graph]) -> list[cloudwatch.IWidget]:
    axis = cloudwatch.YAxisProps(min=0, show_units=False)
    return [
        cloudwatch.GraphWidget(
            title=graph.title,
            left=list(graph.left),
            right=list(graph.right),
            stacked=graph.stacked,
            left_y_axis=axis,
            right_y_axis=axis,
            width=_WIDTH // len(graphs),
            height=_HEIGHT,
            start=f"-P{graph.weeks}W" if graph.weeks else None,
        )
        for graph in graphs
    ]


def _health(
    functions: Mapping[str, lambda_.Function],
    queues: Mapping[str, WorkQueue],
    catalog_age: Sequence[cloudwatch.IMetric],
) -> list[_Graph]:
    """Queues, errors and the catalogue's age. Dead letters are half as many lines, because several queues have few."""
    ages = [_of_queue(item.queue, "ApproximateAgeOfOldestMessage", name) for name, item in queues.items()]
    letters = [
        _of_queue(item.dead_letters, "ApproximateNumberOfMessagesVisible", name) for name, item in queues.items()
    ]
    errors = [
        function.metric_errors(label=name, period=_FIVE_MINUTES)
        for name, function in functions.items()
        if not name.startswith(_UNSEEN)
    ]
    return [
        _Graph("Age of the oldest message (s)", ages[: MOST_LINES // 2]),
        _Graph("Dead letters", letters[: MOST_LINES // 2]),
        _Graph("Errors of functions", errors[:MOST_LINES]),
        _Graph("Age of the catalogue (s)", catalog_age),
    ]


def _of_queue(queue: sqs.Queue, name: str, label: str) -> cloudwatch.Metric:
    return queue.metric(name, statistic="Maximum", label=label, period=_MINUTE)
