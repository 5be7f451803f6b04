"""Five thousand PodPending events in ten seconds through the deployed flow: bus, rule, queue, function, EC2, nodes.

The stack is deployed on the emulated AWS of `shiplap lab dev`; cluster, EC2 and pods are simulated. Lambda's polling of
the queue is done here as AWS does it (batches of up to 1,000, a window of a second, at most so many at once as the
template says), because the emulator's own knows neither window nor large batches. Invocations are counted there. Every
event is about one pod, which is created just before.

    python -m benchmarks.functions.event_load                  # 5,000 events
    python -m benchmarks.functions.event_load --events 500     # fewer
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import boto3

from shiplap_lab.dev import dev_session
from shiplap_lab.dev.local_region import LocalRegion
from shiplap_lab.scenarios.scenario import load
from tests.event_source import EventSourcePoller, take_over_mapping

CLUSTER = "load"
SPREAD_S = 10.0
PATIENCE_S = 900.0
_AT_ONCE = 10

SCENARIO = """\
about: A burst of pods
clusters: [{name: load, manifests: manifests}]
steps: []
"""
MANIFESTS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-load
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [c7i, m7i]}
        - {key: karpenter.k8s.aws/instance-size, operator: In, values: [8xlarge, 16xlarge]}
"""


class Load(NamedTuple):
    """One run's result. `seconds` from the first event until every pod was bound; 0 when patience was over before."""

    events: int
    published_in_s: float
    received: int
    repeated: int
    invocations: int
    largest_batch: int
    dead_letters: int
    nodes: int
    bound: int
    seconds: float


def run(events: int, tell: Any) -> Load:
    """Deploy, send, wait. Raises ShiplapError when the stack cannot be deployed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "scenario.yaml").write_text(SCENARIO)
        (path / "manifests").mkdir()
        (path / "manifests" / "nodes.yaml").write_text(MANIFESTS)
        with LocalRegion(load(str(path)), tell) as stage:
            return _sent(events, stage, tell)


def _sent(events: int, stage: LocalRegion, tell: Any) -> Load:
    clients, outputs = _deployed()
    mapped = take_over_mapping(
        clients("lambda"), outputs["ProvisioningQueueUrl"], f"{outputs['ScheduleFunction']}:live"
    )
    with EventSourcePoller(clients("sqs"), clients("lambda"), mapped) as source:
        began = time.monotonic()
        for start in range(0, events, _AT_ONCE):
            names = [f"pod-{number}" for number in range(start, min(start + _AT_ONCE, events))]
            _publish(names, stage, clients("events"), outputs["Bus"])
            time.sleep(max(0.0, began + SPREAD_S * (start + len(names)) / events - time.monotonic()))
        published_in_s = time.monotonic() - began
        tell(f"published {events} events in {published_in_s:.1f} s")
        bound = received = 0
        bound_in_s = 0.0
        while min(bound, received) < events and time.monotonic() - began < PATIENCE_S and source.failure is None:
            stage.let_time_pass()
            received = len({event_of(body) for body in list(source.bodies.values())} - {""})
            pods = stage.observe().cluster(CLUSTER).workload
            bound = sum(bool(pod.spec.node_name) for pod in pods)
            if bound == events and not bound_in_s:
                bound_in_s = time.monotonic() - began
            tell(f"{received} events heard, {bound} pods bound after {time.monotonic() - began:.0f} s")
    if source.failure is not None:
        raise source.failure
    letters = clients("sqs").get_queue_attributes(
        QueueUrl=outputs["ProvisioningDeadLettersUrl"], AttributeNames=["ApproximateNumberOfMessages"]
    )
    return Load(
        events=events,
        published_in_s=published_in_s,
        received=received,
        repeated=sum(times - 1 for times in source.received.values()),
        invocations=len(source.invocations),
        largest_batch=max(source.invocations, default=0),
        dead_letters=int(letters["Attributes"]["ApproximateNumberOfMessages"]),
        nodes=len(stage.observe().cluster(CLUSTER).nodes),
        bound=bound,
        seconds=bound_in_s,
    )


def event_of(body: str) -> str:
    """The id of an event of ours, empty for others': sweeps and the watch function use the queue as well."""
    event = json.loads(body)
    return str(event["detail"]["id"]) if event.get("source") == "shiplap.load" else ""


def _deployed() -> tuple[Any, Mapping[str, str]]:
    environment = dev_session.find_session().environment
    known: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in known:
            known[service] = boto3.client(  # type: ignore[call-overload]
                service,
                endpoint_url=environment["AWS_ENDPOINT_URL"],
                region_name=environment["AWS_REGION"],
                aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                config=boto3.session.Config(read_timeout=600, retries={"total_max_attempts": 1}),
            )
        return known[service]

    (stack,) = client("cloudformation").describe_stacks(StackName="Shiplap")["Stacks"]
    return client, {item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}


def _publish(names: list[str], stage: LocalRegion, bus: Any, name: str) -> None:
    for pod in names:
        stage.apply(CLUSTER, _pod(pod))
    entries = [
        {
            "EventBusName": name,
            "Source": "shiplap.load",
            "DetailType": "PodPending",
            "Detail": json.dumps({"cluster": CLUSTER, "id": pod, "pods": [["default", pod, ""]], "reason": "load"}),
        }
        for pod in names
    ]
    answer = bus.put_events(Entries=entries)
    if answer["FailedEntryCount"]:
        raise RuntimeError(f"the bus refused events: {answer}")


def _pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m", "memory": "400Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "load"}},
        "spec": {"containers": [{"name": "main", "image": "example/app:v1", "resources": resources}]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=5000)
    said: list[str] = []

    def tell(line: str) -> None:
        if said[-1:] != [line]:
            said.append(line)
            print(line, file=sys.stderr)

    load = run(parser.parse_args().events, tell)
    for field, value in load._asdict().items():
        print(f"{field.replace('_', ' '):16}{value:10.1f}" if isinstance(value, float) else f"{field:16}{value:10}")
    whole = load.received == load.bound == load.events and not load.dead_letters and load.invocations <= 50
    if load.published_in_s > 1.5 * SPREAD_S:
        print(
            f"this machine took {load.published_in_s:.0f} s for what should take {SPREAD_S:.0f}: count no invocations"
        )
    print("no message lost, every pod bound, at most 50 invocations" if whole else "NOT AS PROMISED")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
