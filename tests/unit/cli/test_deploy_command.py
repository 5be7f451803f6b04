"""`shiplap install deploy`: waves in their order, and what stops them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError, NoCredentialsError

from shiplap.errors import AwsError
from shiplap.manifests.files.described_installs import DescribedInstall
from shiplap_cli.commands.install import deploy as module
from shiplap_cli.commands.install.waves import LOOK_S, deploy_in_waves
from shiplap_cli.commands.status import fleet_reading
from shiplap_cli.installs.ringing_alarms import ringing_alarms
from tests.commands import Shiplap

INSTALLS = tuple(
    DescribedInstall(name=name, region="eu-west-1", wave=wave)
    for name, wave in (("sandbox", 1), ("staging", 2), ("tools", 2), ("production", 3))
)
Happened = list[tuple[str, Any]]


class World:
    """Records what is done; `alarm` says from which moment on (in things that happened) an install is in alarm."""

    def __init__(self, failing: str = "", alarm: tuple[str, int] = ("", 0)) -> None:
        self.happened: Happened = []
        self._failing, self._alarm = failing, alarm

    def deploy(self, install: DescribedInstall) -> str:
        self.happened.append(("deploy", install.name))
        return "ended with exit code 1" if install.name == self._failing else ""

    def alarms(self, install: DescribedInstall) -> Sequence[str]:
        name, moment = self._alarm
        return ["shiplap-errors"] if install.name == name and len(self.happened) >= moment else []

    def wait(self, seconds: float) -> None:
        self.happened.append(("wait", seconds))

    def play(self, rest_s: float = 60) -> dict[str, str]:
        done = deploy_in_waves(INSTALLS, self.deploy, self.alarms, self.wait, rest_s)
        assert [item.install for item in done] == [item.name for item in INSTALLS]
        return {item.install: item.outcome.value for item in done}


def test_every_wave_rests_before_the_next_one_and_the_last_one_too() -> None:
    world = World()

    assert set(world.play().values()) == {"deployed"}
    rest = [("wait", LOOK_S)] * 2
    assert world.happened == [
        ("deploy", "sandbox"),
        *rest,
        ("deploy", "staging"),
        ("deploy", "tools"),
        *rest,
        ("deploy", "production"),
        *rest,
    ]


def test_a_failure_leaves_the_rest_of_its_wave_and_all_later_ones() -> None:
    world = World(failing="staging")

    expected = {"sandbox": "deployed", "staging": "failed", "tools": "left", "production": "left"}
    assert world.play(rest_s=0) == expected
    assert world.happened == [("deploy", "sandbox"), ("deploy", "staging")]


@pytest.mark.parametrize(
    ("alarm", "expected"),
    [
        (("sandbox", 0), ["alarm", "left", "left", "left"]),  # before anything
        (("sandbox", 2), ["alarm", "left", "left", "left"]),  # while it rests
        (("sandbox", 5), ["alarm", "deployed", "deployed", "left"]),  # after the next wave
        (("tools", 3), ["deployed", "deployed", "alarm", "left"]),  # before it is deployed
        (("production", 8), ["deployed", "deployed", "deployed", "alarm"]),  # the last one
    ],
)
def test_an_alarm_stops_whatever_comes_later(alarm: tuple[str, int], expected: list[str]) -> None:
    world = World(alarm=alarm)

    assert list(world.play().values()) == expected
    deployed = [name for what, name in world.happened if what == "deploy"]
    assert "production" not in deployed or alarm[0] == "production"


class Aws:
    """CloudWatch with these alarms in alarm, and CloudFormation with the alarms of stacks; either may refuse."""

    def __init__(
        self,
        ringing: Sequence[str] = (),
        stacks: Mapping[str, Sequence[str]] | None = None,
        errors: Mapping[str, Exception] | None = None,
    ) -> None:
        self.ringing, self.stacks, self.errors = ringing, stacks or {}, errors or {}
        self.asked: list[str] = []

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=getattr(self, operation))

    def describe_alarms(self, AlarmNamePrefix: str, StateValue: str) -> Iterator[dict[str, Any]]:  # noqa: N803 - as AWS does
        self._note("describe_alarms")
        assert StateValue == "ALARM"
        yield {"MetricAlarms": [{"AlarmName": name} for name in self.ringing if name.startswith(AlarmNamePrefix)]}

    def list_stack_resources(self, StackName: str) -> Iterator[dict[str, Any]]:  # noqa: N803 - as above
        self._note("list_stack_resources")
        if StackName not in self.stacks:
            message = f"Stack with id {StackName} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "ListStackResources")
        yield {"StackResourceSummaries": [{"ResourceType": "AWS::SQS::Queue", "PhysicalResourceId": "shiplap-errors"}]}
        for name in self.stacks[StackName]:
            alarm = {"ResourceType": "AWS::CloudWatch::Alarm", "PhysicalResourceId": name}
            yield {"StackResourceSummaries": [alarm]}

    def _note(self, operation: str) -> None:
        self.asked.append(operation)
        if operation in self.errors:
            raise self.errors[operation]


STACKS = {
    "Shiplap": ("shiplap-eu-misses", "shiplap-misses", "shiplap-schedule-eu-errors"),
    "Europe": ("shiplap-eu-catalog-stale", "shiplap-eu-errors"),
}


def test_alarms_of_an_install_are_those_of_its_stack_though_another_name_begins_alike() -> None:
    """`shiplap-eu-misses` is of `shiplap`, which has something of its own called `eu`."""
    ringing = ["shiplap-eu-catalog-stale", "shiplap-eu-errors", "shiplap-eu-misses", "shiplap-misses", "ship-misses"]
    aws = Aws(ringing, STACKS)

    assert ringing_alarms(aws, aws, "Shiplap", "shiplap") == ["shiplap-eu-misses", "shiplap-misses"]
    assert ringing_alarms(aws, aws, "Europe", "shiplap-eu") == ["shiplap-eu-catalog-stale", "shiplap-eu-errors"]


def test_nobody_asks_for_the_stack_while_all_is_quiet() -> None:
    aws = Aws((), STACKS)
    assert ringing_alarms(aws, aws, "Shiplap", "shiplap") == []
    assert aws.asked == ["describe_alarms"]


def test_without_its_stack_whatever_may_be_of_the_install_counts() -> None:
    aws = Aws(["shiplap-eu-errors"])
    assert ringing_alarms(aws, aws, "Shiplap", "shiplap") == ["shiplap-eu-errors"]


def _refused(operation: str) -> ClientError:
    return ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)


@pytest.mark.parametrize(
    "errors",
    [
        {"describe_alarms": NoCredentialsError()},
        {"describe_alarms": _refused("DescribeAlarms")},
        {"list_stack_resources": _refused("ListStackResources")},
    ],
)
def test_alarms_that_cannot_be_read_are_no_silence(
    errors: dict[str, Exception], fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = Aws(["sandbox-errors"], STACKS, errors)
    clients = SimpleNamespace(cloudformation=aws, cloudwatch=aws)
    monkeypatch.setattr(fleet_reading.AwsClients, "of", lambda *_: clients)
    (said,) = module._alarms_of(fleet)(DescribedInstall(name="sandbox", settings="sandbox.yaml", region="eu-west-1"))
    assert said.startswith("its alarms cannot be read: ")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name in ("sandbox", "production"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"region": "eu-west-1", "name": name, "clusters": []}))
    installs = [
        {"name": "production", "settings": "production.yaml", "profile": "prod", "wave": 2},
        {"name": "sandbox", "settings": "sandbox.yaml"},
    ]
    (tmp_path / "installs.yaml").write_text(yaml.safe_dump({"installs": installs}))
    return tmp_path


@pytest.fixture
def recording(fleet: Path) -> str:
    """A command that writes down what it is called with, and fails for a file that is named `fail`."""
    program = fleet / "record.py"
    program.write_text(
        "import json, pathlib, sys\n"
        f"log = pathlib.Path({str(fleet / 'log')!r})\n"
        "log.write_text((log.read_text() if log.exists() else '') + json.dumps(sys.argv[1:]) + '\\n')\n"
        "print('deploying')\n"
        "sys.exit(3 if 'fail' in sys.argv[1] else 0)\n"
    )
    return f"{sys.executable} {program}"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """No alarms, until one is set for an install; nothing waits."""
    ringing: list[str] = []
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(module, "_alarms_of", lambda folder: lambda item: ["it rings"] if item.name in ringing else [])
    return ringing.append


def called(fleet: Path) -> list[list[str]]:
    log = fleet / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_the_command_gets_settings_and_profile_of_each_install(
    fleet: Path, recording: str, quiet: Any, shiplap: Shiplap
) -> None:
    done = shiplap.json("install", "deploy", "-f", fleet / "installs.yaml", "--command", f"{recording} deploy")

    assert [(item["install"], item["outcome"]) for item in done] == [
        ("sandbox", "deployed"),
        ("production", "deployed"),
    ]
    assert called(fleet) == [
        ["deploy", "-c", f"settings={fleet / 'sandbox.yaml'}"],
        ["deploy", "-c", f"settings={fleet / 'production.yaml'}", "--profile", "prod"],
    ]


def test_an_exit_code_stops_it_and_is_told(fleet: Path, recording: str, quiet: Any, shiplap: Shiplap) -> None:
    page = shiplap("install", "deploy", "-f", fleet / "installs.yaml", "--command", f"{recording} fail", code=1)

    assert "ended with exit code 3" in page
    assert "left" in page
    assert len(called(fleet)) == 1


def test_a_command_that_does_not_exist_is_told(fleet: Path, quiet: Any, shiplap: Shiplap) -> None:
    page = shiplap("install", "deploy", "-f", fleet / "installs.yaml", "--command", "no-such-program", code=1)

    assert "no-such-program cannot be run: No such file" in page


def test_an_alarm_is_named(fleet: Path, recording: str, quiet: Callable[[str], None], shiplap: Shiplap) -> None:
    quiet("production")
    page = shiplap("install", "deploy", "-f", fleet / "installs.yaml", "--command", f"{recording} deploy", code=1)

    assert "it rings" in page
    assert len(called(fleet)) == 1


def test_a_dry_run_only_prints_and_waves_may_be_left_out(fleet: Path, shiplap: Shiplap) -> None:
    page = shiplap("install", "deploy", "-f", fleet / "installs.yaml", "--dry-run", "--from-wave", "2")

    assert page.split() == [
        *["wave", "2:", "npx", "aws-cdk", "deploy", "--require-approval", "never", "--ci", "-c"],
        f"settings={fleet / 'production.yaml'}",
        "--profile",
        "prod",
    ]


def test_alarms_are_asked_by_the_name_in_the_settings(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the name in the description, nor by that of an install whose name begins alike."""
    aws = Aws(["a-misses", "sandbox-eu-misses", "sandbox-misses"], {"Sandbox": ["sandbox-misses"]})

    class Clients:
        def of(self, install: DescribedInstall) -> Any:
            if install.region == "nowhere":
                raise AwsError("no such profile")
            return SimpleNamespace(cloudformation=aws, cloudwatch=aws)

    monkeypatch.setattr("shiplap_cli.commands.status.fleet_reading.AwsClients", Clients)
    alarms = module._alarms_of(fleet)

    install = DescribedInstall(name="a", region="eu-west-1", settings="sandbox.yaml", stack="Sandbox")
    assert alarms(install) == ["sandbox-misses"]
    unread = alarms(DescribedInstall(name="a", region="nowhere", settings="sandbox.yaml"))
    assert unread == ("its alarms cannot be read: no such profile",)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-f", "missing.yaml"], "missing.yaml: does not exist"),
        (["--only", "staging"], "there is no install staging"),
        (["--from-wave", "9"], "there is no install from wave 9 on"),
    ],
)
def test_what_cannot_be_deployed_is_bad_input(
    fleet: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(fleet)

    assert told in shiplap.error("install", "deploy", *arguments)


def test_an_install_without_settings_cannot_be_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("installs.yaml").write_text("installs:\n  - {name: one, region: eu-west-1}\n")

    assert "install one has no `settings`" in shiplap.error("install", "deploy")
