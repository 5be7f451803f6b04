"""A recorded decision made by another installed version of Shiplap, in a process of its own.

Two versions of one package cannot live in one process. The other one is asked in the smallest language that both
speak: a record in, the decision's encoding and the version out. It may be a virtual environment, an interpreter, the
library layer of an install as a zip archive, or a source tree; the latter two run on this interpreter.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput

_TIMEOUT_S = 300.0
_OPTION = "--with-version"
_ROOTS = ("", "python", "layers/shiplap/python")
"""Where below a folder the package may lie: beside it, in an unpacked layer, in a checkout."""

_PROGRAM = """
import base64, json, sys
import shiplap
answer = {"version": shiplap.__version__}
try:
    from shiplap.records.disruption_record import decided_again, read
except ImportError as error:
    answer["problem"] = f"it cannot decide on records: {error}"
else:
    found = read(sys.stdin.buffer.read(), "record")
    if found.record is None:
        answer["problem"] = found.problem
    else:
        answer["written"] = base64.b64encode(decided_again(found.record)).decode()
sys.stdout.write(json.dumps(answer))
"""
"""What the other version runs. It must go with every version there is, so it uses nothing but what replay rests on."""


class OtherDecision(msgspec.Struct, frozen=True):
    """The answer of another version: the decision as it encodes it, or the reason why there is none."""

    version: str
    written: bytes = b""
    problem: str = ""


class _Answer(msgspec.Struct, frozen=True):
    version: str
    written: str = ""
    problem: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)


def decide_with(where: Path, document: bytes) -> OtherDecision:
    """Have a record decided by the version that is installed there.

    Raises:
        InvalidInput: there is no Shiplap, or it fails.
    """
    with _interpreter(where) as (python, root):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment = kept | ({"PYTHONPATH": str(root)} if root is not None else {})
        command = [python, "-P", "-c", _PROGRAM]
        try:
            done = subprocess.run(  # noqa: S603 - the interpreter that the caller names
                command, input=document, capture_output=True, timeout=_TIMEOUT_S, env=environment, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InvalidInput(_OPTION, f"{where} has not decided within {_TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise InvalidInput(_OPTION, f"{where} cannot be run: {error.strerror or error}") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise InvalidInput(_OPTION, f"the version of {where} fails: {last or f'exit code {done.returncode}'}")
    try:
        answer = _ANSWER.decode(done.stdout)
        return OtherDecision(answer.version, base64.b64decode(answer.written, validate=True), answer.problem)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidInput(_OPTION, f"the version of {where} gives no answer that can be read: {error}") from error


@contextmanager
def _interpreter(where: Path) -> Iterator[tuple[str, Path | None]]:
    """The program to run and where its package lies; None when the program has it installed."""
    if where.is_dir():
        own = where / "bin" / "python"
        if own.exists():
            yield str(own), None
            return
        yield sys.executable, _root(where, where)
    elif zipfile.is_zipfile(where):
        with tempfile.TemporaryDirectory(prefix="shiplap-") as folder, zipfile.ZipFile(where) as archive:
            archive.extractall(folder)
            yield sys.executable, _root(Path(folder), where)
    elif where.is_file() and os.access(where, os.X_OK):
        yield str(where), None
    else:
        no_such = "there is no such file or folder"
        other = "is no virtual environment, interpreter, library layer or source tree"
        raise InvalidInput(_OPTION, f"{where}: {other if where.exists() else no_such}")


def _root(folder: Path, named: Path) -> Path:
    for place in _ROOTS:
        if (folder / place / "shiplap" / "__init__.py").is_file():
            return (folder / place).resolve()
    raise InvalidInput(_OPTION, f"{named} holds no package shiplap")
