"""Computes what an install costs per month: from the synthesised templates, at rest and with a thousand nodes.

What is deployed (functions and their memory, schedules, alarms, dashboards and their metrics, queues) is read from the
templates. How long functions run and how much they write are the assumptions below, stated with where they come from.
Both sums are shown: at list price, and with AWS's free tier that does not end, which an account has once.

    python -m benchmarks.functions.cost                     # synthesises installs of one cluster and of several
    python -m benchmarks.functions.cost --clusters 100      # of so many
    python -m benchmarks.functions.cost --templates cdk.out # templates as `cdk synth` writes them
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]

HOURS = 730
SECONDS = HOURS * 3600
MILLION = 1e6
MONTHS_PER_MINUTE = HOURS * 60

# USD, us-east-1; beside each the service's code in AWS's price list and the page that explains the price.
LAMBDA_GB_SECOND = 0.0000133334  # AWSLambda, Arm: https://aws.amazon.com/lambda/pricing/
LAMBDA_REQUEST = 0.20 / MILLION  # AWSLambda
SQS_REQUEST = 0.40 / MILLION  # AWSQueueService, standard: https://aws.amazon.com/sqs/pricing/
BUS_EVENT = 1.00 / MILLION  # AWSEvents, custom events: https://aws.amazon.com/eventbridge/pricing/
SCHEDULE_RUN = 1.00 / MILLION  # AWSEvents, EventBridge Scheduler
DYNAMO_WRITE = 0.625 / MILLION  # AmazonDynamoDB, on demand: https://aws.amazon.com/dynamodb/pricing/on-demand/
DYNAMO_READ = 0.125 / MILLION  # AmazonDynamoDB
DYNAMO_GB = 0.25 + 0.20  # AmazonDynamoDB, storage and point-in-time recovery
S3_GB = 0.023  # AmazonS3, Standard: https://aws.amazon.com/s3/pricing/
S3_PUT = 5.00 / MILLION  # AmazonS3
S3_GET = 0.40 / MILLION  # AmazonS3
LOG_GB = 0.50 + 0.03  # AmazonCloudWatch, ingestion and a month's storage: https://aws.amazon.com/cloudwatch/pricing/
METRIC = 0.30  # AmazonCloudWatch, by the hour in which it has a value
ALARM = 0.10  # AmazonCloudWatch, for each metric that it looks at
DASHBOARD = 3.00  # AmazonCloudWatch
TRACE = 5.00 / MILLION  # AWSXRay, traces recorded: https://aws.amazon.com/xray/pricing/
ENDPOINT_HOUR = 0.01  # AmazonVPC, interface endpoint per zone: https://aws.amazon.com/privatelink/pricing/
NAT_HOUR = 0.045  # AmazonEC2, NAT gateway: https://aws.amazon.com/vpc/pricing/

FREE_METRICS_PER_DASHBOARD = 50
FREE_DASHBOARDS = 3
FREE = {
    "lambda GB-s": 400_000 * LAMBDA_GB_SECOND,
    "lambda requests": MILLION * LAMBDA_REQUEST,
    "sqs": MILLION * SQS_REQUEST,
    "schedules": 14 * MILLION * SCHEDULE_RUN,
    "metrics": 10 * METRIC,
    "alarms": 10 * ALARM,
    "logs": 5 * 0.50,
    "traces": 100_000 * TRACE,
}
"""Dashboards are free too, but only those of at most fifty metrics."""

ENDPOINTS = ("ec2", "eks", "events", "sqs", "ssm")
"""Interface endpoints that functions in a VPC without a way out need; gateways for S3 and DynamoDB cost nothing."""

WATCH_S = 13 * 60 + 15
"""Seconds that one invocation of `watch` lasts: until its successor, begun after 13 minutes, has taken over."""

WATCHES = MONTHS_PER_MINUTE / 13
"""Invocations of a shared watch in a month."""

POLLERS = 5
LONG_POLL_S = 20
"""Lambda's pollers of a queue at rest, each with a long poll open."""


class Load(NamedTuple):
    """A month. Seconds are of warm invocations, per invocation; counts are per month.

    `seconds` are those of an invocation, `cluster_seconds` what each cluster adds to it. What follows is per cluster,
    but for `log_gb` and `metric_hours`: the hours in which a custom metric had a value, summed over metrics. `puts` are
    S3's beside those of the watch, `gets` per minute.
    """

    name: str
    seconds: Mapping[str, float]
    cluster_seconds: Mapping[str, float]
    extra_invocations: Mapping[str, float]
    bus_events: float
    writes: float
    reads_per_minute: float
    storage_gb: float
    log_gb: float
    cluster_log_gb: float
    record_gb: float
    puts: float
    gets: float
    metric_hours: float
    snapshots: float


