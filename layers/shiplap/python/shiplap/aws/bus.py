"""The event bus: EventBridge takes ten events and 256 KB at a time and may refuse some of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.failures import Sleep, attempts, store_errors
from shiplap.errors import StoreError
from shiplap.ports import BusEvent

if TYPE_CHECKING:
    from types_boto3_events import EventBridgeClient
    from types_boto3_events.type_defs import PutEventsRequestEntryTypeDef

_ENTRIES = 10
_BYTES = 256 * 1024
_TRIES = 5


class EventBridgeBus:
    """An EventBus on EventBridge. Refused events are sent again by themselves; order is not kept."""

    def __init__(self, client: EventBridgeClient, bus: str, *, sleep: Sleep = time.sleep) -> None:
        self._client = client
        self._bus = bus
        self._sleep = sleep

    def publish(self, events: Sequence[BusEvent]) -> None:
        for group in list(_groups([self._entry(event) for event in events])):  # checked before anything is sent
            self._put(group)

    def _put(self, entries: Sequence[PutEventsRequestEntryTypeDef]) -> None:
        refusal = ""
        for _ in attempts(_TRIES, sleep=self._sleep):
            with store_errors(f"publish on bus {self._bus}"):
                answers = self._client.put_events(Entries=entries)["Entries"]
            refused = [pair for pair in zip(entries, answers, strict=True) if "ErrorCode" in pair[1]]
            if not refused:
                return
            entries = [entry for entry, _ in refused]
            refusal = f"{refused[0][1].get('ErrorCode')}: {refused[0][1].get('ErrorMessage', '')}"
        raise StoreError(f"bus {self._bus} did not accept {len(entries)} event(s): {refusal}")

    def _entry(self, event: BusEvent) -> PutEventsRequestEntryTypeDef:
        return {
            "EventBusName": self._bus,
            "Source": event.source,
            "DetailType": event.detail_type,
            "Detail": msgspec.json.encode(event.detail).decode(),
        }


def _groups(entries: Sequence[PutEventsRequestEntryTypeDef]) -> Iterator[list[PutEventsRequestEntryTypeDef]]:
    """Runs of entries that EventBridge takes in one call, by count and by size. Raises StoreError on one too large."""
    group: list[PutEventsRequestEntryTypeDef] = []
    size = 0
    for entry in entries:
        length = _length(entry)
        if length > _BYTES:
            raise StoreError(f"an event {entry.get('DetailType')} of {length} bytes exceeds the {_BYTES} a bus takes")
        if len(group) == _ENTRIES or size + length > _BYTES:
            yield group
            group, size = [], 0
        group.append(entry)
        size += length
    if group:
        yield group


def _length(entry: PutEventsRequestEntryTypeDef) -> int:
    """The size EventBridge counts: source, detail type and detail in UTF-8."""
    return sum(len(part.encode()) for part in (entry["Source"], entry["DetailType"], entry["Detail"]))
