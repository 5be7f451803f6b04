"""Tests refusals of `deploy`, `template`, `init`, `doctor`, `uninstall` and `rollback`: one line with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.aws import session
from shiplap_cdk.nodejs import require_nodejs
from shiplap_cli.commands.doctor import account_checks, check_results, doctor
from shiplap_cli.commands.doctor.check_results import CheckVerdict, Deployment
from shiplap_cli.installs import find_install
from tests.commands import Shiplap

NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: nodes
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""
CLUSTERS = "clusters: [{name: a, manifests: m.yaml}]\n"
SETTINGS = f"region: eu-west-1\n{CLUSTERS}"
INSTALLS = "installs: [{name: one, region: eu-west-1, settings: shiplap.yaml}]\n"
OUTPUTS = {"Bucket": "b", "StateTable": "s", "CapacityTable": "c", "ScheduleFunction": "one-schedule"}
NO_REGION = {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a sound install, and an environment without credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "m.yaml").write_text(NODE_CLASS)
    (tmp_path / "shiplap.yaml").write_text(SETTINGS)
    (tmp_path / "installs.yaml").write_text(INSTALLS)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    yield tmp_path
    session.session.cache_clear()


ASKING = ("doctor", "install uninstall --dry-run", "install rollback", "init --cluster a")


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        (NO_REGION, "", "Region|region"),
        ({}, "", "log in"),
        ({}, "--profile nope", "no such profile: `aws configure list-profiles`"),
        (KEYS, "--region 'a b'", "name a Region such as eu-west-1"),
    ],
)
def test_aws_that_cannot_be_asked(
    command: str,
    environment: dict[str, str],
    options: str,
    said: str,
    shiplap: Shiplap,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    words = [word.strip("'") for word in options.replace("a b", "a\xa0b").split(" ") if word]
    line = shiplap.error(*command.split(), *[word.replace("\xa0", " ") for word in words])
    assert any(part in line for part in said.split("|")), line


class Stacks:
    """CloudFormation with one stack in a status; an empty one for no stack."""

    meta = SimpleNamespace(region_name="eu-west-1")

    def __init__(self, status: str, outputs: dict[str, str]) -> None:
        self.status, self.outputs = status, outputs

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - CloudFormation's name
        if not self.status:
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        listed = [{"OutputKey": name, "OutputValue": value} for name, value in self.outputs.items()]
        return {"Stacks": [{"StackName": StackName, "StackStatus": self.status, "Outputs": listed}]}


@pytest.mark.parametrize("command", ["doctor", "install uninstall --dry-run", "install rollback", "status"])
def test_a_stack_that_is_not_in_this_region(command: str, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = Stacks("", {})
    for module in (find_install, doctor):
        monkeypatch.setattr(module, "aws_client", lambda _service, _region="": stacks)
    line = shiplap.error(*command.split())
    assert "there is no stack 'Shiplap' in this account and Region: check --stack, --region and --profile" in line
    assert ("--bucket" in line) is command.startswith("install uninstall")


@pytest.mark.parametrize(
    "command", ["doctor", "install uninstall --dry-run", "install rollback", "status", "capacity list"]
)
@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("REVIEW_IN_PROGRESS", "a change set that nobody has executed: run `npx aws-cdk deploy`"),
        ("CREATE_IN_PROGRESS", "wait for its end"),
        ("CREATE_FAILED", "aws cloudformation delete-stack --stack-name Shiplap"),
        ("ROLLBACK_IN_PROGRESS", "wait for its end"),
        ("ROLLBACK_FAILED", "`npx aws-cdk deploy` deletes it and makes it anew"),
        ("ROLLBACK_COMPLETE", "describe-stack-events --stack-name Shiplap` says why"),
        ("DELETE_IN_PROGRESS", "is being deleted"),
        ("UPDATE_COMPLETE", "not an install of Shiplap"),
    ],
)
def test_a_stack_that_was_never_completed_says_what_to_do(
    command: str, status: str, said: str, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = Stacks(status, {})
    for module in (find_install, doctor):
        monkeypatch.setattr(module, "aws_client", lambda _service, _region="": stacks)
    line = shiplap.error(*command.split())
    assert said in line, line
    assert status in line or status == "UPDATE_COMPLETE"


@pytest.mark.parametrize(
    ("status", "verdict", "remedy"),
    [
        ("UPDATE_COMPLETE", "ok", ""),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "ok", ""),
        ("UPDATE_IN_PROGRESS", "warning", "wait"),
        ("UPDATE_ROLLBACK_IN_PROGRESS", "warning", "wait"),
        ("DELETE_IN_PROGRESS", "warning", "wait"),
        ("UPDATE_FAILED", "warning", "describe-stack-events --stack-name One"),
        ("UPDATE_ROLLBACK_COMPLETE", "warning", "describe-stack-events --stack-name One"),
        ("UPDATE_ROLLBACK_FAILED", "failed", "continue-update-rollback --stack-name One"),
        ("DELETE_FAILED", "failed", "shiplap install uninstall"),
    ],
)
def test_doctor_says_of_each_status_of_a_stack_what_to_do(status: str, verdict: str, remedy: str) -> None:
    stacks = Stacks(status, OUTPUTS)
    (found,) = account_checks.stack(lambda _: stacks, Deployment("One", "eu-west-1", OUTPUTS, ()))
    assert (found.verdict, remedy in found.fix) == (verdict, True)


def test_doctor_names_the_output_that_a_stack_of_another_version_lacks() -> None:
    """Each check that needs it says so; none ends the command."""
    stacks = Stacks("UPDATE_COMPLETE", OUTPUTS)
    looked = doctor.install_checks(
        "One",
        "",
        doctor._RBAC,
        myself=False,
        entering=lambda _cluster, _region: lambda _path, _body: b"{}",
        client=lambda _: stacks,
        now=lambda: 0.0,
    )
    checks = {check.name: check for check in looked if check.name in ("queues", "catalogue")}
    for check in checks.values():
        (found,) = check_results.run_checks([check])
        assert found.verdict is CheckVerdict.UNKNOWN
        assert "stack One: has no output" in found.says
        assert "deploy it with this version" in found.says


@pytest.mark.parametrize("command", ["doctor --before-deploy", "install template", "install terraform"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected one document, found 0"),
        ("[1]", "expected a mapping"),
        (f"{SETTINGS}---\n{SETTINGS}", "expected one document, found 2"),
        ("region:\n\t- x", ":2: not YAML"),
        ("a: '\0'", "control characters"),
        (f"{SETTINGS}colour: red\n", ":3: colour: unknown field"),
        (f"region: mars-1\n{CLUSTERS}", ":1: region: 'mars-1' is not a Region"),
        ("region: eu-west-1\nclusters: []\n", "at least one cluster"),
        ("region: eu-west-1\nclusters: [{name: a, manifests: nowhere}]\n", "does not exist"),
        (f"account: '12'\n{SETTINGS}", "12 digits"),
        (f"name: A b\n{SETTINGS}", "lower-case letters"),
        ("[" * 3000, "nested more than"),
    ],
)
def test_settings_that_are_wrong_say_where(
    command: str, text: str, said: str, shiplap: Shiplap, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Node.js is started: there is none."""
    monkeypatch.setenv("JSII_NODE", "/nowhere/node")
    (folder / "bad.yaml").write_text(text)
    line = shiplap.error(*command.split(), "--settings", "bad.yaml")
    assert line.startswith("shiplap: bad.yaml"), line
    assert said in line, line


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("install template --settings nowhere.yaml", "name another (--settings"),
        ("install template --settings empty", "holds no .yaml"),
        ("install terraform --settings nowhere.yaml", "name another (--settings"),
        ("install terraform --settings empty", "holds no .yaml"),
        ("install terraform --to file", "is a file: name a folder"),
        ("install chart --to file", "is a file: name a folder"),
        ("install chart --settings nowhere.yaml", "does not exist"),
        ("install template --bucket A_b", "--bucket: 'A_b' is no name of a bucket"),
        ("init --cluster a --capacity-types cheap", "neither on-demand nor spot"),
        ("init --cluster a --cpu-limit 0", "greater than or equal to 1"),
        ("install rollback latest", "valid integer"),
        ("install uninstall --context blue", "expected CLUSTER=CONTEXT"),
        ("install uninstall --grace-minutes -1", "greater than or equal to 0"),
        ("install uninstall --finalizers --context here --kubeconfig nowhere", "does not exist"),
        ("doctor --context here", "name it with --cluster"),
        ("install deploy -f nowhere.yaml", "does not exist; docs/how-to/fleet.md"),
        ("install deploy --from-wave 7", "no install from wave 7"),
        ("install deploy --only two", "there is no install two"),
        ("install deploy --command '", "--command: is no command line: No closing quotation"),
        ("install deploy --command=", "--command: is empty"),
    ],
)
def test_arguments_that_are_wrong(command: str, said: str, shiplap: Shiplap) -> None:
    line = shiplap.error(*command.split(" "))
    assert said in line, line


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "expected one document, found 0; install one names it"), ("[1]", "mapping"), ("\t", "not YAML")],
)
def test_settings_of_a_fleet_that_are_wrong(text: str, said: str, shiplap: Shiplap, folder: Path) -> None:
    (folder / "shiplap.yaml").write_text(text)
    assert said in shiplap.error("install", "deploy")


