"""`shiplap install uninstall` on AWS in this process: every step, each again, and what stands against the next."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
import yaml
from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.errors import AwsError
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.node_identities import MOST_AT_ONCE, InstanceProfile, OwnNodeRole
from shiplap.settings import LAYER_DESCRIPTION, ClusterSettings, Settings
from shiplap_cli.commands.install import abandoned_identities
from shiplap_cli.commands.install import uninstall as command
from shiplap_cli.commands.install.removal_record import read_record, save_record
from shiplap_cli.commands.install.stack_deletion import delete_stack, stack_state
from shiplap_cli.inputs.learned.learned_file import read_learned
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.identities import FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.claims import changes, node_claim
from tests.builders.nodes import node_object
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table, make_client

pytestmark = pytest.mark.thorough

NOW = 1_800_000_000.0


class InstallToRemove:
    """An install of a cluster from files and one with live manifests, each with a node in EC2 and in table `state`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], kubeconfig: str) -> None:
        self.folder, self._capsys, self.kubeconfig = folder, capsys, kubeconfig
        self.now, self.slept = NOW, 0
        self.ec2, self.s3, self.dynamodb = make_client("ec2"), make_client("s3"), make_client("dynamodb")
        self.cloudformation = make_client("cloudformation")
        create_table(self.dynamodb, "state", tables.STATE)
        create_table(self.dynamodb, "capacity", tables.CAPACITY)
        self.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        self.s3.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
        for text in (b"old", b"new"):
            self.s3.put_object(Bucket="bucket", Key="records/blue/1", Body=text)
        self.s3.put_object(Bucket="bucket", Key="gone", Body=b"")
        self.s3.delete_object(Bucket="bucket", Key="gone")
        outputs = {"Bucket": "bucket", "StateTable": "state", "CapacityTable": "capacity", "ScheduleFunction": "f"}
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in outputs.items()},
        }
        self.cloudformation.create_stack(StackName="Shiplap", TemplateBody=json.dumps(template))
        self.settings = Settings(
            (
                ClusterSettings(name="blue", region=REGION, install="one"),
                ClusterSettings(name="live", region=REGION, install="one", live_manifests=True),
            )
        )
        self.state = DynamoState(self.dynamodb, "state")
        self.instances = {name: self._node(name) for name in ("blue", "live")}
        foreign = self.ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
        self.ec2.create_tags(Resources=[foreign], Tags=tags.written({tags.INSTALL: "two"}))

    def _node(self, cluster: str) -> str:
        made = self.ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="m5.large")
        (instance,) = made["Instances"]
        of = {**tags.of_pool(cluster, "default", "default", {}, "one"), tags.NODE_CLAIM: f"{cluster}-1"}
        self.ec2.create_tags(Resources=[instance["InstanceId"]], Tags=tags.written(of))
        claim = node_claim(cluster=cluster, name=f"{cluster}-1", node_pool="default", node_class="default")
        self.state.commit(cluster, 0, [claim])
        claim = self.state.advance(claim, ClaimState.LAUNCHING)
        launched = changes(claim, instance_id=instance["InstanceId"], changed_at=NOW)
        claim = self.state.advance(claim, ClaimState.LAUNCHED, **launched)
        claim = self.state.advance(claim, ClaimState.REGISTERED, changed_at=NOW)
        self.state.advance(claim, ClaimState.INITIALIZED, changed_at=NOW)
        return str(instance["InstanceId"])

    def sleep(self, seconds: float) -> None:
        """Time passes, and in it the functions empty and end what drains."""
        self.now += seconds
        self.slept += 1
        if self.slept < 3:
            return
        for cluster, instance in self.instances.items():
            for claim in self.state.claims(cluster):
                if claim.state is ClaimState.DRAINING:
                    self.ec2.terminate_instances(InstanceIds=[instance])
                    empty = self.state.advance(claim, ClaimState.TERMINATING, changed_at=self.now)
                    self.state.advance(empty, ClaimState.GONE, changed_at=self.now)

    def runs(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        got = run(["install", "uninstall", "-o", "json", "--kubeconfig", self.kubeconfig, *arguments])
        printed = self._capsys.readouterr()
        assert got == code, printed.err + printed.out
        return dict(json.loads(printed.out)) if printed.out else {"error": printed.err}

    def protect(self, table: str) -> None:
        self.dynamodb.update_table(TableName=table, DeletionProtectionEnabled=True)

    @property
    def stack(self) -> str:
        return stack_state(self.cloudformation, "Shiplap").status


@pytest.fixture
def server() -> ApiServer:
    server = ApiServer(FakeClock())
    metadata = {"name": "live-1", "labels": {INSTALL_LABEL: "one"}, "finalizers": [FINALIZER]}
    server.create(
        "nodeclaims", {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "spec": {}, "metadata": metadata}
    )
    return server


@pytest.fixture
def installed(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[InstallToRemove]:
    monkeypatch.chdir(tmp_path)
    with aws_in_process(), KubeHttpServer(server) as http:
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": http.endpoint}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        made = InstallToRemove(tmp_path, capsys, str(tmp_path / "config"))
        monkeypatch.setattr(command, "settings_of", lambda _: made.settings)
        monkeypatch.setattr(command, "_now", lambda: made.now)
        monkeypatch.setattr(command, "_sleep", made.sleep)
        yield made


def test_a_dry_run_prints_every_instance_and_changes_nothing(installed: InstallToRemove) -> None:
    seen = installed.runs("--dry-run")
    assert sorted(item["instance"] for item in seen["instances"]) == sorted(installed.instances.values())
    assert installed.state.frozen_at() == 0
    assert seen["stack"] == "CREATE_COMPLETE"
    assert {claim.state for claim in installed.state.claims("blue")} == {ClaimState.INITIALIZED}


def test_where_nobody_can_answer_nothing_happens(installed: InstallToRemove) -> None:
    assert "add --yes where nobody can answer" in installed.runs(code=2)["error"]
    assert installed.state.frozen_at() == 0


def test_nodes_are_drained_then_the_stack_goes_and_the_data_stay(installed: InstallToRemove, server: ApiServer) -> None:
    done = installed.runs("--yes", "--context", "live=here")
    assert done["install"] == "one"
    assert "instances" not in done
    assert "stack" not in done
    assert done["data"] == ["state", "capacity", "bucket"]
    assert "--bucket bucket --delete-data one" in done["next"]
    assert installed.stack == ""
    assert [item["failure"] for item in done["objects"]] == [""]
    assert server.get("nodeclaims", "live-1")["metadata"].get("finalizers", []) == []
    assert installed.state.frozen_at() == NOW
    states = {
        item["State"]["Name"]
        for each in installed.ec2.describe_instances()["Reservations"]
        for item in each["Instances"]
    }
    assert states == {"terminated", "running"}  # another install's


def test_it_goes_no_further_while_an_instance_is_there(installed: InstallToRemove) -> None:
    left = installed.runs("--yes", "--wait-minutes", "0", code=1)
    assert len(left["instances"]) == 2
    assert "the stack stays" in left["problems"][0]
    assert installed.stack == "CREATE_COMPLETE"
    assert {claim.state for claim in installed.state.claims("blue")} == {ClaimState.DRAINING}
    installed.runs("--yes")  # goes on
    assert installed.stack == ""


def test_instances_may_be_left_running_and_are_listed(installed: InstallToRemove) -> None:
    left = installed.runs("--yes", "--leave-running")
    assert len(left["instances"]) == 2
    assert installed.stack == ""
    assert {claim.state for claim in installed.state.claims("blue")} == {ClaimState.INITIALIZED}
    refused = installed.runs("--yes", "--bucket", "bucket", "--delete-data", "one", code=1)
    assert refused["problems"] == ["EC2 shows instances with the tag of the install"]
    assert sorted(installed.dynamodb.list_tables()["TableNames"]) == ["capacity", "state"]


def test_data_go_after_an_export_when_the_name_is_typed(installed: InstallToRemove) -> None:
    observed = Observation("ami-1", "m5.large", "k", {"memory": 1}, {"memory": 1}, 1.0, "blue", "node")
    DynamoCapacity(installed.dynamodb, "capacity").observe(observed)
    assert "the install's name is one" in installed.runs("--yes", "--delete-data", "two", code=2)["error"]
    installed.runs("--yes")
    assert "there is no stack" in installed.runs("--yes", "--delete-data", "one", code=2)["error"]
    done = installed.runs("--yes", "--bucket", "bucket", "--delete-data", "one")
    assert done["exported"] == "one-export"
    assert installed.dynamodb.list_tables()["TableNames"] == []
    assert installed.s3.list_buckets()["Buckets"] == []
    folder = installed.folder / "one-export"
    assert (folder / "bucket" / "records" / "blue" / "1").read_bytes() == b"new"
    with gzip.open(folder / "state.jsonl.gz", "rt") as lines:
        items = [json.loads(line)["item"]["S"] for line in lines]
    assert {"CLAIM#blue-1", "CLAIM#live-1", "EPOCH", "FROZEN"} <= set(items)
    assert [entry.ami for entry in read_learned(folder / "learned.json")] == ["ami-1"]
    assert "no uninstall has begun" in installed.runs("--bucket", "bucket", code=2)["error"]


def test_everything_in_one_run(installed: InstallToRemove) -> None:
    done = installed.runs("--yes", "--delete-data", "one", "--export", "kept", "--context", "live=here")
    assert done["exported"] == "kept"
    assert installed.s3.list_buckets()["Buckets"] == []


def test_an_older_export_does_not_stand_for_the_present_data(installed: InstallToRemove) -> None:
    """An uninstall that was given up months ago left its export: what has come since is exported, the old one kept."""
    installed.protect("state")
    assert "deletion protection" in installed.runs("--yes", "--delete-data", "one", code=2)["error"]
    installed.dynamodb.update_table(TableName="state", DeletionProtectionEnabled=False)
    _forget_deletion(installed)
    installed.now += 90 * 86400
    installed.s3.put_object(Bucket="bucket", Key="records/blue/2", Body=b"since")

    installed.runs("--yes", "--bucket", "bucket", "--delete-data", "one")

    present, older = installed.folder / "one-export", installed.folder / "one-export-2027-01-15T080045Z"
    assert (present / "bucket" / "records" / "blue" / "2").read_bytes() == b"since"
    assert (older / "complete.json").exists()
    assert not (older / "bucket" / "records" / "blue" / "2").exists()


def _forget_deletion(installed: InstallToRemove) -> None:
    """As if the run had died after its export, before it noted in the bucket that the deletion begins."""
    kept = read_record(installed.s3, "bucket")
    assert kept is not None
    save_record(installed.s3, msgspec.structs.replace(kept, exported_at=0.0))


@pytest.mark.parametrize("gone", [("state",), ("state", "capacity")])
def test_a_deletion_of_data_that_died_is_finished_by_the_next_run(
    installed: InstallToRemove, gone: tuple[str, ...]
) -> None:
    """Its export is the only one with the tables that are gone: it is kept, and no other will do."""
    installed.protect("capacity")
    assert "deletion protection" in installed.runs("--yes", "--delete-data", "one", code=2)["error"]
    assert installed.dynamodb.list_tables()["TableNames"] == ["capacity"]
    installed.dynamodb.update_table(TableName="capacity", DeletionProtectionEnabled=False)
    for table in gone[1:]:
        installed.dynamodb.delete_table(TableName=table)
    installed.s3.delete_object(Bucket="bucket", Key="records/blue/1")
    again = ("--yes", "--bucket", "bucket", "--delete-data", "one")
    refused = installed.runs(*again, "--export", "elsewhere", code=2)["error"]
    assert "is not the export of 2027-01-15T08:00:45Z, after which the deletion began" in refused

    installed.now += 86400
    installed.runs(*again)

    assert installed.s3.list_buckets()["Buckets"] == []
    assert (installed.folder / "one-export" / "state.jsonl.gz").exists()
    assert (installed.folder / "one-export" / "bucket" / "records" / "blue" / "1").read_bytes() == b"new"


def test_a_cluster_goes_to_karpenter_and_the_others_are_drained(installed: InstallToRemove, server: ApiServer) -> None:
    instance = installed.instances["live"]
    refused = installed.runs("--yes", "--to-karpenter", "live", "--context", "live=here", code=1)
    assert "live-1 stays" in refused["problems"][0]
    assert installed.stack == "CREATE_COMPLETE"
    provider_id = f"aws:///eu-west-1a/{instance}"
    status = {"providerID": provider_id, "conditions": [{"type": "Initialized", "status": "True"}]}
    server.patch("nodeclaims", "live-1", {"status": status}, subresource="status")
    node = node_object("n1")
    server.create("nodes", {**node, "spec": {**node["spec"], "providerID": provider_id}})
    claim = installed.state.claim("live", "live-1")
    assert claim is not None
    installed.state.advance(claim, ClaimState.INITIALIZED, changed_at=NOW, node_name="n1")
    done = installed.runs("--yes", "--to-karpenter", "live", "--context", "live=here")
    assert done["handedOver"] == ["live"]
    assert "instances" not in done
    assert installed.stack == ""
    (kept,) = installed.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    assert kept["Instances"][0]["State"]["Name"] == "running"
    assert tags.INSTALL not in tags.read(kept["Instances"][0]["Tags"])


def test_launches_go_on_after_a_cancel(installed: InstallToRemove) -> None:
    installed.runs("--yes", "--wait-minutes", "0", code=1)
    assert "launches go on" in installed.runs("--cancel")["next"]
    assert installed.state.frozen_at() == 0
    installed.runs("--yes")
    assert "deploy it anew" in installed.runs("--cancel", "--bucket", "bucket", code=2)["error"]


def test_a_launch_that_may_still_come_is_waited_for(installed: InstallToRemove) -> None:
    installed.state.commit("blue", 1, [node_claim(cluster="blue", name="blue-2", node_pool="p", node_class="c")])
    left = installed.runs("--yes", "--wait-minutes", "1", code=1)
    assert left["problems"] == ["may still get an instance: blue-2"]
    assert installed.stack == "CREATE_COMPLETE"


def test_a_no_ends_it(installed: InstallToRemove, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])

    def confirm(question: str, **_: object) -> bool:
        if not next(answers):
            raise typer.Abort
        return True

    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _: True})())
    monkeypatch.setattr(typer, "confirm", confirm)
    said = installed.runs(code=130)["error"]
    assert all(instance in said for instance in installed.instances.values())
    assert installed.state.frozen_at() == NOW
    assert {claim.state for claim in installed.state.claims("blue")} == {ClaimState.INITIALIZED}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--context", "here"], "expected CLUSTER=CONTEXT"),
        (["--context", "red=here"], "the install serves blue, live, not red"),
        (["--to-karpenter", "blue", "--context", "blue=here"], "needs `manifests: cluster`"),
        (["--finalizers", "--context", "a", "--context", "b"], "one cluster at a time"),
    ],
)
def test_what_cannot_be_asked_for(installed: InstallToRemove, arguments: list[str], said: str) -> None:
    assert said in installed.runs("--yes", *arguments, code=2)["error"]


