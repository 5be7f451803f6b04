"""Child processes that end with this one, however it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from shiplap.errors import ShiplapError

_TAIL_LINES = 20


class Process:
    """A command under `shiplap_lab.emulated_aws.guard`, its output in a file; also a context manager that ends it."""

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path) -> None:
        self.log = log
        self._name = Path(command[0]).name
        guarded = [sys.executable, "-m", "shiplap_lab.emulated_aws.guard", *command]
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
    def ended(self) -> bool:
        """Whether the command has ended by itself."""
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
        return f"{self.log} ends with:\n" + "\n".join(lines)