@pytest.mark.parametrize(
    ("program", "said"),
    [("/nowhere/node", "cannot be run: No such file"), ("/bin/false", "is not Node.js"), ("/bin/echo", "not Node.js")],
)
@pytest.mark.parametrize("command", ["install template", "install terraform", "cdk"])
def test_a_node_that_is_none_is_one_line(command: str, program: str, said: str, folder: Path) -> None:
    """In a process of its own: the CDK's binding starts Node.js once, and speaks when the process ends."""
    module = (
        ["-m", "shiplap_cdk"]
        if command == "cdk"
        else ["-c", "from shiplap_cli.main import main; main()", *command.split()]
    )
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *module],
        env={**os.environ, "JSII_NODE": program},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr
    assert "Node.js 22" in done.stderr


def node_of(folder: Path, version: str) -> Path:
    """A program that says that it is Node.js of a version."""
    program = folder / "node"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "lines"), [("v20.19.0", 1), ("v22.1.0", 0), ("v24.0.0", 0)])
def test_an_old_node_is_told_in_one_line(
    version: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JSII_NODE", str(node_of(tmp_path, version)))
    monkeypatch.setenv("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "")
    monkeypatch.delenv("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION")

    require_nodejs()

    told = capsys.readouterr().err
    assert told.count("\n") == lines
    assert ("is Node.js 20, which gets no fixes; the CDK needs Node.js 22" in told) == bool(lines)
    assert os.environ.get("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "") == ("20" if lines else "")


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ("aws_cdk", 2, "aws_cdk is not installed in this environment: `make setup` in the checkout\n"),
        ("shiplap_cdk.synthesis", 1, "ModuleNotFoundError: import of shiplap_cdk.synthesis halted"),
    ],
    ids=["a package of the extra", "a module of our own, which is a defect"],
)
def test_a_synthesis_without_its_extra_says_so(
    missing: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSII_NODE", str(node_of(tmp_path, "v22.1.0")))
    text = f"import sys; sys.modules[{missing!r}] = None; from shiplap_cdk.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert (done.stderr == said) == (code == 2)


@pytest.mark.parametrize(
    ("options", "said", "looked"),
    [
        ([], "no AWS credentials were found; not looked at: bootstrap, quotas", {"app", "network"}),
        (["--profile", "nope"], "no such profile", {"app"}),
    ],
)
def test_a_look_before_deployment_without_credentials_is_one_line_beside_what_needs_none(
    options: list[str], said: str, looked: set[str], shiplap: Shiplap
) -> None:
    found = shiplap.json("doctor", "--before-deploy", *options, code=1)["findings"]
    (refused,) = [item for item in found if item["verdict"] == "unknown"]
    assert said in refused["says"]
    assert refused["mend"]
    assert looked <= {item["check"] for item in found}
    assert "credentials" not in refused["says"].partition("not looked at: ")[2]
