"""How other commands find the `shiplap dev` that runs on this machine: a note in the folder of its run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput
from shiplap_lab.emulated_aws.cdk import ROOT

_FOLDER = ROOT / "build" / "local"
_NOTE = "running.json"


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
        "--dev", "no `shiplap dev` runs on this machine; it does while a scenario plays: start one by `shiplap dev`"
    )


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, but is somebody else's
        return True
    return True