class TestStack:
    def test_a_deletion_that_fails_says_why(self) -> None:
        class Failing:
            def describe_stacks(self, **_: str) -> dict[str, Any]:
                return {"Stacks": [{"StackStatus": self.status}]}

            def delete_stack(self, **_: str) -> None:
                self.status = "DELETE_IN_PROGRESS"

            def describe_stack_events(self, **_: str) -> dict[str, Any]:
                failed = {
                    "LogicalResourceId": "Role",
                    "ResourceStatus": "DELETE_FAILED",
                    "ResourceStatusReason": "in use",
                }
                return {"StackEvents": [{"LogicalResourceId": "Bus", "ResourceStatus": "DELETE_COMPLETE"}, failed]}

            status = "UPDATE_COMPLETE"

        client = Failing()
        state = delete_stack(
            client, "S", now=lambda: 0, sleep=lambda _: setattr(client, "status", "DELETE_FAILED"), until=60
        )
        assert (state.status, state.reasons) == ("DELETE_FAILED", ("Role: in use",))
        assert not state.is_gone


class Abandoned(FakeNodeIdentities):
    """The leftovers of install `one`: two instances carry `old`, none carries `empty`. Each has a role of its own."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("old", "empty"):
            self.roles[f"of-{name}"] = OwnNodeRole(f"of-{name}", f"arn:of-{name}", "blue", NOW - 60)
            self.entries.add(f"arn:of-{name}")
            self.profiles[name] = InstanceProfile(name, f"arn:{name}", "blue", "nodes", (f"of-{name}",))
        self.instances["old"] = {"i-1", "i-2"}

    @property
    def left(self) -> tuple[list[str], list[str], list[str]]:
        return sorted(self.profiles), sorted(self.roles), sorted(self.entries)


ALL_LEFT = (["empty", "old"], ["of-empty", "of-old"], ["arn:of-empty", "arn:of-old"])


@pytest.fixture
def abandoned(monkeypatch: pytest.MonkeyPatch) -> Abandoned:
    made = Abandoned()

    def of(install: str, region: str) -> Abandoned:
        assert (install, region) == ("one", REGION)
        return made

    monkeypatch.setattr(abandoned_identities, "identities_of", of)
    return made


def test_identities_go_with_the_stack_unless_an_instance_carries_them(
    installed: InstallToRemove, abandoned: Abandoned
) -> None:
    done = installed.runs("--yes", "--leave-running")
    assert installed.stack == ""
    assert abandoned.left == (["old"], ["of-old"], ["arn:of-old"])
    assert done["identities"] == [
        {"kind": "instance profile", "name": "old", "cluster": "blue", "count": 2, "carriers": ["i-1", "i-2"]}
    ]
    assert "--identities --install one" in done["next"]


def test_identities_end_later_when_stack_and_data_are_gone(installed: InstallToRemove, abandoned: Abandoned) -> None:
    later = ("--identities", "--install", "one")
    assert [item["name"] for item in installed.runs(*later, "--dry-run", code=1)["identities"]] == ["empty", "old"]
    assert abandoned.left == ALL_LEFT
    assert "add --yes where nobody can answer" in installed.runs(*later, code=2)["error"]
    assert abandoned.left == ALL_LEFT
    assert [item["name"] for item in installed.runs(*later, "--yes", code=1)["identities"]] == ["old"]
    abandoned.instances.clear()
    assert installed.runs(*later, "--yes") == {}
    assert abandoned.left == ([], [], [])
    assert installed.runs(*later, "--yes") == {}, "it may be repeated"


def test_identities_of_an_install_that_is_deployed_are_left_to_it(
    installed: InstallToRemove, abandoned: Abandoned
) -> None:
    abandoned.current = {"old"}
    refused = installed.runs("--identities", "--install", "one", "--yes", code=2)["error"]
    assert "the install is deployed" in refused
    assert abandoned.left == ALL_LEFT
    assert "name the install with --install" in installed.runs("--identities", code=2)["error"]


def test_more_identities_than_end_at_once_all_end_and_one_that_is_refused_is_listed(
    installed: InstallToRemove, abandoned: Abandoned
) -> None:
    for number in range(3 * MOST_AT_ONCE):
        abandoned.profiles[f"p{number}"] = InstanceProfile(f"p{number}", f"arn:p{number}", "blue", "nodes")
    abandoned.instances.clear()
    for nth in range(1, 9):
        abandoned.faults.on(
            "before", "identities.delete_role", AwsError("of-old has policies", code="DeleteConflict"), nth=nth
        )
    left = installed.runs("--identities", "--install", "one", "--yes", code=1)["identities"]
    assert abandoned.profiles == {}
    assert {item["name"] for item in left} == {"of-empty", "of-old"}


class Lambda:
    """The function of install `one`, which has used two versions of its settings layer and one of another layer.

    Another install publishes versions of the same layer, and one is older than every version of the function.
    """

    def __init__(self) -> None:
        self.layers = {self._arn("Settings", number): LAYER_DESCRIPTION for number in range(1, 6)}
        self.layers[self._arn("Library", 1)] = "The package shiplap"
        self.used = {1: ("Settings", 2), 2: ("Settings", 4), 3: ("Library", 1)}
        self.gone = False

    def _arn(self, layer: str, number: int) -> str:
        return f"arn:aws:lambda:{REGION}:123456789012:layer:{layer}:{number}"

    @property
    def settings(self) -> list[int]:
        return sorted(int(arn.rpartition(":")[2]) for arn in self.layers if ":Settings:" in arn)

    def list_versions_by_function(self, **_: Any) -> dict[str, Any]:
        if self.gone:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "ListVersionsByFunction")
        found = [
            {"Version": str(number), "LastModified": "", "Layers": [{"Arn": self._arn(*layer)}]}
            for number, layer in self.used.items()
        ]
        return {"Versions": [*found, {"Version": "$LATEST", "LastModified": "", "Layers": []}]}

    def list_layer_versions(self, *, LayerName: str, **_: Any) -> dict[str, Any]:  # noqa: N803 - Lambda's name
        named = {arn: text for arn, text in self.layers.items() if f":{LayerName}:" in arn}
        return {"LayerVersions": [{"LayerVersionArn": arn, "Description": text} for arn, text in named.items()]}

    def delete_layer_version(self, *, LayerName: str, VersionNumber: int) -> None:  # noqa: N803 - Lambda's names
        self.layers.pop(f"{LayerName}:{VersionNumber}", None)


@pytest.fixture
def lambdas(monkeypatch: pytest.MonkeyPatch) -> Lambda:
    made, others = Lambda(), command.aws_client
    monkeypatch.setattr(
        command, "aws_client", lambda service, region="": made if service == "lambda" else others(service, region)
    )
    return made


def test_settings_layers_of_the_install_go_with_its_data_and_no_others(
    installed: InstallToRemove, lambdas: Lambda
) -> None:
    installed.runs("--yes")
    assert lambdas.settings == [1, 2, 3, 4, 5]
    lambdas.gone = True  # the stack took it along, and nothing else says which versions were this install's
    installed.runs("--yes", "--bucket", "bucket", "--delete-data", "one")
    assert lambdas.settings == [1, 3, 5]
    assert len(lambdas.layers) == 4


def test_an_install_whose_function_was_deleted_by_hand_can_be_removed(
    installed: InstallToRemove, lambdas: Lambda
) -> None:
    lambdas.gone = True
    installed.runs("--yes")
    assert installed.stack == ""
