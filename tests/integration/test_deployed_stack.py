"""The synthesised stack, deployed on the emulated AWS: its own queues feed its own functions, unchanged.

The only test that needs Node.js and tens of seconds; what the flows do is tested elsewhere, on fakes.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest

from shiplap.aws import session
from shiplap.errors import ShiplapError
from shiplap_cli.main import run
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.dev import dev_session
from shiplap_lab.emulated_aws import cdk
from shiplap_lab.emulated_aws.emulator import AwsEmulator, DeployedStack
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices
from tests import audit_log
from tests.builders.pods import pod_object
from tests.integration.deployed_stack import PRICES, REGION, VERSION, Clock, written

pytestmark = pytest.mark.thorough

try:
    cdk.executable()
except ShiplapError as missing:
    pytest.skip(f"the stack cannot be deployed: {missing}", allow_module_level=True)

LONGEST_WAIT_S = 60


class World:
    """The deployed stack with the cluster and the EC2 that its functions see."""

    def __init__(
        self, aws: AwsEmulator, deployed: DeployedStack, ec2: Ec2Emulator, cluster: ApiServer, cluster_url: str
    ) -> None:
        self.aws = aws
        self.cluster_url = cluster_url
        self.deployed = deployed
        self.ec2 = ec2
        self.cluster = cluster
        self.sqs = aws.client("sqs")

    def listen(self, *detail_types: str) -> str:
        """A queue of its own for events of the bus; returns its URL."""
        events = self.aws.client("events")
        name = "-".join(detail_types)
        queue: str = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        bus = self.deployed.bus
        events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps({"detail-type": list(detail_types)}))
        events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
        return queue

    def next_message(self, queue: str) -> dict[str, Any]:
        """Wait for a message and take it off the queue."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < deadline:
            answer = self.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5, MessageAttributeNames=["All"])
            for message in answer.get("Messages", ()):
                self.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
                found: dict[str, Any] = message
                return found
        pytest.fail(f"nothing arrived in {queue}; MiniStack said:\n{self.log()[-4000:]}")

    def log(self) -> str:
        return (self.aws.state / "ministack.log").read_text()

    def invoke(self, function: str, payload: dict[str, Any]) -> Any:
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.deployed.functions[function], Payload=json.dumps(payload)
        )
        result = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, result
        return result


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("install")
    cluster = ApiServer(Clock())
    with ExitStack() as running:
        api = running.enter_context(KubeHttpServer(cluster))
        ec2 = running.enter_context(Ec2Emulator(region=REGION, prices=Prices(PRICES)))
        aws = running.enter_context(AwsEmulator(REGION, folder=tmp_path_factory.mktemp("state")))
        deployed = aws.deploy(written(folder, api.endpoint), dict.fromkeys(("EC2", "SSM", "PRICING"), ec2.url))
        seed.register_images(ec2.control, seed.release_images("al2023@latest", VERSION))
        network = boto3.client(
            "ec2", endpoint_url=ec2.url, region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local"
        )
        seed.create_network(network, "demo", (f"{REGION}a", f"{REGION}b"))
        network.close()
        yield World(aws, deployed, ec2, cluster, api.endpoint)


def pending_pod(name: str) -> dict[str, Any]:
    return pod_object(name, "1", "1Gi", waits=True)


def test_an_event_on_the_bus_becomes_an_instance_and_a_warning_ends_it(world: World) -> None:
    launched, terminated = world.listen("NodeClaimLaunched"), world.listen("NodeClaimTerminated")
    world.cluster.create("pods", pending_pod("first"), "default")
    detail = {"cluster": "demo", "id": "1", "time": "2026-01-01T00:00:00Z", "pods": [], "reason": "test"}
    entry = {
        "EventBusName": world.deployed.bus,
        "Source": "shiplap.test",
        "DetailType": "PodPending",
        "Detail": json.dumps(detail),
    }

    world.aws.client("events").put_events(Entries=[entry])

    event = json.loads(world.next_message(launched)["Body"])
    assert event["detail"]["cluster"] == "demo"
    (instance,) = world.ec2.control.instances()
    assert instance.instance_type == "c7i-flex.large"
    profile = world.aws.client("iam").get_instance_profile(InstanceProfileName=instance.instance_profile)
    assert profile["InstanceProfile"]["Path"] == f"/shiplap/{REGION}/shiplap/demo/shiplap-node-demo/"

    # The emulator takes no events in the name of AWS: this is what the rule would deliver.
    warning = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning"}
    body = json.dumps(warning | {"detail": {"instance-id": instance.id, "instance-action": "terminate"}})
    world.sqs.send_message(QueueUrl=world.deployed.interruption_queue_url, MessageBody=body)

    event = json.loads(world.next_message(terminated)["Body"])
    assert (event["detail"]["instanceId"], event["detail"]["reason"]) == (instance.id, "SpotInterruption")


def test_the_audit_log_of_a_cluster_becomes_an_event(world: World) -> None:
    heard = world.listen("PodPending")
    logs = world.aws.client("logs")
    stream = {"logGroupName": "/aws/eks/demo/cluster", "logStreamName": "kube-apiserver-audit-1"}
    logs.create_log_stream(**stream)
    # MiniStack knows no patterns of JSON: ours would let nothing pass, and what it lets pass is tested elsewhere.
    (subscription,) = logs.describe_subscription_filters(logGroupName=stream["logGroupName"])["subscriptionFilters"]
    kept = {field: subscription[field] for field in ("logGroupName", "filterName", "destinationArn")}
    logs.put_subscription_filter(**kept, filterPattern="")
    written = [audit_log.of_kubelet(), audit_log.record(audit_log.pending_pod("seen"))]
    lines = [{"timestamp": int(time.time() * 1000), "message": audit_log.text(item)} for item in written]

    logs.put_log_events(**stream, logEvents=[*lines, {"timestamp": lines[0]["timestamp"], "message": "cut{"}])

    event = json.loads(world.next_message(heard)["Body"])
    assert event["source"] == "shiplap.audit"
    assert event["detail"]["pods"] == [["shop", "seen", "uid-of-shop-seen"]]


