"""`shiplap status fleet` on AWS in this process: sums, problems, and installs that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.aws.bucket import BucketStatus
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    InstallStatus,
    NodeClassProblem,
    NodeClassStatus,
    PoolStatus,
    conditions,
)
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap_cli.commands.status import fleet as command
from shiplap_cli.commands.status import fleet_reading
from shiplap_cli.main import run
from tests.builders.claims import changes, node_claim
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table, make_client

NOW = datetime.now(tz=UTC).timestamp()
GIB = 2**30


def refused(operation: str) -> Any:
    def call(**_: Any) -> Any:
        raise fleet_reading.ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)

    return call


class Fleet:
    """One account with the install `one` of the clusters blue and green."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.dynamodb, s3 = make_client("dynamodb"), make_client("s3")
        create_table(self.dynamodb, "state", tables.STATE)
        s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        self.status = BucketStatus(s3, "bucket")
        self.state = DynamoState(self.dynamodb, "state")
        self.cloudwatch = make_client("cloudwatch")
        outputs = {"Bucket": "bucket", "StateTable": "state", "ScheduleFunction": "one-schedule"}
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in outputs.items()},
        }
        make_client("cloudformation").create_stack(StackName="Shiplap", TemplateBody=json.dumps(template))
        self.inspect("blue", "green")
        (folder / "installs.yaml").write_text(f"installs: [{{name: here, region: {REGION}, account: '123456789012'}}]")

    def inspect(self, *clusters: str, at: float = NOW, ready: bool = True) -> None:
        wrong = [] if ready else [NodeClassProblem("SubnetsReady", "SubnetsNotFound", "no subnet matches")]
        classes = (NodeClassStatus("default", "0" * 12, conditions(wrong), "AL2023"),)
        pools = (PoolStatus("a", "default", str(ready), 1, reason="" if ready else "NodeClassNotReady"),)
        self.status.save(InstallStatus(tuple(ClusterStatus(name, REGION, at, classes, pools) for name in clusters)))

    def node(self, cluster: str, name: str, to: ClaimState, **fields: Any) -> None:
        epoch = self.state.read(cluster, NOW).epoch
        pods = (PodReference("default", f"{name}-pod", "u"),)
        made = node_claim(cluster=cluster, name=name, node_pool="a", node_class="default", created_at=NOW, pods=pods)
        self.state.commit(cluster, epoch, [made])
        steps = [ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED]
        path = [ClaimState.LAUNCHING, ClaimState.FAILED] if to is ClaimState.FAILED else steps[: steps.index(to) + 1]
        for state in path:
            made = self.state.advance(made, state, **changes(made, **(fields if state is to else {})))

    def says(self, *arguments: str, code: int = 0) -> str:
        assert run(["status", "fleet", *arguments]) == code
        printed = self._capsys.readouterr()
        return printed.err if code == 2 else printed.out

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.says(*arguments, "-o", "json", code=code)))


@pytest.fixture
def fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    with aws_in_process():
        monkeypatch.setattr(fleet_reading.AwsClients, "of", _clients)
        yield Fleet(tmp_path, capsys)


def _clients(_: fleet_reading.AwsClients, install: Any) -> fleet_reading.InstallClients:
    names = ("cloudformation", "s3", "dynamodb", "cloudwatch", "lambda")
    return fleet_reading.InstallClients(*map(make_client, names))


BIG = {"allocatable": {"cpu": 4000, MEMORY: 16 * GIB}, "requests": {"cpu": 1000, MEMORY: 4 * GIB}, "hourly": 0.2}


def test_nodes_dollars_and_savings_of_every_cluster(fleet: Fleet) -> None:
    fleet.node("blue", "a-1", ClaimState.INITIALIZED, instance_id="i-1", **BIG)
    fleet.node("blue", "a-2", ClaimState.INITIALIZED, instance_id="i-2", **BIG)
    fleet.node("green", "b-1", ClaimState.LAUNCHED, instance_id="i-3", hourly=0.1)
    found = fleet.document(code=1)  # the functions of `one` are not there
    blue, green = found["installs"][0]["clusters"]
    assert (blue["nodes"], blue["hourly"], blue["starting"], blue["coming"]) == (2, 0.4, 0, 0)
    assert blue["savable"] == pytest.approx(0.4 - 0.1)  # half of one node holds both
    assert (green["nodes"], green["starting"], green["coming"], green["savable"]) == (1, 1, 1, 0)
    assert (found["clusters"], found["nodes"], found["hourly"]) == (2, 3, 0.5)
    assert found["installs"][0]["account"] == "123456789012"


