"""Stores the notes on sleep, in table `state`: an item that the functions rewrite, and one that a person writes.

The items have a partition of their own, which the functions read only while a window is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shiplap.aws.dynamodb.items import expiry, number, of_version, put_if, query, text
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import store_errors
from shiplap.aws.policy_adapters import MakePorts, PolicyResources
from shiplap.errors import ConditionFailed, StoreError
from shiplap.policies.sleep.sleep_state import SleepNotes

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

REMEMBERED_S = 90 * 24 * 3600
"""For how long notes are kept after they were last written, in seconds; each sleep writes them anew."""

WAKE_REMEMBERED_S = 9 * 24 * 3600
"""For how long a wake is kept after it has ended, in seconds; no window that was open then is longer than a week."""

_NOTES, _WAKE = "NOTES", "WAKE"
_DECODER = msgspec.json.Decoder(SleepNotes)


def adapters(resources: PolicyResources) -> MakePorts:
    """Return how to make the port to the notes of sleep."""
    return {"sleep": lambda: DynamoSleep(resources.client("dynamodb"), resources.state_table)}


class DynamoSleep:
    """The port SleepStore on DynamoDB."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, cluster: str) -> SleepNotes:
        """Everything, in one request. Raises StoreThrottled, StoreError."""
        items = {item["item"]["S"]: item for item in query(self._client, self._table, ("cluster", _partition(cluster)))}
        notes = SleepNotes()
        if (stored := items.get(_NOTES)) is not None:
            try:
                notes = _DECODER.decode(stored["notes"]["S"])
            except msgspec.DecodeError as error:
                raise StoreError(f"the notes of cluster {cluster} on its sleep cannot be read: {error}") from error
        if (wake := items.get(_WAKE)) is not None:
            notes = replace(notes, woken_at=int(wake["at"]["N"]), awake_until=int(wake["until"]["N"]))
        return notes

    def save(self, cluster: str, notes: SleepNotes, now: float) -> SleepNotes:
        """All but the wake. Raises ConditionFailed, StoreThrottled, StoreError."""
        written = replace(notes, version=notes.version + 1)
        item = {
            "cluster": text(_partition(cluster)),
            "item": text(_NOTES),
            "notes": text(msgspec.json.encode(replace(written, woken_at=0, awake_until=0)).decode()),
            "version": number(written.version),
            EXPIRY: expiry(now + REMEMBERED_S),
        }
        if not put_if(self._client, self._table, item, *of_version(notes.version or None)):
            raise ConditionFailed(f"the notes of cluster {cluster} on its sleep have changed")
        return written

    def wake(self, cluster: str, woken_at: int, awake_until: int) -> None:
        """Written over whatever was there. Raises StoreThrottled, StoreError."""
        with store_errors(f"write table {self._table}"):
            self._client.put_item(
                TableName=self._table,
                Item={
                    "cluster": text(_partition(cluster)),
                    "item": text(_WAKE),
                    "at": number(woken_at),
                    "until": number(awake_until),
                    EXPIRY: expiry(max(woken_at, awake_until) + WAKE_REMEMBERED_S),
                },
            )


def _partition(cluster: str) -> str:
    return f"{cluster}#sleep"
