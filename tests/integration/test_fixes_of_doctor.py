"""Fixes are carried out: something is broken, `shiplap doctor` names the fix, its commands mend it.

`FIXES` is read from the code. A fix with commands that no test carries out fails `test_every_fix_is_tried`.
The account is MiniStack with the stack deployed by the CDK, and moto for what MiniStack lacks: EKS's own settings,
service-linked roles, security groups.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import boto3
import msgspec
import pytest
import yaml

from shiplap.aws import session
from shiplap.aws.dynamodb import tables
from shiplap.errors import ShiplapError
from shiplap_cli.commands.doctor import account_checks, check_results, cluster_checks, doctor, fixes, prerequisites
from shiplap_cli.commands.doctor.check_results import CheckResult, CheckVerdict, Deployment
from shiplap_cli.commands.doctor.fixes import Fix
from shiplap_cli.commands.doctor.prerequisites import PlannedCluster, PlannedInstall
from shiplap_cli.main import run
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.emulated_aws import cdk
from shiplap_lab.emulated_aws.emulator import AwsEmulator, DeployedStack
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.emulated_ec2.regional_prices import Prices
from tests.aws_command_line import parsed, run_command
from tests.integration.contracts.in_process_aws import aws_in_process, create_table, make_client
from tests.integration.deployed_stack import PRICES, REGION, VERSION, Clock, written

pytestmark = pytest.mark.thorough

try:
    cdk.executable()
except ShiplapError as missing:
    pytest.skip(f"the stack cannot be deployed: {missing}", allow_module_level=True)

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "docs" / "rbac.yaml"
STACK = "Shiplap"

FIXES = {
    name: made
    for name, made in inspect.getmembers(fixes, inspect.isfunction)
    if made.__module__ == fixes.__name__ and not name.startswith("_") and made is not fixes.by_hand
}
TRIED: set[str] = set()

_Test = TypeVar("_Test", bound=Callable[..., None])


def tries(*made: Callable[..., Fix]) -> Callable[[_Test], _Test]:
    """Marks the test that carries fixes out."""

    def marked(test: _Test) -> _Test:
        TRIED.update(fix.__name__ for fix in made)
        return test

    return marked


class Rights:
    """An API server that grants what `kubectl apply` gave to the functions' group."""

    def __init__(self) -> None:
        self.granted: set[cluster_checks.RbacPermission] = set(cluster_checks.permissions_of(RBAC))

    def apply(self, file: Path) -> None:
        documents = [item for item in yaml.safe_load_all(file.read_text()) if item]
        roles = {item["metadata"]["name"] for item in documents if item["kind"] == "ClusterRole"}
        group = {"kind": "Group", "name": fixes.GROUP, "apiGroup": "rbac.authorization.k8s.io"}
        bound = {
            item["roleRef"]["name"]
            for item in documents
            if item["kind"] == "ClusterRoleBinding" and group in item["subjects"]
        }
        assert roles <= bound
        self.granted |= set(cluster_checks.permissions_of(file))

    def ask(self, _path: str, body: Any) -> bytes:
        wanted = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (wanted["resource"], wanted["subresource"])))
        right = cluster_checks.RbacPermission(wanted["verb"], wanted["group"], resource, wanted.get("name", ""))
        return msgspec.json.encode({"status": {"allowed": right in self.granted}})


