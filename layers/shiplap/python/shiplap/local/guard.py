"""Runs a command and ends it, with everything it started, when whoever asked for it is gone.

`python -m shiplap.local.guard COMMAND…` lives as long as its standard input is open. The other end of that pipe closes
however the parent ends, by an error, by Ctrl-C or killed outright, so no emulator outlives its run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from threading import Thread
from types import FrameType

_GRACE_S = 3.0


def main(command: Sequence[str]) -> int:
    """Run the command in a process group of its own; returns its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - our own command

    def end(_signal: int, _frame: FrameType | None) -> None:
        _end(child.pid)

    signal.signal(signal.SIGTERM, end)
    Thread(target=_end_with_parent, args=(child.pid,), daemon=True).start()
    code = child.wait()
    _signal_group(child.pid, signal.SIGKILL)  # what the child left behind
    return code if code >= 0 else 128 - code


def _end_with_parent(group: int) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _end(group)


def _end(group: int) -> None:
    """Ask the group to end, and make it after a moment."""
    _signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and _signal_group(group, 0):
        time.sleep(0.02)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Whether there was a process left to signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of dead processes
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