LOOK_S, FULL_SWEEP_S, SWEPT_EVERY = 0.02, 0.4, 5
"""Seconds of a look at a cluster at rest, which waits for DynamoDB and the API server beside those at other clusters;
of a full sweep, which asks the cluster, DynamoDB and EC2 for 20 lists; and after how many minutes one is due."""

REST = Load(
    "at rest",
    seconds={"schedule": 0.02, "disrupt": 0.02, "catalog": 3.2},
    cluster_seconds={"schedule": LOOK_S + FULL_SWEEP_S / SWEPT_EVERY, "disrupt": LOOK_S},
    extra_invocations={},
    bus_events=0,
    writes=0,
    reads_per_minute=2 + (9 + 9 + 20) / SWEPT_EVERY,
    storage_gb=0.01,
    log_gb=0.1,
    cluster_log_gb=0.01,
    record_gb=0,
    puts=0,
    gets=1,
    metric_hours=HOURS,  # the catalogue's age, and nothing else
    snapshots=WATCHES,
)
"""Clusters without nodes of Shiplap and without pending pods: looks each minute find nothing."""

TEN = Load(
    "10 nodes at rest",
    seconds={"schedule": 0.02, "disrupt": 0.02, "catalog": 3.2},
    cluster_seconds={"schedule": LOOK_S + FULL_SWEEP_S, "disrupt": LOOK_S + 0.3},
    extra_invocations={},
    bus_events=0,
    writes=MONTHS_PER_MINUTE * 0.1,
    reads_per_minute=60,
    storage_gb=0.01,
    log_gb=0.1,
    cluster_log_gb=0.1,
    record_gb=0,
    puts=MONTHS_PER_MINUTE,
    gets=4,
    metric_hours=HOURS * 5,
    snapshots=WATCHES,
)
"""Ten nodes in each cluster that nothing happens to: a full sweep and a decision on disruption each minute, whose
memory is written; `Nodes`, `Pods`, `HourlyCost` and `HourlyListPrice` have values, of all clusters together."""

THOUSAND = Load(
    "1,000 nodes",
    seconds={"schedule": 0.02, "disrupt": 0.02, "catalog": 6.0, "lifecycle": 0.3, "interrupt": 0.1, "widget": 1.5},
    cluster_seconds={"schedule": 2.5, "disrupt": 8.0},
    extra_invocations={"schedule": 150_000, "lifecycle": 300_000, "interrupt": 30_000, "widget": 4_200},
    bus_events=600_000,
    writes=30_000 * 12,
    reads_per_minute=475,
    storage_gb=0.1,
    log_gb=0.1,
    cluster_log_gb=4,
    record_gb=5,
    puts=MONTHS_PER_MINUTE + 33_000,
    gets=14,
    metric_hours=HOURS * 30,
    snapshots=3 * MONTHS_PER_MINUTE,
)
"""A thousand nodes, a thousand of which come and go a day: 30,000 launches a month, twelve writes each, five looks of
`schedule` per launch; 150 kB recorded for each, chunks included, in 33,000 objects; thirty metrics always have values;
two dashboards are open in working hours."""

KARPENTER = {
    "two t3.medium, on demand": 2 * 0.0416 * HOURS,
    "20 GB of gp3 for each": 2 * 20 * 0.08,
}
"""Two nodes that nothing but Karpenter (two replicas) and DaemonSets run on; its queue and rules are not counted."""

_FUNCTIONS = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "audit", "widget")


class Deployed(NamedTuple):
    """The deployed parts of templates; memory in GiB by function, runs per month by what they start.

    `alarm_metrics` are those that alarms look at, `dashboards` the metrics on each, `traced` the functions that X-Ray
    traces.
    """

    memory_gib: dict[str, float]
    scheduled: dict[str, float]
    queues: int
    alarm_metrics: int
    dashboards: tuple[int, ...]
    traced: frozenset[str] = frozenset()


