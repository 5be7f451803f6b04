"""Child processes that end with this one, however it ends.

`python -m shiplap_lab.emulated_aws.processes COMMAND…` guards a command: it lives as long as its standard input is
open. The other end of that pipe closes when the parent ends, by an error, by Ctrl-C or killed outright, so no emulator
outlives its run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType

from shiplap.errors import ShiplapError

_TAIL_LINES = 20


class Process:
    """A guarded command, its output in a file; also a context manager that ends it."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path) -> None:
        self.log = log
        self._name = Path(command[0]).name
        guarded = [sys.executable, "-m", "shiplap_lab.emulated_aws.processes", *command]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(  # noqa: S603 - our own command
                guarded,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,  # Ctrl-C reaches this process only, which then ends the others in order
            )

    @property
    def id(self) -> int:
        """Of the process that guards the command."""
        return self._guard.pid

    @property
    def ended(self) -> bool:
        """True if the command has ended by itself."""
        return self._guard.poll() is not None

    def succeed(self, what: str, timeout_s: float) -> None:
        """Wait for the command. Raises ShiplapError with the end of its output when it fails or takes too long."""
        try:
            code = self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise ShiplapError(f"{what} took more than {timeout_s:.0f} s; {self._said()}") from None
        if code:
            raise ShiplapError(f"{what} failed with exit code {code}; {self._said()}")

    def failure(self, what: str) -> ShiplapError:
        """The error to raise when the command ended before its time."""
        return ShiplapError(f"{what} ended; {self._said()}")

    def stop(self) -> None:
        """End the command and all it started, and wait until they are gone."""
        if self._guard.stdin and not self._guard.stdin.closed:
            self._guard.stdin.close()
        self._guard.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _said(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return f"{self.log} ends with:\n" + "\n".join(lines) if lines else f"{self.log} is empty"


def main(command: Sequence[str]) -> int:
    """Run the command in a process group of its own, and end all of it with the parent; returns its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - our own command

    def end(_signal: int, _frame: FrameType | None) -> None:
        _kill(child.pid)

    signal.signal(signal.SIGTERM, end)
    Thread(target=_end_with_parent, args=(child.pid,), daemon=True).start()
    code = child.wait()
    _kill(child.pid)  # what the child left behind
    return code if code >= 0 else 128 - code


def _end_with_parent(group: int) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _kill(group)


def _kill(group: int) -> None:
    """At once: nothing that is guarded keeps what it has."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of dead processes
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
