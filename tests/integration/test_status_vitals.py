"""`shiplap status` of a whole install: pools and limits, queues, functions, failures, what was learned; redrive."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import boto3
import msgspec
import pytest

from shiplap.aws import session
from shiplap.aws.bucket import BucketCatalog, BucketStatus
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.sqs import SqsDeadLetters
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    InstallStatus,
    NodeClassStatus,
    PoolStatus,
    conditions,
)
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import OfferingFailure
from shiplap_cli.commands.status import status as command
from shiplap_cli.installs.dead_letter_queues import GIVEN_UP
from shiplap_cli.installs.find_install import DeployedInstall as Found
from shiplap_cli.installs.install_metrics import queues_of
from shiplap_cli.main import run
from shiplap_lab.catalogue import embedded
from tests.builders.claims import changes, node_claim
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table

NOW = 1_700_000_000.0
QUEUES = ("Provisioning", "Lifecycle", "Interruption")
GIB = 1 << 30


class Install:
    """A stack with its outputs, and what stands behind them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.s3, self.sqs, self.dynamodb = (session.client(name) for name in ("s3", "sqs", "dynamodb"))
        self.s3.create_bucket(Bucket="install", CreateBucketConfiguration={"LocationConstraint": REGION})
        self.outputs = {"Bucket": "install", "StateTable": "state", "CapacityTable": "capacity"}
        for name in QUEUES:
            for kind in ("Queue", "DeadLetters"):
                url = self.sqs.create_queue(QueueName=f"{name}-{kind}")["QueueUrl"]
                self.outputs[f"{name}{kind}Url"] = url
        create_table(self.dynamodb, "state", tables.STATE)
        create_table(self.dynamodb, "capacity", tables.CAPACITY)
        self.state = DynamoState(self.dynamodb, "state")
        pools = (PoolStatus("a", "default", "True", 10, limits={"cpu": 10, "memory": "1Ti", "nodes": 5}),)
        classes = (NodeClassStatus("default", "0" * 12, conditions(()), "AL2023", instance_types=12),)
        BucketStatus(self.s3, "install").save(InstallStatus((ClusterStatus("blue", REGION, NOW - 60, classes, pools),)))
        catalog = msgspec.structs.replace(embedded.load(REGION), refreshed_at=NOW - 60)
        BucketCatalog(self.s3, "install", REGION).save(catalog)

    def deploy(self, **more: str) -> None:
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in {**self.outputs, **more}.items()},
        }
        formation = session.session().create_client("cloudformation")
        formation.create_stack(StackName="Shiplap", TemplateBody=json.dumps(template))

    def claim(self, name: str, to: ClaimState, **fields: Any) -> None:
        epoch = self.state.read("blue", NOW).epoch
        made = node_claim(cluster="blue", name=name, node_pool="a", node_class="default", created_at=NOW - 600)
        self.state.commit("blue", epoch, [made])
        steps = [ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED]
        path = [ClaimState.LAUNCHING, ClaimState.FAILED] if to is ClaimState.FAILED else steps[: steps.index(to) + 1]
        for state in path:
            made = self.state.advance(made, state, **changes(made, **(fields if state is to else {})))

    def says(self, *arguments: str, code: int = 0) -> str:
        assert run(["status", *arguments]) == code
        printed = self._capsys.readouterr()
        return printed.err if code == 2 else printed.out

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.says(*arguments, "-o", "json", code=code)))


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    monkeypatch.delenv("SHIPLAP_BUCKET", raising=False)
    with aws_in_process():
        yield Install(capsys)


def test_pools_failures_and_what_was_learned(install: Install) -> None:
    kubelet = {"instance_type": "m5.large", "ami": "ami-1", "kubelet_hash": "k", "hourly": 0.096}
    install.claim("a-1", ClaimState.INITIALIZED, **kubelet, allocatable={"cpu": 1930, MEMORY: 7 * GIB})
    install.claim("a-2", ClaimState.LAUNCHING)
    install.claim("a-3", ClaimState.FAILED, failure="InsufficientInstanceCapacity", changed_at=NOW - 5)
    install.claim("a-4", ClaimState.FAILED, failure="long ago", changed_at=NOW - 4000)
    seen = {"cpu": 2000, MEMORY: int(7.7 * GIB)}
    DynamoCapacity(install.dynamodb, "capacity").observe(
        Observation("ami-1", "m5.large", "k", seen, seen, NOW - 100, "blue", "node-1")
    )
    install.state.mark_unavailable([OfferingFailure("c5.large", "z1", "spot", "InsufficientInstanceCapacity")], NOW)
    install.deploy()
    found = install.document()
    (use,) = found["poolUse"]
    assert (use["nodes"], use["starting"], use["leaving"], use["hourly"]) == (2, 1, 0, 0.096)
    assert use["used"] == {"cpu": "2", "memory": "8Gi", "nodes": "2"}
    assert use["limits"] == {"cpu": "10", "memory": "1Ti", "nodes": "5"}
    assert [(item["claim"], item["why"]) for item in found["failures"]] == [("a-3", "InsufficientInstanceCapacity")]
    assert [item["instanceType"] for item in found["resting"]] == ["c5.large"]
    assert found["learned"]["wonBackGib"] == pytest.approx(7.7 - 8 * 0.925, abs=0.01)
    assert found["learned"]["hourly"] == pytest.approx(0.096 * 0.3 / 8, rel=0.01)
    assert [queue["name"] for queue in found["queues"]] == ["provisioning", "lifecycle", "interruption"]
    page = " ".join(install.says().split())
    assert "cpu 2 of 10, memory 8Gi of 1024Gi, nodes 2 of 5" in page
    assert "Failed within the last hour: 1" in page
    assert "Learned capacity: 1 entries of 1 nodes" in page