class Account:
    """The deployed stack, its cluster in EKS, and whoever runs `shiplap doctor` and its fixes."""

    def __init__(self, aws: AwsEmulator, ec2: Ec2Emulator, settings: Path, deployed: DeployedStack) -> None:
        self.aws, self.ec2, self.settings, self.deployed = aws, ec2, settings, deployed
        self.rights = Rights()
        self._clients: dict[str, Any] = {}
        self.make_cluster()

    @property
    def endpoints(self) -> dict[str, str]:
        return dict.fromkeys(("EC2", "SSM", "PRICING"), self.ec2.url)

    def client(self, service: str) -> Any:
        if service not in self._clients:
            made = self.aws.client(service)
            if service == "ec2":
                made = boto3.client(
                    "ec2",
                    endpoint_url=self.ec2.url,
                    region_name=REGION,
                    aws_access_key_id="local",
                    aws_secret_access_key="local",
                )
            self._clients[service] = made
        return self._clients[service]

    def node_role(self) -> dict[str, Any]:
        """The stack's own node role, whose name CloudFormation has made."""
        (role,) = self.client("iam").list_roles(PathPrefix=f"/shiplap/{REGION}/shiplap/demo/")["Roles"]
        return dict(role)

    def make_cluster(self) -> None:
        network = {"subnetIds": ["subnet-1"]}
        self.client("eks").create_cluster(
            name="demo", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=network
        )
        while self.client("eks").describe_cluster(name="demo")["cluster"]["status"] != "ACTIVE":
            pass

    def found(self, check: str, subject: str = "") -> CheckResult:
        """The first finding of a check, about a subject if one is given."""
        (first, *_) = [item for item in self.all_found() if item.check == check and subject in ("", item.subject)]
        return first

    def all_found(self) -> tuple[CheckResult, ...]:
        checks = doctor.install_checks(
            STACK,
            "",
            RBAC,
            myself=False,
            entering=lambda _cluster, _region: self.rights.ask,
            client=self.client,
            now=time.time,
        )
        return tuple(check_results.run_checks(checks))

    def run(self, command: str, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        """Carry out a command as it stands."""
        match shlex.split(command):
            case ["aws", *_]:
                run_command(command, self.client)
            case ["npx", "aws-cdk", "deploy", *context]:
                given = dict(
                    item.split("=") for flag, item in zip(context[::2], context[1::2], strict=True) if flag == "-c"
                )
                self.aws.deploy(self.settings, self.endpoints, given)
            case ["npx", "aws-cdk", "bootstrap"]:
                self.aws.bootstrap()
            case ["kubectl", "apply", "-f", file]:
                self.rights.apply(ROOT / file)
            case ["shiplap", *arguments]:
                assert capsys is not None
                code = run([*arguments, "--yes"])  # a person would answer yes
                assert code == 0, capsys.readouterr()
            case _:
                pytest.fail(f"nobody knows how to run {command}")

    def mend(self, finding: CheckResult, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        """Carry out the fix of a finding."""
        assert finding.commands, finding
        assert all(command in finding.fix for command in finding.commands)
        for command in finding.commands:
            self.run(command, capsys)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with ExitStack() as running:
        api = running.enter_context(KubeHttpServer(ApiServer(Clock())))
        ec2 = running.enter_context(Ec2Emulator(region=REGION, prices=Prices(PRICES)))
        aws = running.enter_context(AwsEmulator(REGION, folder=tmp_path_factory.mktemp("state")))
        settings = written(tmp_path_factory.mktemp("install"), api.endpoint)
        deployed = aws.deploy(settings, dict.fromkeys(("EC2", "SSM", "PRICING"), ec2.url))
        made = Account(aws, ec2, settings, deployed)
        seed.register_images(ec2.control, seed.release_images("al2023@latest", VERSION))
        seed.create_network(made.client("ec2"), "demo", (f"{REGION}a", f"{REGION}b"))
        made.client("lambda").invoke(FunctionName=deployed.functions["catalog"], Payload="{}")
        for finding in made.all_found():
            if finding.check in ("access", "node role") and finding.commands:
                made.mend(finding)
        yield made


@pytest.fixture
def commands(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`shiplap` commands ask the account."""
    for name, value in account.aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    yield
    session.session.cache_clear()


def test_every_fix_is_tried() -> None:
    """All that are told apart as a person's are made without commands."""
    with_commands = {name for name, made in FIXES.items() if _sample(made).commands}
    assert with_commands == TRIED
    assert {name for name in FIXES if name not in with_commands} == {"ask_for_quota"}


def _sample(made: Callable[..., Fix]) -> Fix:
    samples = {"str": "x", "int": 1, "float": 1.0, "Sequence[str]": ("x",)}
    return made(*(samples[parameter.annotation] for parameter in inspect.signature(made).parameters.values()))


def _of_runbook() -> dict[tuple[str, str], str]:
    """Commands of the AWS command line on the page for the engineer on call, by service and operation."""
    text = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    found = re.findall(r"(?<=[`\s])aws ([a-z0-9-]+) ([a-z0-9-]+)((?: [^`;#\n]*)?)", text)
    return {
        (service, verb): f"aws {service} {verb}{rest}".strip()
        for service, verb, rest in found
        if (service, verb) != ("logs", "tail") and rest.strip()  # `tail` is the command line's own
    }


READ_ONLY = ("get-", "list-", "describe-", "receive-", "decode-")
TRIED_OF_RUNBOOK = {
    ("sqs", "purge-queue"),
    ("lambda", "put-function-recursion-config"),
    ("lambda", "put-function-concurrency"),
    ("lambda", "delete-function-concurrency"),
    ("lambda", "invoke"),
    ("dynamodb", "restore-table-to-point-in-time"),
    ("iam", "create-service-linked-role"),
}
"""Commands of the runbook that change something; a test below runs each."""


def test_commands_of_the_runbook_exist_and_those_that_change_something_are_tried() -> None:
    commands = _of_runbook()
    for command in commands.values():
        parsed(command)
    assert {key for key in commands if not key[1].startswith(READ_ONLY)} == TRIED_OF_RUNBOOK


def test_the_runbook_pauses_everything_and_lets_it_go_on(account: Account) -> None:
    commands = _of_runbook()
    for verb, verdict in (("put", CheckVerdict.FAILED), ("delete", CheckVerdict.OK)):
        account.run(commands["lambda", f"{verb}-function-concurrency"].replace("$f", "schedule"))
        assert account.found("functions", "schedule").verdict is verdict


def test_the_runbook_purges_dead_letters(account: Account) -> None:
    url = account.deployed.lifecycle_dead_letters_url
    account.client("sqs").send_message(QueueUrl=url, MessageBody="not an event")
    assert account.found("queues", "lifecycle dead letters").verdict is CheckVerdict.FAILED
    account.run(_of_runbook()["sqs", "purge-queue"].replace("URL", url))
    assert account.found("queues", "lifecycle dead letters").verdict is CheckVerdict.OK


def test_the_runbook_lets_lifecycle_set_its_timers(account: Account) -> None:
    lambdas = account.client("lambda")
    lambdas.put_function_recursion_config(FunctionName="shiplap-lifecycle", RecursiveLoop="Terminate")
    account.run(_of_runbook()["lambda", "put-function-recursion-config"])
    assert lambdas.get_function_recursion_config(FunctionName="shiplap-lifecycle")["RecursiveLoop"] == "Allow"


def test_the_runbook_refreshes_a_stale_catalogue(account: Account) -> None:
    before = account.client("s3").list_objects_v2(Bucket=account.deployed.bucket, Prefix="catalog")["Contents"]
    account.run(_of_runbook()["lambda", "invoke"])
    after = account.client("s3").list_objects_v2(Bucket=account.deployed.bucket, Prefix="catalog")["Contents"]
    assert {item["LastModified"] for item in after} != {item["LastModified"] for item in before}


def test_nothing_is_wrong_at_first(account: Account) -> None:
    wrong = {item.check for item in account.all_found() if item.verdict is not CheckVerdict.OK}
    assert wrong == {"quotas"}, "nobody is there to ask about quotas"


@tries(fixes.give_concurrency_back)
def test_a_function_that_is_switched_off_runs_again(account: Account) -> None:
    account.client("lambda").put_function_concurrency(
        FunctionName=account.deployed.functions["schedule"], ReservedConcurrentExecutions=0
    )
    wrong = account.found("functions", "schedule")
    assert "switched off" in wrong.says
    account.mend(wrong)
    assert account.found("functions", "schedule").verdict is CheckVerdict.OK


@tries(fixes.move_forward)
@pytest.mark.usefixtures("commands")
def test_functions_that_were_rolled_back_move_forward(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    lambdas, name = account.client("lambda"), account.deployed.functions["schedule"]
    old = lambdas.get_alias(FunctionName=name, Name="live")["FunctionVersion"]
    lambdas.update_function_configuration(FunctionName=name, Description="newer")
    lambdas.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1})
    newer = lambdas.publish_version(FunctionName=name)["Version"]
    assert int(newer) > int(old)
    wrong = account.found("functions", "schedule")
    assert f"version {old} is in service" in wrong.says
    account.mend(wrong, capsys)
    assert account.found("functions", "schedule").verdict is CheckVerdict.OK


@tries(fixes.enable_mapping)
def test_a_mapping_that_is_switched_off_is_polled_again(account: Account) -> None:
    mapping = _mapping(account, "lifecycle")
    account.client("lambda").update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    wrong = account.found("event sources", "lifecycle")
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong)
    assert account.found("event sources", "lifecycle").verdict is CheckVerdict.OK


def _mapping(account: Account, function: str) -> dict[str, Any]:
    name = f"{account.deployed.functions[function]}:live"
    (mapping,) = account.client("lambda").list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    return dict(mapping)


@tries(fixes.make_mapping_again)
def test_a_mapping_that_was_deleted_is_made_again(account: Account) -> None:
    """As the stack made it, and no other. A deployment of the same template does not."""
    function, others_of = "interrupt", ("schedule", "lifecycle")
    before, others = _mapping(account, function), [_mapping(account, name)["UUID"] for name in others_of]
    account.client("lambda").delete_event_source_mapping(UUID=before["UUID"])
    account.run("npx aws-cdk deploy")
    wrong = account.found("event sources", function)
    assert wrong.verdict is CheckVerdict.FAILED, "an unchanged template is no change"
    account.mend(wrong)
    assert account.found("event sources", function).verdict is CheckVerdict.OK
    after = _mapping(account, function)
    kept = ("EventSourceArn", "FunctionArn", "BatchSize", "MaximumBatchingWindowInSeconds", "ScalingConfig")
    assert {name: after.get(name) for name in kept} == {name: before.get(name) for name in kept}
    assert [_mapping(account, name)["UUID"] for name in others_of] == others
    shown = account.client("cloudformation").describe_stack_resources(StackName=STACK)["StackResources"]
    assert after["UUID"] in {item["PhysicalResourceId"] for item in shown}, "the stack knows it"


@tries(fixes.let_rules_send)
@pytest.mark.parametrize("queue", ["provisioning", "lifecycle", "interruption"])
def test_a_policy_that_was_taken_from_a_queue_is_the_stacks_again(account: Account, queue: str) -> None:
    sqs, url = account.client("sqs"), getattr(account.deployed, f"{queue}_queue_url")
    before = _rights(_attribute(account, url, "Policy"))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    wrong = account.found("queues", queue)
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong)
    assert account.found("queues", queue).verdict is CheckVerdict.OK
    assert _rights(_attribute(account, url, "Policy")) == before


