"""Builds and runs the Promela model with Spin; without Spin or a C compiler, tests that need them are skipped."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

FOLDER = Path(__file__).parent
MEMORY_MIB = 8192

_STATES = re.compile(r"^\s*(\S+) states, stored", re.MULTILINE)
_TRANSITIONS = re.compile(r"^\s*(\S+) transitions", re.MULTILINE)
_MEMORY = re.compile(r"^\s*(\S+)\s+total actual memory usage", re.MULTILINE)
_VIOLATION = re.compile(r"assertion violated (.*)")


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search. `violation` is the assertion that failed, empty if none did."""

    states: int
    transitions: int
    memory_mib: float
    is_complete: bool
    violation: str = ""


def need_spin() -> None:
    """Skip the test where Spin or a C compiler is missing."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (on Debian: apt-get install spin gcc)")


def search(bounds: Mapping[str, int], defects: Sequence[str] = (), *, limit_s: float) -> Search:
    """Search all states within the bounds until an assertion fails; with defects, the shortest paths first.

    Raises subprocess.TimeoutExpired after `limit_s`.
    """
    defines = [*(f"-D{name}={value}" for name, value in sorted(bounds.items())), *(f"-D{name}" for name in defects)]
    shortest = ["-DBFS"] if defects else []
    with tempfile.TemporaryDirectory(prefix="spin-") as made:
        folder = Path(made)
        for source in FOLDER.glob("*.pml"):
            shutil.copy(source, folder)
        _run(["spin", "-a", *defines, "protocol.pml"], folder, limit_s)
        _run(
            ["gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", *shortest, f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c"],
            folder,
            60,
        )
        # -E: at rest every process waits, which is no deadlock; the model asserts itself what must hold then.
        output = _run(["./pan", "-E", "-m1000000"], folder, limit_s)
        violation = _VIOLATION.search(output)
        return Search(
            states=int(float(_figure(_STATES, output))),
            transitions=int(float(_figure(_TRANSITIONS, output))),
            memory_mib=float(_figure(_MEMORY, output)),
            is_complete="Search not completed" not in output and "max search depth too small" not in output,
            violation=violation[1] if violation else "",
        )


def _figure(pattern: re.Pattern[str], output: str) -> str:
    found = pattern.search(output)
    assert found is not None, output[-2000:]
    return found[1]


def _run(command: list[str], folder: Path, limit_s: float) -> str:
    done = subprocess.run(  # noqa: S603 - the commands are above
        command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
    )
    return done.stdout + done.stderr
