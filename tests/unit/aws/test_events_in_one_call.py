"""Tests the number and the total size of the events that one call gives to EventBridge."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.aws.bus import EventBridgeBus
from shiplap.errors import StoreError
from shiplap.ports import BusEvent

MOST_BYTES = 256 * 1024
AROUND = len("shiplap") + len("Kind") + len('{"text":""}')


class _EventBridge:
    """Takes all events; `calls` are how many came with each."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.entries: list[dict[str, Any]] = []

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3 names it
        self.calls.append(len(Entries))
        self.entries += Entries
        return {"Entries": [{"EventId": "1"} for _ in Entries]}


def event(size: int, *, source: str = "shiplap", detail_type: str = "Kind", letter: str = "x") -> BusEvent:
    """An event of so many bytes as EventBridge counts them."""
    around = AROUND - len("shiplap") - len("Kind") + len(source) + len(detail_type)
    return BusEvent(detail_type, {"text": letter * ((size - around) // len(letter.encode()))}, source)


def published(*events: BusEvent) -> list[int]:
    client: Any = _EventBridge()
    EventBridgeBus(client, "bus").publish(events)
    return list(client.calls)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([100] * 10, [10]),
        ([100] * 11, [10, 1]),
        ([MOST_BYTES], [1]),
        ([MOST_BYTES // 2] * 2, [2]),
        ([MOST_BYTES // 2, MOST_BYTES // 2, 100], [2, 1]),
        ([MOST_BYTES // 2, MOST_BYTES // 2 + 1], [1, 1]),
        ([MOST_BYTES, MOST_BYTES // 2, MOST_BYTES // 2], [1, 2]),
        ([100, MOST_BYTES - 99, 100], [1, 1, 1]),
        ([], []),
    ],
)
def test_a_call_takes_ten_events_and_so_many_bytes(sizes: list[int], calls: list[int]) -> None:
    assert published(*map(event, sizes)) == calls


@pytest.mark.parametrize(
    "large",
    [
        event(MOST_BYTES + 1),
        event(MOST_BYTES + 1, source="s" * 50),
        event(MOST_BYTES + 1, detail_type="T" * 50),
        event(MOST_BYTES + 2, letter="é"),
    ],
    ids=["detail", "source", "detail type", "letters of two bytes"],
)
def test_source_type_and_detail_count_and_what_is_too_large_is_refused(large: BusEvent) -> None:
    with pytest.raises(StoreError, match="exceeds"):
        published(large)
