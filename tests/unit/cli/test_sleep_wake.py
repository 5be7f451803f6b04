"""`shiplap status wake`: what it writes, and when there is nothing to wake; what sleeps is said in one line each."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from shiplap.errors import AwsError, StoreError
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepingScope, SleepState
from shiplap.settings import ClusterSettings
from shiplap_cli.command_list import COMMANDS
from shiplap_cli.commands.status import sleep_wake as command
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.main import run
from shiplap_cli.render.sleep_lines import sleep_lines

ALWAYS, NEVER_NOW = "daily 00:00-24:00 UTC", "2020-01-01 00:00 - 2020-01-02 00:00 UTC"


class Woken:
    """The table, and the settings of the install."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: str = ALWAYS) -> None:
        self.calls: list[tuple[str, int, int]] = []
        sleep = (SleepSettings(("dev",), 5, (WindowSettings(when),)),) if when else ()
        self.settings = ClusterSettings(name="demo", region="eu-west-1", policies=chosen(*sleep))
        self.failure: Exception | None = None
        monkeypatch.setattr(command, "find_install", lambda **_: DeployedInstall("b", {"StateTable": "state"}))
        monkeypatch.setattr(command, "sole_cluster", lambda *_: "demo")
        monkeypatch.setattr(command, "cluster_settings_of", lambda *_: self.settings)
        monkeypatch.setattr("shiplap.aws.session.client", lambda *_: None)
        monkeypatch.setattr("shiplap.aws.policies.sleep_adapters.DynamoSleep", lambda *_: self)

    def wake(self, cluster: str, woken_at: int, awake_until: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.calls.append((cluster, woken_at, awake_until))


def test_it_comes_after_the_other_commands_of_status() -> None:
    assert list(COMMANDS["status"].inner)[-1] == "wake"


def test_the_only_cluster_is_woken_until_its_windows_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    woken, before = Woken(monkeypatch), int(time.time())

    assert run(["status", "wake"]) == 0

    ((cluster, woken_at, until),) = woken.calls
    assert (cluster, until) == ("demo", 0)
    assert before <= woken_at <= time.time()
    said = capsys.readouterr().out
    assert "demo is awake until the windows that are open now end" in said
    assert "within a minute" in said


@pytest.mark.parametrize(("text", "until"), [("2026-12-24T20:00:00Z", 1_798_142_400), ("2099-01-01T00:00:00+01:00", 0)])
def test_a_time_may_be_given(monkeypatch: pytest.MonkeyPatch, text: str, until: int) -> None:
    woken = Woken(monkeypatch, NEVER_NOW)

    assert run(["status", "wake", "other", "--until", text, "-o", "json"]) == 0

    assert woken.calls[0][0] == "other"
    assert woken.calls[0][2] == (until or 4_070_905_200)


def test_a_duration_may_be_given(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    woken = Woken(monkeypatch)

    assert run(["status", "wake", "--until", "1h30m", "-o", "json"]) == 0

    ((_, woken_at, until),) = woken.calls
    assert until == woken_at + 5400
    assert msgspec.json.decode(capsys.readouterr().out) == {
        "cluster": "demo",
        "wokenAt": rfc3339(woken_at),
        "until": rfc3339(until),
    }


@pytest.mark.parametrize(("when", "reason"), [("", "has no `sleep`"), (NEVER_NOW, "no window of cluster demo is open")])
def test_where_nothing_sleeps_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str, reason: str
) -> None:
    woken = Woken(monkeypatch, when)

    assert run(["status", "wake"]) == 1
    assert woken.calls == []
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("failure", [StoreError("the table is not there"), AwsError("no credentials")])
def test_what_could_not_be_written_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    Woken(monkeypatch).failure = failure

    assert run(["status", "wake"]) == 2
    assert "nothing was woken" in capsys.readouterr().err


def test_a_time_that_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    woken = Woken(monkeypatch)

    assert run(["status", "wake", "--until", "tomorrow"]) == 2
    assert woken.calls == []
    assert "neither a time such as" in capsys.readouterr().err


def test_what_sleeps_is_one_line_each() -> None:
    def scope(name: str, **fields: Any) -> SleepingScope:
        return SleepingScope("NodePool", name, 0, 1_767_679_200, 1_767_679_020, **fields)

    state = SleepState(("dev",), (scope("dev"), scope("ci", rehearsal=True)), 38, ("NodePool x is not known",))

    assert list(sleep_lines(SleepInput(state))) == [
        "sleep: NodePool dev until 2026-01-06T06:00:00Z, woken 3 min before",
        "sleep: NodePool ci rehearses until 2026-01-06T06:00:00Z",
        "sleep: 38 more nodes may leave",
        "sleep in doubt: NodePool x is not known",
    ]
    assert "sleep: rehearsal, these nodes would leave: a, b" in list(sleep_lines(SleepInput(state), ("a", "b")))
    assert list(sleep_lines(SleepInput(SleepState(woken=1_767_679_200)))) == [
        "sleep: somebody keeps all awake until 2026-01-06T06:00:00Z"
    ]
    assert list(sleep_lines(None)) == []
