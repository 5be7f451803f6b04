"""What an install costs per month: reckoned from the synthesised template, at rest and with a thousand nodes.

What is deployed (functions and their memory, schedules, alarms, dashboards, queues) is read from the template. How long
functions run and how much they write are the assumptions below, stated with where they come from. Prices are those of
us-east-1. Both sums are shown: at list price, and with AWS's free tier that does not end, which an account has once.

    python benchmarks/cost.py                     # synthesises an install of one cluster
    python benchmarks/cost.py --template FILE     # a template as `cdk synth` writes it
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

HOURS = 730
SECONDS = HOURS * 3600
MILLION = 1e6
MONTHS_PER_MINUTE = HOURS * 60

# USD.
LAMBDA_GB_SECOND = 0.0000133334
LAMBDA_REQUEST = 0.20 / MILLION
SQS_REQUEST = 0.40 / MILLION
BUS_EVENT = 1.00 / MILLION
SCHEDULE_RUN = 1.00 / MILLION
DYNAMO_WRITE = 0.625 / MILLION
DYNAMO_READ = 0.125 / MILLION
DYNAMO_GB = 0.25 + 0.20
S3_GB = 0.023
S3_PUT = 5.00 / MILLION
S3_GET = 0.40 / MILLION
LOG_GB = 0.50 + 0.03
METRIC = 0.30
ALARM = 0.10
DASHBOARD = 3.00

FREE = {
    "lambda GB-s": 400_000 * LAMBDA_GB_SECOND,
    "lambda requests": MILLION * LAMBDA_REQUEST,
    "sqs": MILLION * SQS_REQUEST,
    "schedules": 14 * MILLION * SCHEDULE_RUN,
    "metrics": 10 * METRIC,
    "alarms": 10 * ALARM,
    "dashboards": 3 * DASHBOARD,
    "logs": 5 * 0.50,
}

WATCH_S = 13 * 60 + 30
"""Seconds that one invocation of `watch` lasts: until its successor, begun after 13 minutes, has taken over."""

SNAPSHOTS = {"at rest": MONTHS_PER_MINUTE / 13, "1,000 nodes": 3 * MONTHS_PER_MINUTE}
"""Snapshots written in a month: one for each watch of a small cluster, three a minute of one where pods change."""

POLLERS = 5
LONG_POLL_S = 20
"""Lambda's pollers of a queue at rest, each with a long poll open."""


class Load(NamedTuple):
    """A month of one cluster. Seconds are of warm invocations, per invocation; counts are per month.

    `metric_hours` are hours in which a custom metric had a value, summed over metrics: they are paid for by the hour.
    """

    name: str
    seconds: Mapping[str, float]
    extra_invocations: Mapping[str, float]
    bus_events: float
    writes: float
    reads_per_minute: float
    log_gb: float
    record_gb: float
    metric_hours: float


REST = Load(
    "at rest",
    seconds={"schedule": 0.15, "disrupt": 0.15, "catalog": 3.0},
    extra_invocations={},
    bus_events=0,
    writes=MONTHS_PER_MINUTE * 0.1,
    reads_per_minute=20,
    log_gb=0.2,
    record_gb=0,
    metric_hours=HOURS,  # the catalogue's age, and nothing else
)
"""A cluster without pods that wait: a sweep and a look at disruption each minute find nothing."""

THOUSAND = Load(
    "1,000 nodes",
    seconds={"schedule": 2.5, "disrupt": 8.0, "catalog": 6.0, "lifecycle": 0.3, "interrupt": 0.1, "widget": 1.5},
    extra_invocations={"schedule": 150_000, "lifecycle": 300_000, "interrupt": 30_000, "widget": 4_200},
    bus_events=600_000,
    writes=30_000 * 12,
    reads_per_minute=475,
    log_gb=4,
    record_gb=10,
    metric_hours=HOURS * 45,
)
"""A thousand nodes, a thousand of which come and go a day: 30,000 launches a month, twelve writes each, five looks of
`schedule` per launch; three pools of two tiers; 45 metrics always have values; two dashboards are open in working
hours."""

KARPENTER = {
    "two t3.medium, on demand": 2 * 0.0416 * HOURS,
    "20 GB of gp3 for each": 2 * 20 * 0.08,
}
"""Two nodes that nothing but Karpenter (two replicas) and DaemonSets run on; its queue and rules are not counted."""


class Deployed(NamedTuple):
    """What a template holds; memory in GiB by function, runs per month by what they start."""

    memory_gib: dict[str, float]
    scheduled: dict[str, float]
    queues: int
    alarms: int
    dashboards: int


def read(template: Mapping[str, Any]) -> Deployed:
    """What of a synthesised template is paid for."""
    resources: Mapping[str, Any] = template["Resources"]

    def of(type_: str) -> dict[str, Any]:
        return {name: item["Properties"] for name, item in resources.items() if item["Type"] == type_}

    functions = {name: item["FunctionName"].rpartition("-")[2] for name, item in of("AWS::Lambda::Function").items()}
    memory = {functions[name]: item["MemorySize"] / 1024 for name, item in of("AWS::Lambda::Function").items()}
    aliases = {name: functions[item["FunctionName"]["Ref"]] for name, item in of("AWS::Lambda::Alias").items()}
    scheduled: dict[str, float] = {}
    for item in of("AWS::Scheduler::Schedule").values():
        text = json.dumps(item["Target"]["Arn"])
        started = next((name for id_, name in aliases.items() if f'"{id_}"' in text), "schedule")
        scheduled[started] = scheduled.get(started, 0) + _runs(item["ScheduleExpression"])
    fed = of("AWS::Lambda::EventSourceMapping")
    return Deployed(
        memory, scheduled, len(fed), len(of("AWS::CloudWatch::Alarm")), len(of("AWS::CloudWatch::Dashboard"))
    )