def test_doctor_finds_the_deployed_functions_and_queues_well(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`doctor` also looks at what MiniStack does not know; the error ends no check but its own."""
    for name, value in world.aws.environment().items():
        monkeypatch.setenv(name, value)
    session.session.cache_clear()
    world.invoke("catalog", {})

    assert run(["doctor", "-o", "json"]) == 1  # there is no EKS, and nobody to ask about quotas

    found = json.loads(capsys.readouterr().out)["findings"]
    verdicts = {(item["check"], item["subject"]): (item["verdict"], item["says"]) for item in found}
    assert verdicts["functions", "schedule"][0] == "ok", found
    assert verdicts["event sources", "lifecycle"][0] == "ok", found
    assert verdicts["queues", "provisioning"][0] == "ok", found
    assert verdicts["node classes", "demo/default"][0] == "ok", found
    assert verdicts["audit log", "demo"][0] == "ok", found
    session.session.cache_clear()


def test_live_commands_read_the_install_as_it_is_deployed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stack, settings layer, tables and bucket by the commands' own look-ups; the claim in flight is waited for."""
    for name, value in world.aws.environment().items():
        monkeypatch.setenv(name, value)
    for service in ("EC2", "SSM"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", world.ec2.url)
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    world.invoke("catalog", {})
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": world.cluster_url}}],
        "users": [{"name": "me", "user": {"token": "local"}}],
    }
    (tmp_path / "config").write_bytes(msgspec.json.encode(config))
    world.cluster.create("pods", pending_pod("second"), "default")

    def says(command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        given = (*command.split(), *arguments, "-o", "json")
        assert run([*given]) == code, capsys.readouterr().err
        return dict(json.loads(capsys.readouterr().out))

    live = ("--kubeconfig", str(tmp_path / "config"), "--cluster", "demo")
    planned = says("plan", *live)
    assert "notes" not in planned
    assert "unseen" not in planned
    assert {claim["launch"]["instanceType"] for claim in planned["nodeClaims"]} == {"c7i-flex.large"}
    assert planned["nodeClaims"][0]["launch"]["price"] == pytest.approx(PRICES["c7i-flex.large"], rel=0.01)

    launched = world.listen("NodeClaimLaunched")
    body = json.dumps({"kind": "sweep", "cluster": "demo"})
    world.sqs.send_message(QueueUrl=world.deployed.provisioning_queue_url, MessageBody=body)
    claims = {claim["name"] for claim in planned["nodeClaims"]}
    seen: set[str] = set()
    while not claims <= seen:  # what was planned is what is launched, after what was launched before
        seen.add(json.loads(world.next_message(launched)["Body"])["detail"]["claim"])
    assert says("plan", *live)["nodeClaims"] == [], "they are on their way"

    of_dev = world.aws.environment() | {f"AWS_ENDPOINT_URL_{name}": world.ec2.url for name in ("EC2", "SSM")}
    (tmp_path / "run").mkdir()
    dev_session.announce_session(tmp_path / "run", of_dev, world.deployed.bucket, {"demo": world.cluster_url})
    monkeypatch.setattr(dev_session, "find_session", functools.partial(dev_session.find_session, tmp_path))
    assert says("plan", "--dev")["nodeClaims"] == []
    assert says("disrupt", "--dev", code=1)["commands"] == []
    counted = {each["name"]: each["invocations"] for each in says("status", "--dev")["functions"]}
    assert counted["schedule"] >= len(seen), "functions that queues invoke are counted, too"
    checks = {each["check"] for each in says("doctor", "--dev")["findings"]}
    assert {"functions", "queues", "catalogue"} <= checks, "and exit code 0"

    shown = says("top", "--dev")
    coming = {item["name"]: item for item in shown["nodes"]}
    assert claims <= coming.keys()
    assert {coming[name]["note"] for name in claims} == {"Launched"}
    prices = {claim["name"]: claim["launch"]["price"] for claim in planned["nodeClaims"]}
    assert {name: coming[name]["hourly"] for name in claims} == prices
    story = says("explain pod", "default/second", "--cluster", "demo")
    assert any("EC2 gave" in entry["what"] for entry in story["entries"])
    assert says("status")["poolUse"][0]["starting"] >= 1
    session.session.cache_clear()


def test_a_message_nobody_can_read_is_set_aside_with_the_reason(world: World) -> None:
    world.sqs.send_message(QueueUrl=world.deployed.provisioning_queue_url, MessageBody="not an event")

    message = world.next_message(world.deployed.provisioning_dead_letters_url)

    assert message["Body"] == "not an event"
    assert "JSON is malformed" in message["MessageAttributes"]["reason"]["StringValue"]


def test_each_function_starts_from_its_layers(world: World) -> None:
    assert world.invoke("catalog", {}) == {REGION: pytest.approx(1380, abs=100)}
    assert world.invoke("lifecycle", {"Records": []}) == {"batchItemFailures": []}
    assert world.invoke("watch", {"cluster": "unknown"}) == {"told": 0}


def test_outputs_name_what_was_deployed(world: World) -> None:
    tables = world.aws.client("dynamodb").list_tables()["TableNames"]
    buckets = [bucket["Name"] for bucket in world.aws.client("s3").list_buckets()["Buckets"]]

    assert {world.deployed.state_table, world.deployed.capacity_table} == set(tables)
    assert world.deployed.bucket in buckets
