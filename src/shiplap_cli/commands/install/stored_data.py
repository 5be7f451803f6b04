"""The tables and the bucket that an install leaves behind: into a folder first, then away.

The folder holds each table as lines of DynamoDB's JSON, learned capacity once more as `shiplap capacity import` reads
it, the newest version of every object of the bucket, and at last `complete.json`, without which nothing is deleted.

An export holds the data as they were at one moment. So each run makes a new one, until a deletion has begun: from then
on the tables may be gone, and the export that the bucket's record of the removal names is the only whole one.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import scan
from shiplap.aws.failures import code_of, store_errors
from shiplap.errors import InvalidInput, StoreError
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.ports import CapacityStore
from shiplap_cli.commands.install.removal_record import KEY, RemovalRecord, save_record
from shiplap_cli.inputs.learned.learned_file import dump_learned

COMPLETE = "complete.json"
_BATCH = 1000


class ExportedData(msgspec.Struct, frozen=True):
    """The contents of a folder: whose data, how many items and objects of each, and the time of export (epoch)."""

    install: str
    bucket: str
    items: dict[str, int]
    objects: int
    exported_at: float = 0.0


def export_data(
    record: RemovalRecord,
    folder: Path,
    dynamodb: Any,
    s3: Any,
    capacity: CapacityStore,
    now: float,
    say: Callable[[str], None] = lambda _: None,
) -> ExportedData:
    """Write everything into a folder. An earlier export there is kept, in a folder beside it that ends in its time.

    Once a deletion has begun, nothing is written: the folder must hold the export that was made before.

    Raises:
        StoreError: a table or the bucket cannot be read.
        InvalidInput: the folder holds another install's data, or not the export before the deletion, or cannot be
            written.
    """
    known = _exported(folder)
    if known is not None and known.bucket != record.bucket:
        raise InvalidInput(str(folder), f"holds the data of bucket {known.bucket}: name another --export folder")
    if record.exported_at:
        return _required(known, record, folder)
    folder = folder.resolve()  # a relative name would follow the folder that is renamed
    try:
        if known is not None:
            folder.rename(folder.with_name(f"{folder.name}-{rfc3339(known.exported_at).replace(':', '')}"))
        folder.mkdir(parents=True, exist_ok=True)
        items = {}
        for table in (record.state_table, record.capacity_table):
            say(f"exporting table {table}")
            items[table] = _export_table(dynamodb, table, folder / f"{table}.jsonl.gz")
        (folder / "learned.json").write_bytes(dump_learned(capacity.all()))
        say(f"exporting bucket {record.bucket}")
        objects = _export_bucket(s3, record.bucket, folder / "bucket")
        done = ExportedData(record.install, record.bucket, items, objects, now)
        (folder / COMPLETE).write_bytes(msgspec.json.encode(done))
    except OSError as error:
        raise InvalidInput(error.filename or str(folder), error.strerror or str(error)) from error
    return done


def _required(known: ExportedData | None, record: RemovalRecord, folder: Path) -> ExportedData:
    """The export after which the deletion began. Raises InvalidInput: the folder does not hold it."""
    if known is None or known.exported_at != record.exported_at:
        when = rfc3339(record.exported_at)
        raise InvalidInput(
            str(folder), f"is not the export of {when}, after which the deletion began: --export names it"
        )
    return known


def _exported(folder: Path) -> ExportedData | None:
    try:
        return msgspec.json.decode((folder / COMPLETE).read_bytes(), type=ExportedData)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(str(folder / COMPLETE), str(error)) from error


def _export_table(client: Any, table: str, file: Path) -> int:
    number = 0
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        for item in scan(client, table):
            lines.write(json.dumps(item, default=_text_of_bytes, sort_keys=True) + "\n")
            number += 1
    return number


def _text_of_bytes(value: object) -> str:
    """As the AWS command line writes binary attributes. Raises TypeError."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"no attribute of DynamoDB: {type(value).__name__}")


def _export_bucket(client: Any, bucket: str, folder: Path) -> int:
    number = 0
    for key in _keys(client, bucket):
        file = folder / key
        if folder.resolve() not in file.resolve().parents:
            raise InvalidInput(f"bucket {bucket}", f"the object {key!r} is none of Shiplap's")
        file.parent.mkdir(parents=True, exist_ok=True)
        with store_errors(f"read {key} in bucket {bucket}"):
            file.write_bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
        number += 1
    return number


def _keys(client: Any, bucket: str) -> Iterator[str]:
    with store_errors(f"list bucket {bucket}"):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            yield from (str(item["Key"]) for item in page.get("Contents", ()) if not item["Key"].endswith("/"))


def delete_data(record: RemovalRecord, folder: Path, dynamodb: Any, s3: Any, functions: Any) -> None:
    """Delete both tables, the versions of the settings layer, then the bucket with all versions of its objects.

    It may be repeated. `functions` is a client of Lambda.

    The record in the bucket names the export first, so that the next run knows that data are missing, and which export
    has them.

    Raises:
        InvalidInput: the folder holds no complete export of this install.
        StoreError: something is still there.
    """
    known = _exported(folder)
    if known is None or known.bucket != record.bucket:
        raise InvalidInput(str(folder), "holds no complete export of this install: nothing is deleted")
    if not record.exported_at:
        save_record(s3, msgspec.structs.replace(record, exported_at=known.exported_at))
    for table in (record.state_table, record.capacity_table):
        _delete_table(dynamodb, table)
    for arn in record.settings_layers:
        layer, _, number = arn.rpartition(":")
        with store_errors(f"delete layer version {arn}"):
            functions.delete_layer_version(LayerName=layer, VersionNumber=int(number))
    _delete_bucket(s3, record.bucket)


def _delete_table(client: Any, table: str) -> None:
    with store_errors(f"delete table {table}"):
        try:
            described = client.describe_table(TableName=table)["Table"]
            if described.get("DeletionProtectionEnabled"):
                raise StoreError(f"table {table} has deletion protection: turn it off, and run this again")
            if described.get("TableStatus") != "DELETING":
                client.delete_table(TableName=table)
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise


def _delete_bucket(client: Any, bucket: str) -> None:
    """The record of the removal goes last: whatever stops this before the end, the next run finds the rest."""
    with store_errors(f"delete bucket {bucket}"):
        try:
            for last in (False, True):
                for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
                    found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
                    _delete_versions(client, bucket, [item for item in found if last or item["Key"] != KEY])
            client.delete_bucket(Bucket=bucket)
        except ClientError as error:
            if code_of(error) != "NoSuchBucket":
                raise


def _delete_versions(client: Any, bucket: str, versions: Sequence[Mapping[str, Any]]) -> None:
    named = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
    for start in range(0, len(named), _BATCH):
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": named[start : start + _BATCH]})
        for refused in answer.get("Errors", ()):
            raise StoreError(f"could not delete {refused['Key']} in bucket {bucket}: {refused.get('Message', '')}")
