"""The tool that kills functions: what it finds, keeps and explains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.objects import ObjectMeta, Pod, PodSpec
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.dev.local_region import QueueDepth
from shiplap_lab.scenarios.scenario import InterruptionKind, load
from tools import kills
from tools.kills import (
    FUNCTIONS,
    Gap,
    Kill,
    Ledger,
    Session,
    busy_processes,
    explained,
    function_processes,
    said_between,
    summary,
)


def test_processes_of_functions_are_found_by_the_name_in_their_environment() -> None:
    environment = {**os.environ, "AWS_LAMBDA_FUNCTION_NAME": "shiplap-watch"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as process:
        found = function_processes(os.getpid(), {"watch": "shiplap-watch", "schedule": "shiplap-schedule"})
        process.communicate(b"\n")

    assert found == {"watch": [process.pid]}


def test_a_ledger_goes_on_where_it_ended(tmp_path: Path) -> None:
    kill = Kill("a", "watch", 7, 100.0, 0.5)
    gap = Gap("a", 100.0, 230.0, 3, "", (QueueDepth("provisioning", 1, 0),), ("watch",))

    Ledger(tmp_path / "kills").add(kill)
    Ledger(tmp_path / "kills").add(gap)

    assert Ledger(tmp_path / "kills").kills() == (kill,)
    assert Ledger(tmp_path / "kills").gaps() == (gap,)


def test_only_the_lines_of_a_gap_are_kept(tmp_path: Path) -> None:
    began = time.mktime(time.strptime("2026-01-01 10:00:10", "%Y-%m-%d %H:%M:%S"))
    log = tmp_path / "log"
    log.write_text("2026-01-01 10:00:00 before\n2026-01-01 10:00:20 within\nits output\n2026-01-01 10:01:00 after\n")

    assert said_between(log, began, began + 20) == ["2026-01-01 10:00:20 within", "its output"]


def test_a_gap_is_explained_by_a_function_that_ended_no_invocation_well() -> None:
    began = time.mktime(time.strptime("2026-01-01 10:00:00", "%Y-%m-%d %H:%M:%S"))
    died = "2026-01-01 10:01:00 WARNING ESM: Lambda shiplap-lifecycle failed processing SQS batch"
    late = "2026-01-01 10:02:05 INFO ESM: Lambda shiplap-lifecycle processed 1 SQS messages"
    early = "2026-01-01 10:01:05 INFO ESM: Lambda shiplap-lifecycle processed 1 SQS messages"
    other = "2026-01-01 10:01:00 INFO ESM: Lambda shiplap-schedule processed 1 SQS messages"

    assert explained(began, began + 130, [died, other, late]).startswith("no lifecycle ended well for 125 s, 1 failed")
    assert explained(began, began + 130, [died, early, late]) == ""
    assert explained(began, began + 130, [other]) == ""
    first = "2026-01-01 10:00:10 INFO ESM: Lambda shiplap-lifecycle processed 1 SQS messages"
    before = "2026-01-01 10:00:05 WARNING ESM: Lambda shiplap-lifecycle failed processing SQS batch"
    assert explained(began, began + 130, [before, first]) == "", "it failed before it ended well for the last time"
    warning = "2026-01-01 10:01:00 WARNING ESM: Lambda shiplap-interrupt failed processing SQS batch"
    assert explained(began, began + 130, [warning]) == "", "no pod waits for what follows a spot warning"


def test_the_summary_counts_kills_and_names_gaps_without_a_reason() -> None:
    said = summary([Kill("a", "watch", 7, 100.0, 0.5)], [Gap("a", 100.0, 230.0, 3, "", (), ("watch",))])

    assert "watch: killed 1 times" in said
    assert "1 gaps of 120 s or more, 1 without a reason" in said
    assert "a: 130 s, 3 pods waited, killed watch: no reason found" in said


CLUSTER = load("flex-first").scenario.clusters[0].name


class PlayedRegion:
    """A Region in which pods wait until `placed_at`, and which passes time."""

    emulator_process = 1

    def __init__(self, folder: Path, *, placed_at: float = float("inf")) -> None:
        self.emulator_log = folder / "log"
        self.emulator_log.write_text("")
        self.functions = {name: f"shiplap-{name}" for name in FUNCTIONS}
        self.time, self.placed_at = 1000.0, placed_at
        self.watched: list[float] = []
        self.read: list[float] = []
        self.gone: set[str] = set()
        self.pods: list[Pod] = []

    def now(self) -> float:
        return self.time

    def rest(self, seconds: float) -> None:
        self.time += seconds

    def observe(self) -> RegionObservation:
        node = "node" if self.time >= self.placed_at else ""
        pods = tuple(msgspec.structs.replace(pod, spec=PodSpec(node_name=node)) for pod in self.pods)
        return RegionObservation((ClusterObservation(CLUSTER, pods),))

    def queue_depths(self) -> tuple[QueueDepth, ...]:
        return (QueueDepth("provisioning", len(self.pods), 0),)

    def let_time_pass(self) -> None:
        pass

    def apply(self, cluster: str, *items: dict[str, Any]) -> None:
        assert cluster == CLUSTER
        self.pods += (Pod(metadata=ObjectMeta(name=item["metadata"]["name"])) for item in items)

    def remove(self, cluster: str, pod: Pod) -> None:
        assert cluster == CLUSTER
        self.pods = [item for item in self.pods if item.metadata.name != pod.metadata.name]
        if pod.metadata.name in self.gone:
            raise ObjectNotFound(f'pods "{pod.metadata.name}" not found', status=404)

    def interrupt(self, instance_id: str, kind: InterruptionKind) -> None:
        raise AssertionError(f"no claim was launched: {instance_id} {kind}")

    def watch(self, cluster: str) -> None:
        assert cluster == CLUSTER
        self.watched.append(self.time)

    def read_catalog(self) -> None:
        self.read.append(self.time)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The processes of functions that a session finds."""
    found: dict[str, list[int]] = {}
    monkeypatch.setattr(kills, "function_processes", lambda *_: found)
    return found


