"""The doors by which tests of formats come in. Of the library they name nothing else: who moves a door edits this."""

from __future__ import annotations

import contextlib
import importlib
import io
import tomllib
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from infra.settings import InstallDocument, read
from shiplap.aws.bucket import BucketRecorder
from shiplap.disruption import record as records
from tests.formats.sources import ROOT


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def shiplap(*arguments: str) -> Answer:
    """Run the command `shiplap` as the package declares it, in this process."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["shiplap"]
    module, _, function = declared.partition(":")
    main = getattr(importlib.import_module(module), function)
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch("sys.argv", ["shiplap", *arguments]):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Answer(code, out.getvalue(), err.getvalue())


def install_schema() -> dict[str, Any]:
    """The JSON schema of shiplap.yaml."""
    return msgspec.json.schema(InstallDocument)


def install_of(path: Path) -> Any:
    """What a shiplap.yaml says, read as `cdk synth` reads it."""
    return read(path)


class Puts:
    """A client of S3 that keeps what is put: bodies by key."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803 - as boto3 has them
        self.found[Key] = Body


def recorded_again(document: bytes) -> dict[str, bytes]:
    """A recorded decision, read and recorded once more: what is put into the bucket, by key."""
    record = records.read(document, "golden").record
    client = Puts()
    recorder = BucketRecorder(client, "bucket")  # type: ignore[arg-type]
    if isinstance(record, records.DisruptionRecord):
        recorder.record_disruption(record.snapshot, record.decision)
    else:
        assert record is not None
        recorder.record(record.snapshot, record.plan)
    return client.found
