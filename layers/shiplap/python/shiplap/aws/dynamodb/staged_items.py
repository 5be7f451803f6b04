"""Items that are found by their stage and remembered by their version: unchanged items are not read again.

A cluster of thousands of nodes has as many claims of several kilobytes, and every decision needs them. The index on
stages lists their keys and versions consistently. Each conditional write makes a new version, so an item of the same
key and version is unchanged. A warm function reads only changed items; a cold one reads all of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from shiplap.aws.dynamodb.items import Item, get_all, query
from shiplap.aws.dynamodb.tables import STAGE_INDEX
from shiplap.aws.retries import Sleep

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Record = TypeVar("Record")

_Key = tuple[str, str]


class StagedItems(Generic[Record]):
    """Reads records of one kind from table `state`; `decode` makes one of its item."""

    def __init__(self, client: DynamoDBClient, table: str, decode: Callable[[Item], Record], sleep: Sleep) -> None:
        self._client, self._table, self._decode, self._sleep = client, table, decode, sleep
        self._known: dict[str, dict[_Key, tuple[str, Record]]] = {}
        self._lock = Lock()

    def read(self, partitions: Iterable[str], stage: str) -> list[Record]:
        """The records of these partitions whose stage begins with `stage`; all that have a stage if that is empty.

        Each is as it was at one moment since the call began; one that has left the stage meanwhile is left out.

        Raises:
            StoreThrottled, StoreError.
        """
        found: list[Record] = []
        changed: list[_Key] = []
        for partition in partitions:
            begins_with = (STAGE_INDEX.sort_key, stage) if stage else None
            entries = query(self._client, self._table, ("cluster", partition), begins_with, index=STAGE_INDEX.name)
            versions = {(partition, entry["item"]["S"]): entry["version"]["N"] for entry in entries}
            with self._lock:
                known = self._known.get(partition, {})
                same = {key: known[key] for key, version in versions.items() if known.get(key, ("",))[0] == version}
                # A gone item must not pass for a new one of its name; a query for some stages does not show others.
                self._known[partition] = known if stage else same
            found += (record for _, record in same.values())
            changed += versions.keys() - same.keys()
        return found + self._get(sorted(changed), stage)

    def _get(self, keys: list[_Key], stage: str) -> list[Record]:
        wanted = [{"cluster": {"S": partition}, "item": {"S": item}} for partition, item in keys]
        found = []
        for item in get_all(self._client, self._table, wanted, self._sleep):
            record = self._decode(item)
            at = item.get(STAGE_INDEX.sort_key)
            if at is None or not at["S"].startswith(stage):
                continue
            found.append(record)
            key = (item["cluster"]["S"], item["item"]["S"])
            with self._lock:
                self._known[key[0]][key] = (item["version"]["N"], record)
        return found