def _rights(policy: str) -> set[tuple[str, ...]]:
    """Return the rights of principals in a policy, a tuple for each action and source."""
    return {
        (statement["Effect"], json.dumps(statement["Principal"]), action, operator, str(value))
        for statement in json.loads(policy)["Statement"]
        for action in _listed(statement["Action"])
        for operator, condition in statement["Condition"].items()
        for source in condition.values()
        for value in _listed(source)
    }


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _attribute(account: Account, url: str, name: str) -> str:
    answer = account.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    return str(answer["Attributes"][name])


@tries(fixes.set_dead_letters)
def test_a_queue_that_lost_its_dead_letters_has_them_again(account: Account) -> None:
    url = account.deployed.lifecycle_queue_url
    before = json.loads(_attribute(account, url, "RedrivePolicy"))
    account.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    wrong = account.found("queues", "lifecycle")
    assert wrong.says == "it has no dead letters"
    account.mend(wrong)
    assert json.loads(_attribute(account, url, "RedrivePolicy")) == before
    assert account.found("queues", "lifecycle").verdict is CheckVerdict.OK


@tries(fixes.put_dead_letters_back)
@pytest.mark.usefixtures("commands")
def test_dead_letters_go_back_to_their_queue(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"kind": "sweep", "cluster": "demo"})
    url = account.deployed.provisioning_dead_letters_url
    account.client("sqs").send_message(QueueUrl=url, MessageBody=body)
    wrong = account.found("queues", "provisioning dead letters")
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong, capsys)
    assert account.found("queues", "provisioning dead letters").verdict is CheckVerdict.OK


