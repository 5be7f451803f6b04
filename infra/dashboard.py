"""One CloudWatch dashboard per install: what waits, what is launched, what it costs, what goes wrong.

It shows only metrics that the functions or AWS write anyway. Metrics of ours carry the install's name as a dimension,
some also the cluster, its NodePool and tier; what is per pool is found by a search, so that a new pool appears by
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.events import Events, WorkQueue
from infra.storage import Storage
from shiplap.ports import INSTALL_DIMENSION, METRICS_NAMESPACE

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
LATENCIES = ("EventToLaunch", "LaunchToJoined", "JoinedToReady", "EventToReady")


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


def _labelled(install: str, name: str, statistic: str = "Sum", **dimensions: str) -> cloudwatch.Metric:
    percentile = [statistic] if statistic.startswith("p") else []
    label = " ".join([name, *dimensions.values(), *percentile])
    return own(install, name, statistic, **dimensions).with_(label=label)


def queues(events: Events) -> dict[str, WorkQueue]:
    """The queues by name."""
    return {"provisioning": events.provisioning, "lifecycle": events.lifecycle, "interruption": events.interruption}


class Dashboard(Construct):
    """The dashboard `<install>-<region>`; names of dashboards are unique in an account, whatever the Region."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        install: str,
        clusters: Sequence[str],
        functions: Mapping[str, lambda_.Function],
        widget: lambda_.IFunction,
        events: Events,
        storage: Storage,
    ) -> None:
        """`widget` draws the clusters; who looks at the dashboard calls it with rights of their own."""
        super().__init__(scope, id_)
        self._install = install
        self._clusters = clusters
        rows = [
            [*self._waiting()],
            [*self._nodes()],
            [*self._money()],
            [*self._trouble()],
            [*_health(functions), _Graph("Age of the catalogue (s)", self._own("CatalogAge", statistic="Maximum"))],
            [*_queues(queues(events)), _tables({"state": storage.state, "capacity": storage.capacity})],
        ]
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{install}-{Aws.REGION}",
            default_interval=Duration.hours(3),
            widgets=[[_map(widget)], *(_row(row) for row in rows)],
        )

    def _own(self, *names: str, statistic: str = "Sum") -> list[cloudwatch.IMetric]:
        return [_labelled(self._install, name, statistic) for name in names]

    def _per_cluster(self, *names: str) -> list[cloudwatch.IMetric]:
        return [
            _labelled(self._install, name, "Maximum", cluster=cluster) for cluster in self._clusters for name in names
        ]

    def _per_pool(self, name: str, *dimensions: str) -> cloudwatch.IMetric:
        """The newest value of a metric for each NodePool of each cluster."""
        schema = ",".join([METRICS_NAMESPACE, INSTALL_DIMENSION, "cluster", *dimensions])
        wanted = f'MetricName="{name}" {INSTALL_DIMENSION}="{self._install}"'
        return cloudwatch.MathExpression(
            expression=f"SEARCH('{{{schema}}} {wanted}', 'Maximum', 60)", using_metrics={}, label="", period=_MINUTE
        )

    def _waiting(self) -> Iterator[_Graph]:
        waiting = self._per_cluster("PodsWaiting"), self._per_cluster("OldestPodWaiting")
        yield _Graph("Pods that wait | seconds the oldest has", *waiting)
        ages = [_labelled(self._install, "PodAge", statistic) for statistic in ("p50", "p99")]
        yield _Graph("Age of pods when a node is decided (s)", ages)
        latencies = [_labelled(self._install, name, statistic) for name in LATENCIES for statistic in ("p50", "p99")]
        yield _Graph("Event, launch, joined, ready (s)", latencies)

    def _nodes(self) -> Iterator[_Graph]:
        yield _Graph("Nodes by pool and tier", [self._per_pool("Nodes", "pool", "tier")], stacked=True)
        yield _Graph("Pods by pool", [self._per_pool("Pods", "pool")], stacked=True)
        life = ("NodesLaunched", "NodesRegistered", "NodesInitialized", "NodesTerminated", "NodesInterrupted")
        yield _Graph("Nodes launched, joined, ready, ended, taken away", self._own(*life))

    def _money(self) -> Iterator[_Graph]:
        yield _Graph("USD per hour | at on-demand list price", self._per_cluster("HourlyCost", "HourlyListPrice"))
        savings = self._own("SavingsHourly")
        yield _Graph("Disruption commands | USD per hour saved by them", self._own(*COMMANDS), savings)
        yield _Graph("Nodes that must not be disrupted", self._per_cluster("NodesNotDisruptable"))

    def _trouble(self) -> Iterator[_Graph]:
        yield _Graph("Offerings refused, by cause", self._own(*FAILURES), stacked=True)
        broken = self._own("ClaimsFailed", "NodesNotJoined", "NodeClassNotReady", "PodsUnschedulable")
        yield _Graph("Failed launches, joins, classes; pods that fit nothing", broken)
        misses, memory = self._own("NodeClaimsMissed"), self._own("MemoryBeyondPlan", "MemoryShort")
        yield _Graph("Nodes smaller than planned | GiB beyond, short of plan", misses, memory)


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


def _health(functions: Mapping[str, lambda_.Function]) -> Iterator[_Graph]:
    errors = [function.metric_errors(label=name, period=_FIVE_MINUTES) for name, function in functions.items()]
    throttles = [
        function.metric_throttles(label=f"{name} throttled", period=_FIVE_MINUTES)
        for name, function in functions.items()
    ]
    yield _Graph("Errors of functions | throttles", errors, throttles)
    slowest = [
        function.metric_duration(statistic="p99", label=name, period=_FIVE_MINUTES)
        for name, function in functions.items()
    ]
    yield _Graph("Duration p99 (ms)", slowest)
    calls = [function.metric_invocations(label=name, period=_FIVE_MINUTES) for name, function in functions.items()]
    yield _Graph("Invocations", calls)


def _queues(work: Mapping[str, WorkQueue]) -> Iterator[_Graph]:
    ages = [_of_queue(item.queue, "ApproximateAgeOfOldestMessage", name) for name, item in work.items()]
    yield _Graph("Age of the oldest message (s)", ages)
    letters = [_of_queue(item.dead_letters, "ApproximateNumberOfMessagesVisible", name) for name, item in work.items()]
    yield _Graph("Dead letters", letters)


def _of_queue(queue: sqs.Queue, name: str, label: str) -> cloudwatch.Metric:
    return queue.metric(name, statistic="Maximum", label=label, period=_MINUTE)


def _tables(tables: Mapping[str, dynamodb.TableV2]) -> _Graph:
    read = [table.metric_consumed_read_capacity_units(label=f"{name} read") for name, table in tables.items()]
    written = [table.metric_consumed_write_capacity_units(label=f"{name} written") for name, table in tables.items()]
    return _Graph("DynamoDB units", [*read, *written])