def test_the_screen_fits_80_columns_and_names_every_problem(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fleet.node("blue", "a-1", ClaimState.FAILED, failure="InsufficientInstanceCapacity", changed_at=NOW - 5)
    fleet.node("green", "b-1", ClaimState.LAUNCHED, instance_id="i-3", hourly=0.1)
    fleet.state.freeze(["blue"], NOW)
    fleet.inspect("blue", "green", at=NOW - 7200)
    page = fleet.says("--html", "fleet.html", code=1)
    assert max(map(len, page.splitlines())) <= 80
    said = " ".join(page.split())
    assert "here: launches are frozen since" in said
    assert "here/blue: 1 claim failed within the hour; a-1: InsufficientInstanceCapacity" in said
    assert "here/green: not inspected since" in said
    assert "2 clusters, 1 node, 0 pods waiting, $0.10/h" in said
    made = Path("fleet.html").read_text()
    assert "A fleet of Shiplap" in made
    assert "not inspected since" in made


def test_alarms_and_waiting_pods_are_those_of_the_install(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The install `one-eu` stands beside it, and has alarms whose names begin alike."""
    own = {"ResourceType": "AWS::CloudWatch::Alarm", "PhysicalResourceId": "one-dead-letters"}
    pages = {"Shiplap": [{"StackResourceSummaries": [own]}]}

    def clients(reader: fleet_reading.AwsClients, install: Any) -> fleet_reading.InstallClients:
        made = _clients(reader, install)
        paginator = SimpleNamespace(paginate=lambda StackName: pages[StackName])  # noqa: N803 - as AWS does
        made.cloudformation.get_paginator = {"list_stack_resources": paginator}.__getitem__
        return made

    monkeypatch.setattr(fleet_reading.AwsClients, "of", clients)
    for name in ("one-dead-letters", "one-eu-dead-letters", "other-dead-letters"):
        fleet.cloudwatch.put_metric_alarm(
            AlarmName=name,
            MetricName="x",
            Namespace="y",
            Period=60,
            EvaluationPeriods=1,
            Statistic="Sum",
            Threshold=0,
            ComparisonOperator="GreaterThanThreshold",
        )
        fleet.cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")
    own = [{"Name": "install", "Value": "one"}]
    of_blue = [*own, {"Name": "cluster", "Value": "blue"}]
    for dimensions, value in ((own, 7), (of_blue, 5)):
        datum = {"MetricName": "PodsWaiting", "Dimensions": dimensions, "Timestamp": NOW - 90, "Value": value}
        fleet.cloudwatch.put_metric_data(Namespace="Shiplap", MetricData=[datum])
    found = fleet.document(code=1)
    (install,) = found["installs"]
    assert [item for item in install["problems"] if item.startswith("alarm ")] == ["alarm one-dead-letters"]
    assert (install["waiting"], found["waiting"]) == (7, 7)
    assert [cluster.get("waiting") for cluster in install["clusters"]] == [5, None]


def test_what_may_not_be_read_hides_nothing_else(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.node("blue", "a-1", ClaimState.INITIALIZED, instance_id="i-1", **BIG)

    def clients(reader: fleet_reading.AwsClients, install: Any) -> fleet_reading.InstallClients:
        made = _clients(reader, install)
        if install.name == "denied":
            made.cloudformation.describe_stacks = refused("DescribeStacks")
        if install.name == "unprofiled":
            raise fleet_reading.AwsError("AWS cannot be asked: no profile", code="ProfileNotFound")
        made.cloudwatch.get_metric_data = refused("GetMetricData")
        return made

    monkeypatch.setattr(fleet_reading.AwsClients, "of", clients)
    lines = [
        f"  - {{name: denied, region: {REGION}, profile: a}}",
        f"  - {{name: here, region: {REGION}}}",
        f"  - {{name: missing, region: {REGION}, stack: Other}}",
        f"  - {{name: unprofiled, region: {REGION}, profile: b}}",
    ]
    Path("some.yaml").write_text("\n".join(["installs:", *lines]))
    found = fleet.document("-f", "some.yaml", code=1)
    of = {install["install"]: install for install in found["installs"]}
    assert list(of) == ["denied", "here", "missing", "unprofiled"]
    assert "the permission named is missing" in of["denied"]["problems"][0]
    assert "there is no stack Other" in of["missing"]["problems"][0]
    assert "aws configure list-profiles" in of["unprofiled"]["problems"][0]
    assert of["here"]["waiting"] is None
    assert any("not seen: pods that wait" in problem for problem in of["here"]["problems"])
    assert found["nodes"] == 1
    assert fleet.document("-f", "some.yaml", "--only", "missing", code=1)["clusters"] == 0
    assert "there is no install x" in fleet.says("-f", "some.yaml", "--only", "x", code=2)


def test_without_a_description_it_is_the_callers_own(fleet: Fleet) -> None:
    Path("installs.yaml").unlink()
    assert fleet.document(code=1)["installs"][0]["install"] == "Shiplap"
    assert "does not exist" in fleet.says("-f", "nowhere.yaml", code=2)


def test_what_is_not_ready_says_why(fleet: Fleet) -> None:
    fleet.inspect("blue", ready=False)
    ((cluster,),) = (install["clusters"] for install in fleet.document(code=1)["installs"])
    assert cluster["problems"] == [
        "EC2NodeClass default is not ready: SubnetsNotFound: no subnet matches",
        "NodePool a is not ready: NodeClassNotReady",
    ]


def test_before_the_first_inspection(fleet: Fleet) -> None:
    fleet.status.save(InstallStatus())
    (install,) = fleet.document(code=1)["installs"]
    assert any("the first inspection has not ended" in problem for problem in install["problems"])
