"""Builds and runs the Promela model with Spin; without Spin or a C compiler, tests that need them are skipped."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

FOLDER = Path(__file__).parent
MEMORY_MIB = 6144
PARTIAL_MIN = 10
"""Minutes after which a partial search ends."""

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


def search(
    bounds: Mapping[str, int],
    defects: Sequence[str] = (),
    *,
    limit_s: float,
    optimised: bool = False,
    hashed_mib: int = 0,
) -> Search:
    """Search all states within the bounds until an assertion fails; with defects, the shortest paths first.

    Args:
        bounds: those of protocol.pml, by name.
        defects: switches of protocol.pml.
        limit_s: seconds of CPU time that the search may take.
        optimised: whether to compile for a long search.
        hashed_mib: memory for a partial search, which remembers a few bits of each state instead of all states, and so
            leaves out states that it takes for others, and ends after PARTIAL_MIN; 0 for a complete search.

    Raises subprocess.CalledProcessError when a step fails, as when the search takes longer.
    """
    defines = [*(f"-D{name}={value}" for name, value in sorted(bounds.items())), *(f"-D{name}" for name in defects)]
    kind = ["-DBITSTATE"] if hashed_mib else ["-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}"]
    # Every step of an install reads what others write: nothing is gained by partial-order reduction.
    options = ["-DSAFETY", "-DNOREDUCE", *kind, *(["-DBFS"] if defects else []), "-O2" if optimised else "-O0"]
    run = ["./pan", "-E", "-m10000000", *(_partial(hashed_mib) if hashed_mib else [])]
    with tempfile.TemporaryDirectory(prefix="spin-") as made:
        folder = Path(made)
        for source in FOLDER.glob("*.pml"):
            shutil.copy(source, folder)
        _run(["spin", "-a", *defines, "protocol.pml"], folder)
        _run(["gcc", "-w", *options, "-o", "pan", "pan.c"], folder)
        output = _run(run, folder, limit_s)
        violation = _VIOLATION.search(output)
        return Search(
            states=int(float(_figure(_STATES, output))),
            transitions=int(float(_figure(_TRANSITIONS, output))),
            memory_mib=float(_figure(_MEMORY, output)),
            is_complete=not hashed_mib
            and "Search not completed" not in output
            and "max search depth too small" not in output,
            violation=violation[1] if violation else "",
        )


def _partial(hashed_mib: int) -> list[str]:
    return [f"-w{(hashed_mib * 2**23).bit_length() - 1}", f"-Q{PARTIAL_MIN}"]


def _figure(pattern: re.Pattern[str], output: str) -> str:
    found = pattern.search(output)
    assert found is not None, output[-2000:]
    return found[1]


def _run(command: list[str], folder: Path, limit_s: float = 120) -> str:
    def limit_cpu() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))

    done = subprocess.run(  # noqa: S603 - the commands are above
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limit_cpu,
    )
    return done.stdout + done.stderr