def _runs(rate: str) -> float:
    """Runs per month of `rate(N unit)`."""
    number, unit = rate.removeprefix("rate(").removesuffix(")").split()
    return SECONDS / (float(number) * {"minute": 60, "hour": 3600, "day": 86400}[unit.removesuffix("s")])


def bill(deployed: Deployed, load: Load) -> dict[str, float]:
    """USD per month at list price, by what is paid for."""
    seconds = {**load.seconds, "watch": WATCH_S}
    runs = {name: deployed.scheduled.get(name, 0) + load.extra_invocations.get(name, 0) for name in deployed.memory_gib}
    used = {name: runs[name] * seconds.get(name, 0.0) * deployed.memory_gib[name] for name in runs}
    polls = deployed.queues * POLLERS * SECONDS / LONG_POLL_S
    messages = 3 * (runs.get("schedule", 0) + runs.get("lifecycle", 0) + runs.get("interrupt", 0))
    snapshots = SNAPSHOTS[load.name] if runs.get("watch") else 0
    # A decision on a large cluster reads its snapshot; the watch asks three times a minute whether it has a successor.
    s3_reads = (3 if load is THOUSAND else 2) * (runs.get("disrupt", 0) + runs.get("schedule", 0))
    s3_reads += 3 * MONTHS_PER_MINUTE if snapshots else 0
    return {
        "lambda GB-s": sum(used.values()) * LAMBDA_GB_SECOND,
        "lambda requests": sum(runs.values()) * LAMBDA_REQUEST,
        "sqs": (polls + messages) * SQS_REQUEST,
        "events": load.bus_events * BUS_EVENT,
        "schedules": sum(deployed.scheduled.values()) * SCHEDULE_RUN,
        "dynamodb": load.writes * DYNAMO_WRITE
        + load.reads_per_minute * MONTHS_PER_MINUTE * DYNAMO_READ
        + DYNAMO_GB * 0.1,
        "s3": load.record_gb * S3_GB + (runs.get("disrupt", 0) + snapshots) * S3_PUT + s3_reads * S3_GET,
        "logs": load.log_gb * LOG_GB,
        "metrics": load.metric_hours / HOURS * METRIC,
        "alarms": deployed.alarms * ALARM,
        "dashboards": deployed.dashboards * DASHBOARD,
    }


def with_free_tier(listed: Mapping[str, float]) -> dict[str, float]:
    """The same, less what an account has free each month."""
    return {name: max(0.0, amount - FREE.get(name, 0.0)) for name, amount in listed.items()}


def synthesised(*, watch: bool) -> dict[str, Any]:
    """The template of an install of one cluster."""
    from shiplap.local import node  # noqa: PLC0415 - the CDK is not needed for a template that is there

    os.environ.setdefault("JSII_NODE", str(node.executable()))
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
    from aws_cdk.assertions import Template  # noqa: PLC0415

    from infra.app import build  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "shiplap.yaml"
        manifests = ROOT / "tests" / "infra" / "install" / "manifests" / "production"
        cluster = f"  - {{name: production, manifests: {manifests}, watch: {str(watch).lower()}}}\n"
        settings.write_text(f"region: us-east-1\nclusters:\n{cluster}")
        app = build(settings, outdir=str(Path(folder) / "cdk.out"))
        found: dict[str, Any] = Template.from_stack(app.node.find_child("Shiplap")).to_json()
    return found


def _print(title: str, deployed: Deployed) -> None:
    print(f"\n{title}: {deployed.alarms} alarms, {deployed.dashboards} dashboard, USD per month\n")
    bills = [bill(deployed, load) for load in (REST, THOUSAND)]
    columns = [column for listed in bills for column in (listed, with_free_tier(listed))]
    print(f"{'':18}{'at rest':>12}{'free tier':>12}{'1,000 nodes':>12}{'free tier':>12}")
    for name in bills[0]:
        print(f"{name:18}" + "".join(f"{column[name]:12.2f}" for column in columns))
    print(f"{'sum':18}" + "".join(f"{sum(column.values()):12.2f}" for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--template", type=Path, help="a synthesised template; without, an install of one cluster")
    template: Path | None = parser.parse_args().template
    if template is not None:
        _print(template.name, read(json.loads(template.read_text())))
    else:
        _print("With the watch function", read(synthesised(watch=True)))
        _print("Without it (pods wait for the sweep, at most a minute)", read(synthesised(watch=False)))
    print("\nKarpenter, the same month\n")
    for name, amount in KARPENTER.items():
        print(f"{name:30}{amount:12.2f}")
    print(f"{'sum':30}{sum(KARPENTER.values()):12.2f}")


if __name__ == "__main__":
    main()
