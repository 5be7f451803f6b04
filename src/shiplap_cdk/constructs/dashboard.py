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

COMMANDS = ("CommandsBegun", "CommandsDone", "CommandsUndone")
FAILURES = (
    "FailedForCapacity",
    "FailedForConfiguration",
    "FailedForQuota",
    "FailedForAddresses",
    "FailedForThrottling",
    "FailedForUnknown",
)
LATENCIES = (
    ("EventToLaunch", "p50"),
    ("EventToLaunch", "p99"),
    ("LaunchToJoined", "p50"),
    ("JoinedToReady", "p50"),
    ("EventToReady", "p50"),
    ("EventToReady", "p99"),
)

MOST_METRICS = 50
"""Metrics on a dashboard that costs nothing, as AWS's free tier has it."""


class _Graph(NamedTuple):
    """A graph; in the title, what comes after `|` is on the right axis."""

    title: str
    left: Sequence[cloudwatch.IMetric]
    right: Sequence[cloudwatch.IMetric] = ()
    stacked: bool = False


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
    percentile = [statistic] if statistic.startswith("p") else []
    return own(install, name, statistic).with_(label=" ".join([name, *percentile]))


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
    ) -> None:
        """`widget` draws the clusters; who looks at the dashboard calls it with rights of their own.

        Functions and queues are by name; where there are more than fit, the first ones by name are shown.
        """
        super().__init__(scope, id_)
        self._install = install
        rows = [
            [*self._waiting()],
            [*self._nodes()],
            [*self._money()],
            [*self._trouble()],
        ]
        known = sum(len(graph.left) + len(graph.right) for row in rows for graph in row)
        rows.append([*_health(functions, queues, self._own("CatalogAge", statistic="Maximum"), MOST_METRICS - known)])
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{install}-{Aws.REGION}",
            default_interval=Duration.hours(3),
            widgets=[[_map(widget)], *(_row(row) for row in rows)],
        )

    def _own(self, *names: str, statistic: str = "Sum") -> list[cloudwatch.IMetric]:
        return [_labelled(self._install, name, statistic) for name in names]

    def _totals(self, *names: str) -> list[cloudwatch.IMetric]:
        """What every cluster writes once a minute, of all clusters together: sums of five minutes, divided by five."""
        return [
            cloudwatch.MathExpression(
                expression=f"{name.lower()} / 5",
                using_metrics={name.lower(): own(self._install, name).with_(period=_FIVE_MINUTES)},
                label=name,
                period=_FIVE_MINUTES,
            )
            for name in names
        ]

    def _waiting(self) -> Iterator[_Graph]:
        oldest = self._own("OldestPodWaiting", statistic="Maximum")
        yield _Graph("Pods that wait | seconds the oldest has", self._totals("PodsWaiting"), oldest)
        ages = [_labelled(self._install, "PodAge", statistic) for statistic in ("p50", "p99")]
        yield _Graph("Age of pods when a node is decided (s)", ages)
        latencies = [_labelled(self._install, name, statistic) for name, statistic in LATENCIES]
        yield _Graph("Event, launch, joined, ready (s)", latencies)

    def _nodes(self) -> Iterator[_Graph]:
        yield _Graph("Nodes | pods on them", self._totals("Nodes"), self._totals("Pods"))
        life = ("NodesLaunched", "NodesRegistered", "NodesInitialized", "NodesTerminated", "NodesInterrupted")
        yield _Graph("Nodes launched, joined, ready, ended, taken away", self._own(*life))

    def _money(self) -> Iterator[_Graph]:
        yield _Graph("USD per hour, and at on-demand list price", self._totals("HourlyCost", "HourlyListPrice"))
        savings = self._own("SavingsHourly")
        yield _Graph("Disruption commands | USD per hour saved by them", self._own(*COMMANDS), savings)
        yield _Graph("Nodes that must not be disrupted", self._totals("NodesNotDisruptable"))

    def _trouble(self) -> Iterator[_Graph]:
        yield _Graph("Offerings refused, by cause", self._own(*FAILURES), stacked=True)
        broken = ("ClaimsFailed", "NodesNotJoined", "NodeClassNotReady", "PodsUnschedulable", "NodeClaimsMissed")
        yield _Graph("Failed launches, joins, classes; pods that fit nothing; misses", self._own(*broken))


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
        )
        for graph in graphs
    ]


def _health(
    functions: Mapping[str, lambda_.Function],
    queues: Mapping[str, WorkQueue],
    catalog_age: Sequence[cloudwatch.IMetric],
    most: int,
) -> list[_Graph]:
    """Queues, errors and the catalogue's age, in at most so many metrics."""
    ages = [_of_queue(item.queue, "ApproximateAgeOfOldestMessage", name) for name, item in queues.items()]
    letters = [
        _of_queue(item.dead_letters, "ApproximateNumberOfMessagesVisible", f"{name} dead letters")
        for name, item in queues.items()
    ]
    errors = [function.metric_errors(label=name, period=_FIVE_MINUTES) for name, function in functions.items()]
    each = (most - len(catalog_age)) // 3
    return [
        _Graph("Age of the oldest message (s)", ages[:each]),
        _Graph("Dead letters", letters[:each]),
        _Graph("Errors of functions", errors[: most - len(catalog_age) - len(ages[:each]) - len(letters[:each])]),
        _Graph("Age of the catalogue (s)", catalog_age),
    ]


def _of_queue(queue: sqs.Queue, name: str, label: str) -> cloudwatch.Metric:
    return queue.metric(name, statistic="Maximum", label=label, period=_MINUTE)
