"""Child processes end with whoever started them, however that ends; what they said is told when they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws.processes import Process

# Opens the pipe and lives on, and so does a child of its own: the pipe ends when both are gone.
LONG_LIVED = """
import subprocess, sys
pipe = open(sys.argv[1], "w")
subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"],
                 pass_fds=[pipe.fileno()])
print("up", file=pipe, flush=True)
import signal
signal.pause()
"""

PARENT = """
import os, sys
from pathlib import Path
from shiplap_lab.emulated_aws.processes import Process
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
Process(command, log=Path(sys.argv[3]), environment=os.environ, folder=Path("."))
open(sys.argv[2] + ".started", "r").read()
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def started(command: list[str], folder: Path) -> Process:
    return Process([sys.executable, *command], log=folder / "log", environment=os.environ, folder=folder)


def test_stopping_ends_the_command_and_its_children(tmp_path: Path, pipe: Path) -> None:
    process = started(["-c", LONG_LIVED, str(pipe)], tmp_path)
    with pipe.open() as reading:
        assert reading.readline() == "up\n"
        process.stop()
        assert reading.read() == ""
    assert process.ended


def test_a_killed_parent_takes_its_processes_along(tmp_path: Path, pipe: Path) -> None:
    os.mkfifo(f"{pipe}.started")
    parent = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", PARENT, LONG_LIVED, str(pipe), str(tmp_path / "log")], cwd=tmp_path
    )
    with pipe.open() as reading:
        assert reading.readline() == "up\n"
        parent.kill()
        parent.wait()
        assert reading.read() == ""


def test_success_says_nothing(tmp_path: Path) -> None:
    with started(["-c", "print('fine')"], tmp_path) as process:
        process.succeed("the program", 30)
    assert (tmp_path / "log").read_text() == "fine\n"


def test_a_failure_is_told_with_the_end_of_the_output(tmp_path: Path) -> None:
    with (
        started(["-c", "print('what went wrong'); raise SystemExit(3)"], tmp_path) as process,
        pytest.raises(ShiplapError, match=r"(?s)the program failed with exit code 3; .*what went wrong"),
    ):
        process.succeed("the program", 30)


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    process = started(["-c", "import signal; signal.pause()"], tmp_path)
    with pytest.raises(ShiplapError, match=r"took more than 0 s; .*log is empty"):
        process.succeed("the program", 0.01)
    assert process.ended


def test_a_command_that_is_missing_fails_like_any_other(tmp_path: Path) -> None:
    process = Process([str(tmp_path / "nothing")], log=tmp_path / "log", environment=os.environ, folder=tmp_path)
    with process, pytest.raises(ShiplapError, match="No such file"):
        process.succeed("the program", 30)
