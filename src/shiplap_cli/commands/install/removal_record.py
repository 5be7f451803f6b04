"""Keeps what an uninstall needs when the stack and its outputs are gone: an object in the bucket, which stays."""

from __future__ import annotations

from typing import Any

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.failures import code_of, store_errors
from shiplap.errors import InvalidInput

KEY = "uninstall.json"


class RemovedCluster(msgspec.Struct, frozen=True):
    """A cluster of the install, and whether its NodeClaims and Nodes may have finalizers."""

    name: str
    live_manifests: bool = False


class RemovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The install that is being removed, by the names of its resources.

    `exported_at` is when the export was finished after which the deletion of data began, in epoch seconds; 0 before.
    `settings_layers` are ARNs of versions of its settings layer: once the functions are gone, nothing tells them.
    """

    install: str
    region: str
    stack: str
    bucket: str
    state_table: str
    capacity_table: str
    clusters: tuple[RemovedCluster, ...] = ()
    exported_at: float = 0.0
    settings_layers: tuple[str, ...] = ()


def save_record(client: Any, record: RemovalRecord) -> None:
    """Keep it for the next run. Raises StoreError."""
    with store_errors(f"write {KEY} in bucket {record.bucket}"):
        client.put_object(Bucket=record.bucket, Key=KEY, Body=msgspec.json.encode(record))


def read_record(client: Any, bucket: str) -> RemovalRecord | None:
    """Return the record of an earlier run; None if no uninstall has begun, or its data are deleted.

    Raises:
        StoreError: the bucket cannot be read.
        InvalidInput: the object was not written by this command.
    """
    with store_errors(f"read {KEY} in bucket {bucket}"):
        try:
            document = client.get_object(Bucket=bucket, Key=KEY)["Body"].read()
        except ClientError as error:
            if code_of(error) not in ("NoSuchKey", "NoSuchBucket"):
                raise
            return None
    try:
        return msgspec.json.decode(document, type=RemovalRecord)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{KEY} in bucket {bucket}", str(error)) from error


def forget_record(client: Any, bucket: str) -> None:
    """The install stays. Raises StoreError."""
    with store_errors(f"delete {KEY} in bucket {bucket}"):
        client.delete_object(Bucket=bucket, Key=KEY)
