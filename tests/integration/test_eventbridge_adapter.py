"""Tests the hazards of the EventBridge adapter alone: partial refusals, sizes, a bus that is not there."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.aws.bus import EventBridgeBus
from shiplap.errors import StoreError, StoreThrottled
from shiplap.ports import BusEvent


class Picky:
    """An EventBridge client that refuses what it is told to, for so many calls."""

    def __init__(self, refuse: set[str], times: int) -> None:
        self.calls: list[list[str]] = []
        self._refuse = refuse
        self._times = times

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's own spelling
        self.calls.append([entry["DetailType"] for entry in Entries])
        refuse = self._refuse if len(self.calls) <= self._times else set()
        answers = [
            {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"} if name in refuse else {"EventId": name}
            for name in self.calls[-1]
        ]
        return {"FailedEntryCount": sum("ErrorCode" in answer for answer in answers), "Entries": answers}


def event(name: str, padding: int = 0) -> BusEvent:
    return BusEvent(name, {"cluster": "blue", "id": name, "padding": "x" * padding})


def publish(client: Any, *events: BusEvent) -> None:
    EventBridgeBus(client, "shiplap", sleep=lambda _: None).publish(events)


def test_only_what_was_refused_is_sent_again() -> None:
    client = Picky({"b", "d"}, times=2)
    publish(client, *(event(name) for name in "abcde"))
    assert client.calls == [["a", "b", "c", "d", "e"], ["b", "d"], ["b", "d"]]


def test_what_is_never_accepted_is_an_error_that_says_why() -> None:
    client = Picky({"b"}, times=99)
    with pytest.raises(StoreError, match=r"did not accept 1 event\(s\): ThrottlingException: slow down"):
        publish(client, event("a"), event("b"))
    assert len(client.calls) == 5


def test_a_call_holds_ten_events() -> None:
    client = Picky(set(), 0)
    publish(client, *(event(f"{number:02}") for number in range(23)))
    assert [len(call) for call in client.calls] == [10, 10, 3]


def test_a_call_holds_256_kilobytes() -> None:
    client = Picky(set(), 0)
    publish(client, *(event(name, 100_000) for name in "abcde"))
    assert client.calls == [["a", "b"], ["c", "d"], ["e"]]


def test_an_event_that_is_too_large_is_refused_before_anything_is_sent() -> None:
    client = Picky(set(), 0)
    with pytest.raises(StoreError, match="an event huge of"):
        publish(client, *(event(f"{number:02}") for number in range(12)), event("huge", 300_000))
    assert client.calls == []


def test_a_throttled_call_is_worth_another_try() -> None:
    class Throttled:
        def put_events(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "PutEvents")

    with pytest.raises(StoreThrottled, match="publish on bus shiplap"):
        publish(Throttled(), event("a"))