def session(region: PlayedRegion, ledger: Ledger, *, wanted: int = 1) -> Session:
    return Session(load("flex-first"), region, ledger, "s", wanted, now=region.now, rest=region.rest)


@pytest.mark.usefixtures("running")
def test_a_standstill_that_lasts_to_the_end_of_a_session_is_recorded(tmp_path: Path) -> None:
    region, ledger = PlayedRegion(tmp_path), Ledger(tmp_path / "kills")
    session(region, ledger).run(region.time + 125)

    (gap,) = ledger.gaps()
    assert (gap.ended_at - gap.began_at, gap.waiting, gap.reason) == (124.0, 24, "")
    assert gap.depths == (QueueDepth("provisioning", 24, 0),)


@pytest.mark.usefixtures("running")
def test_a_standstill_is_recorded_when_somebody_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, ledger = PlayedRegion(tmp_path), Ledger(tmp_path / "kills")
    rest = region.rest

    def interrupted(seconds: float) -> None:
        rest(seconds)
        if region.time > 1125:
            raise KeyboardInterrupt

    monkeypatch.setattr(region, "rest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session(region, ledger).run(region.time + 600)
    assert [gap.waiting for gap in ledger.gaps()] == [24]


@pytest.mark.usefixtures("running")
def test_a_standstill_ends_when_a_pod_no_longer_waits_and_a_short_one_is_none(tmp_path: Path) -> None:
    region, ledger = PlayedRegion(tmp_path, placed_at=1130.0), Ledger(tmp_path / "kills")
    session(region, ledger).run(region.time + 200)
    short, none = PlayedRegion(tmp_path, placed_at=1110.0), Ledger(tmp_path / "none")
    session(short, none).run(short.time + 200)

    assert [gap.ended_at for gap in ledger.gaps()] == [1130.0]
    assert none.gaps() == ()


@pytest.mark.usefixtures("running")
def test_nobody_watches_for_a_minute_until_a_watch_is_begun(tmp_path: Path) -> None:
    region = PlayedRegion(tmp_path)
    session(region, Ledger(tmp_path / "kills")).run(region.time + 130)

    assert region.watched == [1060.0, 1120.0]


@pytest.mark.usefixtures("running")
def test_prices_are_read_again_at_every_third_wave(tmp_path: Path) -> None:
    region = PlayedRegion(tmp_path)
    session(region, Ledger(tmp_path / "kills")).run(region.time + 130)

    assert region.read == [1040.0, 1100.0]


@pytest.mark.usefixtures("running")
def test_a_session_goes_on_when_a_pod_that_it_removes_is_gone(tmp_path: Path) -> None:
    region = PlayedRegion(tmp_path, placed_at=0.0)
    region.gone = {"wave0-0"}
    session(region, Ledger(tmp_path / "kills")).run(region.time + 50)

    names = {pod.metadata.name for pod in region.pods}
    assert "wave0-0" not in names
    assert any(name.startswith("wave2") for name in names)


def test_sessions_side_by_side_are_waited_for_and_one_that_fails_is_told() -> None:
    ends_with = [[sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 0, 1)]

    assert not kills._side_by_side(ends_with[:2])
    assert kills._side_by_side(ends_with)


def test_sessions_side_by_side_share_the_ledger_and_nothing_keeps_the_processors_busy_but_they(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[list[str]] = []
    monkeypatch.setattr(kills, "_side_by_side", began.extend)
    folder = str(tmp_path / "kills")

    assert kills.main(["--sessions", "3", "--load", "0", "--kills", "5", "--folder", folder]) == 0
    assert len(began) == 3
    assert {tuple(command[-4:]) for command in began} == {("--sessions", "1", "--load", "0")}
    assert all(folder in command for command in began)


def test_functions_are_killed_until_each_was_often_enough_the_rarest_first(
    tmp_path: Path, running: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def kill(process: int, _signal: int) -> None:
        if process == 99:
            raise ProcessLookupError
        killed.append(process)

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.5, 0.0, 0.0))
    running |= {name: [number] for number, name in enumerate(FUNCTIONS)} | {"watch": [99]}
    region, ledger = PlayedRegion(tmp_path, placed_at=0.0), Ledger(tmp_path / "kills")
    session(region, ledger).run(region.time + 300)

    assert killed == [1, 2, 3, 4, 5], "each once; the process of watch had ended by itself"
    assert [kill.function for kill in ledger.kills()] == list(FUNCTIONS[1:])
    assert {kill.load for kill in ledger.kills()} == {9.5}
    assert "load of the minute before a kill: at least 9.5, 9.5 in the middle" in summary(ledger.kills(), ())


def test_processes_keep_the_processors_busy_and_end() -> None:
    with busy_processes(2) as busy:
        assert [process.poll() for process in busy] == [None, None]
    assert [process.poll() for process in busy] == [-signal.SIGKILL] * 2


def test_the_summary_comes_when_somebody_ends_the_sessions_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kills, "_play_sessions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kills.main(["--load", "0", "--folder", str(tmp_path / "kills")])
    assert "watch: killed 0 times" in capsys.readouterr().out