@tries(fixes.refresh_catalogue)
def test_a_catalogue_that_is_gone_is_read_anew(account: Account) -> None:
    s3, bucket = account.client("s3"), account.deployed.bucket
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="catalog")["Contents"]
    for item in listed:
        s3.delete_object(Bucket=bucket, Key=item["Key"])
    wrong = account.found("catalogue")
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong)
    assert account.found("catalogue").verdict is CheckVerdict.OK


@tries(fixes.let_function_enter, fixes.let_nodes_enter, fixes.subscribe_audit_log)
def test_a_cluster_that_was_made_again_under_its_name_is_entered_again(account: Account) -> None:
    """EKS deletes all access entries with the cluster, of which the stack hears nothing."""
    account.client("eks").delete_cluster(name="demo")
    account.client("logs").delete_log_group(logGroupName="/aws/eks/demo/cluster")
    account.make_cluster()
    account.client("logs").create_log_group(logGroupName="/aws/eks/demo/cluster")
    wrong = [item for item in account.all_found() if item.check in ("access", "node role", "audit log") and item.fix]
    assert {item.subject for item in wrong} == {
        *(f"demo/{name}" for name in cluster_checks.ENTERING),
        f"demo/{account.node_role()['RoleName']}",
        "demo",
    }
    for item in wrong:
        account.mend(item)
    assert not [item for item in account.all_found() if item.check in ("access", "node role", "audit log") and item.fix]
    (subscription,) = account.client("logs").describe_subscription_filters(logGroupName="/aws/eks/demo/cluster")[
        "subscriptionFilters"
    ]
    assert subscription["filterName"] == "shiplap"
    assert subscription["destinationArn"].endswith(":function:shiplap-audit:live")