def test_frozen_launches_are_pointed_out(install: Install) -> None:
    install.deploy()
    assert "frozenAt" not in install.document()
    install.state.freeze(["blue"], NOW - 60)
    assert install.document()["frozenAt"] == "2023-11-14T22:12:20Z"
    assert "launches are frozen since 2023-11-14T22:12:20Z" in install.says()


def test_functions_in_service_and_their_errors(install: Install) -> None:
    role = {"Version": "2012-10-17", "Statement": []}
    arn = boto3.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=json.dumps(role))["Role"]["Arn"]
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "")
    functions = boto3.client("lambda")
    functions.create_function(
        FunctionName="fn", Runtime="python3.13", Role=arn, Handler="handler.handle", Code={"ZipFile": code.getvalue()}
    )
    version = functions.publish_version(FunctionName="fn")["Version"]
    functions.create_alias(FunctionName="fn", Name="live", FunctionVersion=version)
    metric = {"MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": "fn"}], "Timestamp": NOW - 10}
    boto3.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[{**metric, "Value": 3}])
    install.deploy(ScheduleFunction="fn")
    found = install.document()
    assert found["functions"] == [
        {"name": "schedule", "version": version, "invocations": 0, "errors": 3, "throttles": 0}
    ]
    assert "Functions, last hour" in install.says()


def test_what_may_not_be_read_is_named_and_the_rest_is_shown(install: Install) -> None:
    install.outputs["StateTable"] = "elsewhere"
    del install.outputs["LifecycleQueueUrl"]
    install.deploy(ScheduleFunction="none")
    found = install.document()
    text = " ".join(found["unseen"])
    assert "claims of blue: " in text
    assert "queue Lifecycle: " in text
    assert "functions: could not look up the version of none in service" in text
    assert [queue["name"] for queue in found["queues"]] == ["provisioning", "interruption"]
    assert "! not seen: claims of blue" in install.says()


def test_dead_letters_have_reasons_and_can_be_put_back(install: Install) -> None:
    dead, queue = install.outputs["LifecycleDeadLettersUrl"], install.outputs["LifecycleQueueUrl"]
    SqsDeadLetters(install.sqs, dead).send("?", "not JSON")
    install.sqs.send_message(QueueUrl=dead, MessageBody='{"a": 1}')
    install.deploy()
    for _ in range(2):  # looking takes nothing
        lifecycle = install.document()["queues"][1]
        assert (lifecycle["deadLetters"], lifecycle["reasons"]) == (2, {GIVEN_UP: 1, "not JSON": 1})
    assert "add --yes where nobody can answer" in install.says("--redrive", code=2)
    done = install.document("--redrive", "--yes", code=1)
    assert done["lifecycle"] == {"moved": 1, "malformed": 1}
    (message,) = install.sqs.receive_message(QueueUrl=queue)["Messages"]
    assert message["Body"] == '{"a": 1}'
    assert install.document()["queues"][1]["reasons"] == {"not JSON": 1}
    assert "malformed, left alone" in install.says("--redrive", "--yes", code=1)


def test_redriving_needs_the_stack_and_may_be_declined(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "name the install's stack, not its bucket" in install.says("--bucket", "install", "--redrive", code=2)
    install.deploy()
    assert install.document("--redrive")["lifecycle"] == {"moved": 0, "malformed": 0}
    install.sqs.send_message(QueueUrl=install.outputs["LifecycleDeadLettersUrl"], MessageBody="{}")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run(["status", "--redrive"]) == 130
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run(["status", "--redrive"]) == 0


def test_a_story_of_the_install(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install.claim("a-1", ClaimState.INITIALIZED, node_name="node-1", instance_id="i-1", instance_type="m5.large")

    def asked(*arguments: str, code: int = 0) -> str:
        assert run(["explain", *arguments]) == code
        printed = capsys.readouterr()
        return " ".join((printed.err if code == 2 else printed.out).split())

    install.outputs.pop("CapacityTable")
    install.deploy()
    assert "the output CapacityTable is not known" in asked("claim", "a-1", "--cluster", "blue", code=2)
    session.session().create_client("cloudformation").delete_stack(StackName="Shiplap")
    install.outputs["CapacityTable"] = "capacity"
    install.deploy()
    assert "EC2 gave i-1: m5.large" in asked("node", "node-1", "--cluster", "blue")
    assert json.loads(asked("claim", "a-1", "--stack", "Shiplap", "-o", "json"))["name"] == "a-1"
    assert "did you mean a-1" in asked("claim", "a-7", "--cluster", "blue", code=2)
    assert "1 Initialized" in asked("pool", "a", "--cluster", "blue")
    assert "it has a" in asked("pool", "xyzzy", "--cluster", "blue", code=2)
    assert "no decision of this time spoke of it" in asked("pod", "web/x", "--cluster", "blue", code=1)
    both = ("--cluster", "blue", "--manifests", "pools.yaml")
    assert "leave files and --record out" in asked("pod", "web/x", *both, code=2)
    BucketStatus(install.s3, "install").save(InstallStatus())
    assert "the install serves no cluster yet" in asked("pod", "web/x", "--stack", "Shiplap", code=2)


def test_queues_of_named_networks_are_told_after_those_that_every_install_has() -> None:
    outputs = {f"{name}QueueUrl": "" for name in ("LifecycleBlue", "Provisioning", "Lifecycle", "Interruption")}

    assert queues_of(Found("bucket", outputs)) == ("Provisioning", "Lifecycle", "Interruption", "LifecycleBlue")
