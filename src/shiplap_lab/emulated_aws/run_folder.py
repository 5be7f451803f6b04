"""The folder of one run of the emulators: locked while the run lives, and removed by it or by a later run.

A run holds a lock on a file in its folder. The kernel releases the lock however the process ends, so a free lock proves
that the run is dead, and the next run removes its folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "run-"
_ENDED = "ended-"
_LOCK = "lock"
_REMOVE = 'rm -rf "$0" &'
_MOST_LOGS = 10
"""Runs whose logs are kept, the newest; each is some hundred kilobytes."""


class RunFolder:
    """A folder of its own below `parent`; `hold` makes it, `release` gives it up."""

    def __init__(self, parent: Path, name: str) -> None:
        self.path = parent / f"{_PREFIX}{os.getpid()}-{name}"
        self._parent = parent
        self._lock: int | None = None

    def hold(self) -> None:
        """Make the folder, and remove those of dead runs beside it."""
        self.path.mkdir(parents=True)
        made = self.path / f"{_LOCK}.new"
        self._lock = os.open(made, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self.path / _LOCK)  # nobody ever sees it free
        for dead in _dead(self._parent):
            _remove(dead, dead if dead.name.startswith(_ENDED) else dead.with_name(f"{_ENDED}{dead.name}"))

    def release(self, *, keep_logs: bool = False) -> None:
        """Remove everything, or all but the logs. Returns at once: a process of its own removes what may be much."""
        if keep_logs:
            for path in self.path.iterdir():
                if path.suffix != ".log":
                    _remove(path, self._parent / f"{_ENDED}{self.path.name}-{path.name}")
        else:
            _remove(self.path, self._parent / f"{_ENDED}{self.path.name}")
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _dead(parent: Path) -> Iterator[Path]:
    """The folders of runs that have ended without removing them, and the oldest of those with nothing but logs."""
    yield from parent.glob(f"{_ENDED}*")
    with_logs = []
    for folder in parent.glob(f"{_PREFIX}*"):
        if all(path.suffix == ".log" for path in folder.glob("*")):
            with_logs.append(folder)
        elif not (_held(folder / _LOCK) if (folder / _LOCK).exists() else _lives(folder.name)):
            yield folder
    with_logs.sort(key=lambda folder: (folder.stat().st_mtime if folder.exists() else 0.0, folder.name), reverse=True)
    yield from with_logs[_MOST_LOGS:]


def _held(file: Path) -> bool:
    """True if a process that lives has the lock of a run."""
    try:
        lock = os.open(file, os.O_RDWR)
    except FileNotFoundError:  # its run has ended just now, and removes it
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _lives(name: str) -> bool:
    """True if the process lives whose id is in the name of a folder without a lock."""
    try:
        os.kill(int(name.split("-")[1]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


def _remove(path: Path, ended: Path) -> None:
    """Rename the item, so that it is gone at once, then delete it; the next run deletes any remains."""
    try:
        path.rename(ended)
    except FileNotFoundError:  # another run was faster
        return
    if ended.is_file():
        ended.unlink(missing_ok=True)
        return
    try:
        subprocess.run(  # noqa: S603 - no word of it comes from outside
            ["/bin/sh", "-c", _REMOVE, str(ended)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(ended, ignore_errors=True)