@tries(fixes.add_function_to_group)
def test_a_function_whose_entry_lost_the_group_is_in_it_again(account: Account) -> None:
    role = account.client("lambda").get_function_configuration(FunctionName="shiplap-watch")["Role"]
    entry = {"clusterName": "demo", "principalArn": role}
    account.client("eks").update_access_entry(**entry, kubernetesGroups=["readers"])
    wrong = account.found("access", "demo/watch")
    assert "lacks the group" in wrong.says
    account.mend(wrong)
    assert account.found("access", "demo/watch").verdict is CheckVerdict.OK
    groups = account.client("eks").describe_access_entry(**entry)["accessEntry"]["kubernetesGroups"]
    assert sorted(groups) == ["readers", "shiplap"]


@tries(fixes.replace_node_entry)
def test_an_access_entry_of_the_wrong_type_is_replaced(account: Account) -> None:
    eks = account.client("eks")
    role = account.node_role()
    entry = {"clusterName": "demo", "principalArn": role["Arn"]}
    eks.delete_access_entry(**entry)
    eks.create_access_entry(**entry, type="EC2_WINDOWS")
    wrong = account.found("node role", f"demo/{role['RoleName']}")
    assert "is of type EC2_WINDOWS" in wrong.says
    account.mend(wrong)
    assert account.found("node role", f"demo/{role['RoleName']}").verdict is CheckVerdict.OK


@tries(fixes.grant_rights)
@pytest.mark.parametrize("file", ["rbac.yaml", cluster_checks.LIVE_RBAC])
def test_rights_that_are_missing_are_granted(account: Account, file: str) -> None:
    rights = cluster_checks.permissions_of(ROOT / "docs" / file)
    account.rights.granted -= set(rights)
    look = partial(cluster_checks.rbac, account.rights.ask, "demo", rights, myself=False)
    (wrong,) = look()
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong)
    assert [item.verdict for item in look()] == [CheckVerdict.OK]