def read(templates: Iterable[Mapping[str, Any]]) -> Deployed:
    """Return the parts of synthesised templates that cost money."""
    memory: dict[str, float] = {}
    scheduled: dict[str, float] = {}
    queues = alarm_metrics = 0
    dashboards: list[int] = []
    traced: set[str] = set()
    for template in templates:
        found = _Resources(template)
        names = {id_: _base_name(item["FunctionName"]) for id_, item in found.of("AWS::Lambda::Function").items()}
        for id_, item in found.of("AWS::Lambda::Function").items():
            memory[names[id_]] = item["MemorySize"] / 1024
            traced |= {names[id_]} if item.get("TracingConfig", {}).get("Mode") == "Active" else set()
        aliases = {id_: names[item["FunctionName"]["Ref"]] for id_, item in found.of("AWS::Lambda::Alias").items()}
        for item in found.of("AWS::Scheduler::Schedule").values():
            text = json.dumps(item["Target"]["Arn"])
            started = next((name for id_, name in aliases.items() if f'"{id_}"' in text), "schedule")
            scheduled[started] = scheduled.get(started, 0) + _runs(item["ScheduleExpression"])
        queues += len(found.of("AWS::Lambda::EventSourceMapping"))
        alarm_metrics += sum(_metrics_of(alarm) for alarm in found.of("AWS::CloudWatch::Alarm").values())
        dashboards += [metrics_on(item["DashboardBody"]) for item in found.of("AWS::CloudWatch::Dashboard").values()]
    return Deployed(memory, scheduled, queues, alarm_metrics, tuple(dashboards), frozenset(traced))


class _Resources:
    def __init__(self, template: Mapping[str, Any]) -> None:
        self._resources: Mapping[str, Any] = template["Resources"]

    def of(self, type_: str) -> dict[str, Any]:
        """Properties by logical id."""
        return {name: item["Properties"] for name, item in self._resources.items() if item["Type"] == type_}


def _base_name(function: str) -> str:
    """`schedule` of `shiplap-schedule` and of `shiplap-schedule-blue`, which serves the network `blue`."""
    return next(part for part in function.split("-")[1:] if part in _FUNCTIONS)


def _metrics_of(alarm: Mapping[str, Any]) -> int:
    """An alarm on an expression is paid for by the metrics in it."""
    return sum("MetricStat" in item for item in alarm.get("Metrics", ())) or 1


def metrics_on(body: Any) -> int:
    """Metrics that a dashboard refers to; one that is shown twice counts twice, to be on the safe side.

    Raises:
        ValueError: an expression searches, so that only CloudWatch knows how many it refers to.
    """
    parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
    text = "".join(part if isinstance(part, str) else "reference" for part in parts)
    listed = [metric for widget in json.loads(text)["widgets"] for metric in widget["properties"].get("metrics", ())]
    expressions = [metric[0]["expression"] for metric in listed if isinstance(metric[0], dict)]
    for expression in expressions:
        if "SEARCH" in expression or "SELECT" in expression:
            raise ValueError(f"{expression} finds any number of metrics")
    return len(listed) - len(expressions)


def _runs(rate: str) -> float:
    """Runs per month of `rate(N unit)`."""
    number, unit = rate.removeprefix("rate(").removesuffix(")").split()
    return SECONDS / (float(number) * {"minute": 60, "hour": 3600, "day": 86400}[unit.removesuffix("s")])


def bill(deployed: Deployed, load: Load, clusters: int = 1) -> dict[str, float]:
    """USD per month at list price, by what is paid for."""
    runs = {name: deployed.scheduled.get(name, 0) + load.extra_invocations.get(name, 0) for name in deployed.memory_gib}

    def seconds(name: str) -> float:
        if name == "watch":
            return WATCH_S
        return load.seconds.get(name, 0.0) + clusters * load.cluster_seconds.get(name, 0.0)

    used = sum(runs[name] * seconds(name) * deployed.memory_gib[name] for name in runs)
    polls = deployed.queues * POLLERS * SECONDS / LONG_POLL_S
    messages = 3 * (runs.get("schedule", 0) + runs.get("lifecycle", 0) + runs.get("interrupt", 0))
    # A watch asks whether it has a successor every four minutes, and in the last minutes every ten seconds.
    snapshots, questions = (load.snapshots, 9 * WATCHES) if runs.get("watch") else (0, 0)
    return {
        "lambda GB-s": used * LAMBDA_GB_SECOND,
        "lambda requests": sum(runs.values()) * LAMBDA_REQUEST,
        "sqs": (polls + messages) * SQS_REQUEST,
        "events": clusters * load.bus_events * BUS_EVENT,
        "schedules": sum(deployed.scheduled.values()) * SCHEDULE_RUN,
        "dynamodb": clusters * load.writes * DYNAMO_WRITE
        + clusters * load.reads_per_minute * MONTHS_PER_MINUTE * DYNAMO_READ
        + load.storage_gb * DYNAMO_GB,
        "s3": clusters
        * (
            load.record_gb * S3_GB
            + (load.puts + snapshots) * S3_PUT
            + (load.gets * MONTHS_PER_MINUTE + questions) * S3_GET
        ),
        "logs": (load.log_gb + clusters * load.cluster_log_gb) * LOG_GB,
        "metrics": load.metric_hours / HOURS * METRIC,
        "alarms": deployed.alarm_metrics * ALARM,
        "dashboards": len(deployed.dashboards) * DASHBOARD,
        # Lambda traces one request a second and a twentieth of what comes beyond: at these rates, nearly all.
        "traces": sum(runs[name] for name in deployed.traced) * TRACE,
    }


