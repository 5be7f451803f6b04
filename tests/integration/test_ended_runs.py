"""Runs of the emulators leave nothing behind, however they end; logs of those that failed stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import run_folder
from shiplap_lab.emulated_aws.emulator import AwsEmulator
from shiplap_lab.emulated_aws.run_folder import RunFolder

# Holds a folder as a run does, says that it is up, and takes it down when told; the lines are what happened.
RUN = """
import signal, sys
from pathlib import Path
from shiplap_lab.dev.dev_session import ended_by_signals
from shiplap_lab.emulated_aws.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]), "1")
try:
    with ended_by_signals():
        folder.hold()
        (folder.path / "much").mkdir()
        try:
            print("up", flush=True)
            while True:
                signal.pause()
        finally:
            print("ending", flush=True)
            sys.stdin.readline() if len(sys.argv) > 2 else None
            folder.release()
except KeyboardInterrupt:
    sys.exit(130)
"""
EMULATOR = """
import signal, sys
from pathlib import Path
from shiplap_lab.emulated_aws.emulator import AwsEmulator
from shiplap_lab.dev.dev_session import ended_by_signals
with ended_by_signals(), AwsEmulator(folder=Path(sys.argv[1])) as emulator:
    print("up", flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_REMOVE", 'rm -rf "$0"')


_AS_STARTED_BY_HAND = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
"""
"""Whoever runs these tests under `nohup` or in the background hands ignored signals down."""


@contextmanager
def running(program: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, from when it is up."""
    command = [sys.executable, "-c", _AS_STARTED_BY_HAND + program, str(folder), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


def there(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def runs(folder: Path) -> list[str]:
    """Without what a process of its own is about to remove."""
    return [name for name in there(folder) if not name.startswith("ended-")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_takes_a_run_down_in_order(tmp_path: Path, number: int, code: int) -> None:
    with running(RUN, tmp_path) as process:
        assert len(runs(tmp_path)) == 1
        process.send_signal(number)
        assert process.wait() == code
    assert runs(tmp_path) == []


def test_further_signals_do_not_interrupt_it(tmp_path: Path) -> None:
    with running(RUN, tmp_path, "waits") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ending\n"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait() == 143
    assert runs(tmp_path) == []


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As under `nohup`."""
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + RUN
    with running(ignoring, tmp_path) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_the_emulated_account_goes_with_its_processes_and_files(tmp_path: Path, number: int) -> None:
    with running(EMULATOR, tmp_path) as process:
        (folder,) = tmp_path.glob("run-*")
        port = folder.name.rpartition("-")[2]
        process.send_signal(number)
        process.wait()
    assert runs(tmp_path) == []
    assert not any(f"GATEWAY_PORT={port}".encode() in environment for environment in environments())


def test_the_death_of_the_emulated_account_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with AwsEmulator(folder=tmp_path) as emulator:
        emulator.check()
        with emulator.log.open("a") as log:
            log.write("the last words\n")
        os.kill(emulator.process, signal.SIGTERM)  # its guard kills it
        os.waitid(os.P_PID, emulator.process, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ShiplapError, match=r"(?s)MiniStack ended.*the last words"):
            emulator.check()
    assert runs(tmp_path) == []


def environments() -> Iterator[bytes]:
    """Yield the environments of all processes of this user, where the system shows them."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield file.read_bytes()
        except OSError:  # it has just ended, or is another user's
            continue


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with running(RUN, tmp_path) as process:
        process.kill()
        process.wait()
    (dead,) = there(tmp_path)
    folder = RunFolder(tmp_path, "2")
    folder.hold()
    assert there(tmp_path) == [folder.path.name] != [dead]
    folder.release()
    assert there(tmp_path) == []


def test_a_run_that_lives_is_left_alone(tmp_path: Path) -> None:
    with running(RUN, tmp_path):
        (theirs,) = there(tmp_path)
        first, second = RunFolder(tmp_path, "2"), RunFolder(tmp_path, "3")
        first.hold()
        second.hold()
        assert there(tmp_path) == sorted([theirs, first.path.name, second.path.name])
        first.release()
        second.release()
        assert there(tmp_path) == [theirs]
        assert there(tmp_path / theirs) == ["lock", "much"]


def test_a_run_of_before_there_were_locks_counts_as_dead_when_its_process_is(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    for name in (f"run-{done.pid}-1", f"run-{os.getpid()}-1", "run-of-others"):
        (tmp_path / name / "tmp").mkdir(parents=True)
    folder = RunFolder(tmp_path, "2")
    folder.hold()
    assert there(tmp_path) == sorted([f"run-{os.getpid()}-1", folder.path.name])
    folder.release()


def test_a_removal_that_was_cut_short_is_done_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "ended-run-1-1" / "tmp").mkdir(parents=True)
    folder = RunFolder(tmp_path, "2")
    folder.hold()
    assert there(tmp_path) == [folder.path.name]
    folder.release()


def test_logs_of_a_run_that_failed_stay_and_nothing_else(tmp_path: Path) -> None:
    emulator = AwsEmulator(folder=tmp_path)
    emulator._folder.hold()
    (emulator.state / "tmp").mkdir()
    (emulator.state / "deploy.log").write_text("what went wrong")
    error = RuntimeError("the play failed")
    emulator.__exit__(type(error), error, None)
    assert there(tmp_path) == [emulator.state.name]
    assert there(emulator.state) == ["deploy.log"]


def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    for age in range(run_folder._MOST_LOGS + 2):
        kept = tmp_path / f"run-1-{age}"
        kept.mkdir()
        (kept / "synth.log").write_text("")
        os.utime(kept, (1000 - age, 1000 - age))
    folder = RunFolder(tmp_path, "x")
    folder.hold()
    folder.release()
    assert sorted(int(name.rpartition("-")[2]) for name in there(tmp_path)) == list(range(run_folder._MOST_LOGS))


def test_without_a_shell_it_is_removed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_REMOVE", "exit 1")
    folder = RunFolder(tmp_path, "1")
    folder.hold()
    (folder.path / "much").mkdir()
    folder.release()
    assert there(tmp_path) == []