@tries(fixes.bootstrap)
def test_an_account_without_the_cdks_stack_is_bootstrapped(account: Account) -> None:
    cloudformation = account.client("cloudformation")
    look = partial(prerequisites.bootstrap, account.client, "hnb659fds")
    assert [item.verdict for item in look()] == [CheckVerdict.OK]
    bucket = "cdk-hnb659fds-assets-123456789012-us-east-1"
    for item in account.client("s3").list_object_versions(Bucket=bucket)["Versions"]:
        account.client("s3").delete_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
    cloudformation.delete_stack(StackName="CDKToolkit")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="CDKToolkit", WaiterConfig={"Delay": 1})
    account.client("s3").delete_bucket(Bucket=bucket)  # which outlives its stack
    (wrong,) = look()
    assert wrong.verdict is CheckVerdict.FAILED
    account.mend(wrong)
    assert [item.verdict for item in look()] == [CheckVerdict.OK]


class Lambdas:
    """Lambda with a function whose last update has failed, until it is asked for another one; no emulator has that."""

    def __init__(self) -> None:
        self.failed = True

    def get_function_configuration(self, **_: str) -> dict[str, str]:
        if self.failed:
            return {"State": "Active", "LastUpdateStatus": "Failed", "LastUpdateStatusReason": "the subnet is full"}
        return {"State": "Active", "LastUpdateStatus": "Successful"}

    def update_function_configuration(self, *, FunctionName: str) -> dict[str, str]:  # noqa: N803 - Lambda's name
        assert FunctionName == "one-schedule"
        self.failed = False
        return {"LastUpdateStatus": "InProgress"}

    def get_function_concurrency(self, **_: str) -> dict[str, int]:
        return {}

    def get_alias(self, **_: str) -> dict[str, str]:
        return {"FunctionVersion": "1"}

    def get_paginator(self, _: str) -> Lambdas:
        return self

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        return [{"Versions": [{"Version": "1"}]}]


@tries(fixes.update_function)
def test_a_function_whose_update_failed_is_updated_again() -> None:
    lambdas = Lambdas()
    deployment = Deployment("One", REGION, {"ScheduleFunction": "one-schedule"}, ())
    (wrong,) = account_checks.functions(lambda _: lambdas, deployment)
    assert "the subnet is full" in wrong.says
    for command in wrong.commands:
        run_command(command, lambda _: lambdas)
    (now,) = account_checks.functions(lambda _: lambdas, deployment)
    assert now.verdict is CheckVerdict.OK


