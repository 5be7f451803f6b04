"""Go programs of our own that read lines and answer with lines: compiled once, and kept at work by a process."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterable, Sequence
from hashlib import blake2s
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.programs import run_go

_TIMEOUT_S = 60


def built(
    cache: Path,
    version: str,
    sources: Iterable[Path],
    module: Path,
    *,
    flags: Sequence[str] = (),
    as_named: bool = True,
) -> Path:
    """The program of a Go module, built if it is missing or if one of its sources has changed.

    Args:
        cache: a folder that keeps it, by `version` and sources.
        version: the release that it links.
        sources: what decides what it does.
        module: the folder of the module.
        flags: further flags of `go build`.
        as_named: see `run_go`.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: it cannot be built.
    """
    digest = blake2s(digest_size=6)
    for path in sources:
        digest.update(path.read_bytes())
    program = cache / f"{version}-{digest.hexdigest()}" / "scheduler"
    program.parent.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests begin at once, and one build is enough
        if not os.access(program, os.X_OK):
            unfinished = program.with_name("unfinished")
            arguments = ["build", *flags, "-trimpath", "-ldflags", "-s -w", "-o", str(unfinished), "."]
            run_go(arguments, module, as_named=as_named)
            unfinished.rename(program)
    return program


class LineProgram:
    """A program at work. A context manager; without one, the program ends with the process that began it."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def send(self, line: bytes) -> None:
        """Write one line, which must end as a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def receive(self) -> bytes:
        """The next line that the program writes."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=_TIMEOUT_S)
        self._process.stdout.close()
