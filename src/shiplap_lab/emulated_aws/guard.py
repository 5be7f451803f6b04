"""Runs a command and ends it, with everything it started, when its parent process is gone.

`python -m shiplap_lab.emulated_aws.guard COMMAND…` lives as long as its standard input is open. The other end of that
pipe closes when the parent ends, by an error, by Ctrl-C or killed outright, so no emulator outlives its run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from types import FrameType


def main(command: Sequence[str]) -> int:
    """Run the command in a process group of its own; returns its exit code."""
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
