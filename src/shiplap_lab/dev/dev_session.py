"""A `shiplap lab dev` that runs on this machine: the note by which other commands find it, and the signals that end it.

A closed terminal and `kill` take it down in order, as Ctrl-C does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from shiplap.errors import InvalidInput
from shiplap_cdk.shipped_files import work_folder

_FOLDER = work_folder("local")
_NOTE = "running.json"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DevSession(msgspec.Struct, frozen=True):
    """`environment` points AWS clients at the emulated account; `process` is the id of the process that runs it."""

    process: int
    environment: dict[str, str]
    bucket: str
    endpoints: dict[str, str] = {}


def announce_session(
    state: Path, environment: dict[str, str], bucket: str, endpoints: dict[str, str] | None = None
) -> None:
    """Leave a note in the folder of a run, which is removed with it."""
    note = DevSession(os.getpid(), environment, bucket, endpoints or {})
    (state / _NOTE).write_bytes(msgspec.json.encode(note))


def find_session(folder: Path = _FOLDER) -> DevSession:
    """The newest that still runs.

    Raises:
        InvalidInput: none does.
    """
    notes = sorted(folder.glob(f"*/{_NOTE}"), key=lambda path: (path.stat().st_mtime, path), reverse=True)
    for path in notes:
        note = msgspec.json.decode(path.read_bytes(), type=DevSession)
        if _runs(note.process):
            return note
    raise InvalidInput(
        "--dev", "no `shiplap lab dev` runs on this machine: start one, and ask while its scenario plays"
    )


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, but is somebody else's
        return True
    return True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt, or SystemExit with 128 + its number; then they are ignored.

    One that the process ignores already, as under `nohup`, stays ignored. Only the main thread may use it.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # the cleanup must not be interrupted
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        _redirect_to_devnull()
    raise SystemExit(128 + number)


def _redirect_to_devnull() -> None:
    """Redirect output: writing to a closed terminal fails and would end the cleanup."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