class Stacks:
    """CloudFormation with a stack whose deployment could not be undone; no emulator has that."""

    def __init__(self) -> None:
        self.status = "UPDATE_ROLLBACK_FAILED"

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - CloudFormation's name
        return {"Stacks": [{"StackName": StackName, "StackStatus": self.status}]}

    def continue_update_rollback(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - as above
        assert StackName == "One"
        self.status = "UPDATE_ROLLBACK_COMPLETE"
        return {}


@tries(fixes.continue_rollback)
def test_a_deployment_whose_undoing_failed_is_undone() -> None:
    stacks = Stacks()
    look = partial(account_checks.stack, lambda _: stacks, Deployment("One", REGION, {}, ()))
    (wrong,) = look()
    assert wrong.verdict is CheckVerdict.FAILED
    for command in wrong.commands:
        run_command(command, lambda _: stacks)
    (now,) = look()
    assert now.verdict is CheckVerdict.WARNING
    assert "its last deployment failed" in now.says


@pytest.fixture
def moto() -> Iterator[Callable[[str], Any]]:
    with aws_in_process():
        yield make_client


def _eks(client: Callable[[str], Any], **more: Any) -> None:
    client("eks").create_cluster(
        name="demo", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig={}, **more
    )


def _looked(looks: Callable[[], Any]) -> Sequence[CheckResult]:
    return [item for item in looks() if item.verdict is not CheckVerdict.OK]


class Eks:
    """EKS with the authentication mode of a cluster, which neither emulator keeps."""

    def __init__(self) -> None:
        self.cluster: dict[str, Any] = {"name": "demo", "accessConfig": {"authenticationMode": "CONFIG_MAP"}}

    def describe_cluster(self, *, name: str) -> dict[str, Any]:
        assert name == "demo"
        return {"cluster": self.cluster}

    def update_cluster_config(self, *, name: str, **changes: Any) -> dict[str, Any]:
        assert name == "demo"
        self.cluster |= changes
        return {"update": {"status": "InProgress"}}


def test_the_runbook_restores_a_table(moto: Callable[[str], Any]) -> None:
    dynamodb = moto("dynamodb")
    create_table(dynamodb, "state", tables.STATE)
    recovery = {"PointInTimeRecoveryEnabled": True}
    dynamodb.update_continuous_backups(TableName="state", PointInTimeRecoverySpecification=recovery)
    item = {"cluster": {"S": "demo"}, "item": {"S": "EPOCH"}}
    dynamodb.put_item(TableName="state", Item=item)
    command = _of_runbook()["dynamodb", "restore-table-to-point-in-time"]
    run_command(command.replace("TABLE", "state").replace("NEW", "restored").rstrip("."), moto)
    assert dynamodb.scan(TableName="restored")["Items"] == [item]


@tries(fixes.know_access_entries)
def test_a_cluster_that_knows_no_access_entries_learns_of_them() -> None:
    eks = Eks()

    def look() -> Iterator[CheckResult]:
        yield cluster_checks.authentication("demo", eks.describe_cluster(name="demo")["cluster"])

    (wrong,) = _looked(look)
    for command in wrong.commands:
        run_command(command, lambda _: eks)
    assert not _looked(look)


@tries(fixes.log_audit)
def test_a_control_plane_without_audit_logs_writes_them(moto: Callable[[str], Any]) -> None:
    """EKS makes the log group with the first record."""
    _eks(moto)
    deployment = Deployment("One", REGION, {"AuditFunction": "one-audit"}, ("demo",))
    (wrong,) = _looked(lambda: cluster_checks.audit_logs(moto, deployment, "demo"))
    for command in wrong.commands:
        run_command(command, moto)
    logging = moto("eks").describe_cluster(name="demo")["cluster"]["logging"]["clusterLogging"]
    assert {"types": ["audit"], "enabled": True} in logging


SERVICE_LINKED = {
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
    "ec2fleet.amazonaws.com": "AWSServiceRoleForEC2Fleet",
}


class Roles:
    """IAM with the names that AWS gives service-linked roles; the emulators make others of them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def create_service_linked_role(self, *, AWSServiceName: str) -> Any:  # noqa: N803 - IAM's name
        path = f"/aws-service-role/{AWSServiceName}/"
        return self._client.create_role(
            RoleName=SERVICE_LINKED[AWSServiceName], Path=path, AssumeRolePolicyDocument="{}"
        )

    def get_role(self, **request: str) -> Any:
        return self._client.get_role(**request)


@tries(fixes.make_service_linked_role)
def test_service_linked_roles_that_are_missing_are_made(moto: Callable[[str], Any]) -> None:
    plan = PlannedInstall(
        name="one",
        region=REGION,
        account="",
        clusters=(),
        volume_keys=(),
        spot=True,
        qualifier="hnb659fds",
        permissions_boundary="",
    )
    roles = Roles(moto("iam"))
    look = partial(prerequisites.service_linked_roles, lambda _: roles, plan)
    wrong = _looked(look)
    assert len(wrong) == 2
    commands = [command for item in wrong for command in item.commands]
    assert _of_runbook()["iam", "create-service-linked-role"] in commands
    for command in commands:
        run_command(command, lambda _: roles)
    assert not _looked(look)


@tries(fixes.admit_functions)
def test_security_groups_admit_the_functions(moto: Callable[[str], Any]) -> None:
    ec2 = moto("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    groups = {
        name: ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
        for name in ("cluster", "functions")
    }
    network = {
        "subnetIds": [subnet],
        "securityGroupIds": [groups["cluster"]],
        "endpointPrivateAccess": True,
    }
    moto("eks").create_cluster(name="demo", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=network)
    cluster = PlannedCluster(
        name="demo",
        in_eks=True,
        access_entry=True,
        audit=False,
        kubeconfig_secret=False,
        zonal_shift=False,
        live_manifests=False,
        subnets=(subnet,),
        security_groups=(groups["functions"],),
        node_roles=(),
        node_classes=(),
    )
    look = partial(prerequisites.ingress, moto, cluster)
    (wrong,) = _looked(look)
    for command in wrong.commands:
        run_command(command, moto)
    assert not _looked(look)
