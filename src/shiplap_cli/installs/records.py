"""Recorded decisions, wherever they are: a file, an object of S3, or an id in an install's flight recorder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from shiplap.errors import InvalidInput, StoreError
from shiplap.records.disruption_record import Recorded, read
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import DeployedInstall

_SCHEME = "s3://"
_TAIL = re.compile(r"\d{6}-\d+-(disrupt-)?[0-9a-f]{12}")
"""The end of an id, which is what a narrow terminal shows and a record's file is called."""


def open_record(name: str, install: Callable[[], DeployedInstall]) -> tuple[bytes, Recorded]:
    """The record of that name, whole, as a document and as it was read.

    `install` is asked for an id, and for the chunks that a file names.

    Raises:
        InvalidInput: there is no such record, or it is none.
        AwsError: the install cannot be looked up.
    """
    document = _read_document(name, install)
    found = read(document, name)
    if not found.chunked:
        return document, found
    try:
        document = install().records().whole(document)
    except StoreError as error:
        raise InvalidInput(name, with_hint(error)) from error
    return document, read(document, name)


def _read_document(name: str, install: Callable[[], DeployedInstall]) -> bytes:
    if name.startswith(_SCHEME):
        bucket, _, key = name.removeprefix(_SCHEME).partition("/")
        if not bucket or not key:
            raise InvalidInput(name, "names no object; expected s3://BUCKET/KEY")
        return _fetch(bucket, key.removeprefix("records/"), name)
    path = Path(name)
    if path.is_file():
        try:
            return path.read_bytes()
        except OSError as error:
            raise InvalidInput(name, f"cannot be read: {error.strerror or error}") from error
    if _TAIL.fullmatch(name):
        bucket = install().bucket
        return _fetch(bucket, _full_id(name, bucket), name)
    if path.is_dir() or name.count("/") < 2 or path.is_absolute():
        reason = "is neither a file nor an id of a record (CLUSTER/DATE/TIME-EPOCH-DIGEST) nor s3://BUCKET/KEY"
        raise InvalidInput(name, reason)
    return _fetch(install().bucket, name.removeprefix("records/"), name)


def _full_id(tail: str, bucket: str) -> str:
    """The id that ends so."""
    try:
        ids = DeployedInstall(bucket).records().named(tail)
    except StoreError as error:
        raise InvalidInput(tail, with_hint(error)) from error
    if len(ids) != 1:
        several = f"is the end of {', '.join(ids)}; name one in full"
        raise InvalidInput(tail, several if ids else f"no record in s3://{bucket}/records/ ends so, and no such file")
    return ids[0]


def _fetch(bucket: str, record_id: str, name: str) -> bytes:
    try:
        return DeployedInstall(bucket).records().document(record_id)
    except StoreError as error:
        said = with_hint(error)
        hint = "" if said != str(error) else f"; `aws s3 ls s3://{bucket}/records/` lists what is kept"
        raise InvalidInput(name, said + hint) from error