def with_free_tier(listed: Mapping[str, float], deployed: Deployed) -> dict[str, float]:
    """The same, less what an account has free each month."""
    small = sum(metrics <= FREE_METRICS_PER_DASHBOARD for metrics in deployed.dashboards)
    free = {**FREE, "dashboards": min(small, FREE_DASHBOARDS) * DASHBOARD}
    return {name: max(0.0, amount - free.get(name, 0.0)) for name, amount in listed.items()}


def private_network(zones: int) -> dict[str, float]:
    """Return the USD per month that a VPC adds for functions in it: endpoints in so many zones, or one NAT gateway."""
    return {
        f"{len(ENDPOINTS)} interface endpoints in {zones} zone(s)": len(ENDPOINTS) * zones * ENDPOINT_HOUR * HOURS,
        "or one NAT gateway, without traffic": NAT_HOUR * HOURS,
    }


def synthesised(
    *, clusters: int = 1, watch: bool = True, dashboard: bool = True, tracing: bool = False
) -> list[dict[str, Any]]:
    """The templates of an install of so many clusters."""
    from shiplap_lab.emulated_aws import cdk  # noqa: PLC0415 - the CDK is not needed for templates that are there

    os.environ.setdefault("JSII_NODE", str(cdk.executable()))
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        settings, out = Path(folder) / "shiplap.yaml", Path(folder) / "cdk.out"
        manifests = ROOT / "tests" / "infra" / "install" / "manifests" / "production"
        lines = ["region: us-east-1", f"dashboard: {str(dashboard).lower()}", f"tracing: {str(tracing).lower()}"]
        lines += ["clusters:"]
        names = ["production", *(f"team-{number:03}" for number in range(1, clusters))]
        lines += [f"  - {{name: {name}, manifests: {manifests}, watch: {str(watch).lower()}}}" for name in names]
        settings.write_text("\n".join(lines) + "\n")
        build(read(settings), outdir=str(out)).synth()
        return templates_in(out)


def templates_in(folder: Path) -> list[dict[str, Any]]:
    """All templates of a cloud assembly, those of nested stacks too."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.template.json"))]


def _print(title: str, deployed: Deployed, clusters: int = 1) -> None:
    on_dashboards = ", ".join(map(str, deployed.dashboards)) or "none"
    print(f"\n{title}: alarms on {deployed.alarm_metrics} metrics, metrics on dashboards: {on_dashboards}")
    print("USD per month\n")
    loads = (REST, TEN, THOUSAND) if clusters == 1 else (REST, TEN)
    bills = [bill(deployed, load, clusters) for load in loads]
    columns = [column for listed in bills for column in (listed, with_free_tier(listed, deployed))]
    print(f"{'':18}" + "".join(f"{load.name:>18}{'free tier':>12}" for load in loads))
    for name in bills[0]:
        print(f"{name:18}" + "".join(f"{amount[name]:{(18, 12)[n % 2]}.2f}" for n, amount in enumerate(columns)))
    sums = [sum(column.values()) for column in columns]
    print(f"{'sum':18}" + "".join(f"{amount:{(18, 12)[n % 2]}.2f}" for n, amount in enumerate(sums)))


def _per_further_cluster(one: Deployed, many: Deployed, clusters: int) -> None:
    for load in (REST, TEN):
        more = sum(bill(many, load, clusters).values()) - sum(bill(one, load).values())
        print(
            f"each further cluster of {clusters}, {load.name}: {more / (clusters - 1):.2f} USD per month at list price"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--templates", type=Path, help="a folder of synthesised templates; without, ours are made")
    parser.add_argument("--clusters", type=int, nargs="+", default=[2, 10], help="installs of so many clusters")
    arguments = parser.parse_args()
    if arguments.templates is not None:
        _print(arguments.templates.name, read(templates_in(arguments.templates)))
        return
    one = read(synthesised())
    _print("One cluster", one)
    _print("dashboard: false", read(synthesised(dashboard=False)))
    _print("watch: false (pods wait for the sweep, at most a minute)", read(synthesised(watch=False)))
    for clusters in arguments.clusters:
        many = read(synthesised(clusters=clusters))
        _print(f"{clusters} clusters", many, clusters)
        _per_further_cluster(one, many, clusters)
    for title, amounts in (("\nA private network, beside that", private_network(2)), ("\nKarpenter", KARPENTER)):
        print(f"{title}, the same month\n")
        for name, amount in amounts.items():
            print(f"{name:40}{amount:12.2f}")
    print(f"{'sum':40}{sum(KARPENTER.values()):12.2f}")


if __name__ == "__main__":
    main()
