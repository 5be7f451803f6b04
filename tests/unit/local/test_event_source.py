"""The event source mapping of load tests: windows, full batches, failures, as Lambda has them."""

from __future__ import annotations

import io
import json
from collections import deque
from typing import Any

import pytest

from shiplap.local.event_source import LARGEST_PAYLOAD, EventSource, Mapped

MAPPED = Mapped("https://sqs/q", "arn:aws:sqs:r:1:q", "f:live", batch_size=25, window_s=1.0, most_at_once=2)


class Queue:
    """SQS of one queue; each request takes a tenth of a second of the clock."""

    def __init__(self, bodies: list[str]) -> None:
        self.now = 0.0
        self.waiting = deque(
            {"MessageId": f"m{number}", "ReceiptHandle": f"r{number}", "Body": body}
            for number, body in enumerate(bodies)
        )
        self.deleted: list[str] = []

    def receive_message(self, *, MaxNumberOfMessages: int, **_: Any) -> dict[str, Any]:  # noqa: N803 - SQS's name
        self.now += 0.1
        taken = [self.waiting.popleft() for _ in range(min(MaxNumberOfMessages, len(self.waiting)))]
        return {"Messages": taken} if taken else {}

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> None:  # noqa: N803
        assert QueueUrl == MAPPED.queue_url
        assert len(Entries) <= 10
        self.deleted += [entry["ReceiptHandle"] for entry in Entries]


class Function:
    """Lambda; `answer` is what every invocation returns."""

    def __init__(self, answer: dict[str, Any], error: str = "") -> None:
        self.payloads: list[Any] = []
        self._answer = answer
        self._error = error

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - Lambda's names
        assert FunctionName == "f:live"
        self.payloads.append(json.loads(Payload))
        answer: dict[str, Any] = {"Payload": io.BytesIO(json.dumps(self._answer).encode())}
        return answer | ({"FunctionError": self._error} if self._error else {})


def source(queue: Queue, function: Function | None = None) -> EventSource:
    return EventSource(queue, function or Function({"batchItemFailures": []}), MAPPED, clock=lambda: queue.now)


def test_a_batch_is_full_at_its_size() -> None:
    queue = Queue(["{}"] * 60)
    assert [len(source(queue).gather()) for _ in range(3)] == [25, 25, 10]


def test_a_window_ends_though_the_batch_is_not_full() -> None:
    queue = Queue(["{}"] * 3)
    assert len(source(queue).gather()) == 3
    assert 1.0 <= queue.now < 1.4


def test_nothing_is_no_batch() -> None:
    assert source(Queue([])).gather() == []


def test_a_batch_ends_before_lambda_would_refuse_it() -> None:
    queue = Queue(["x" * 200_000] * 40)
    batch = EventSource(queue, Function({}), MAPPED, clock=lambda: 0.0).gather()
    assert sum(len(message["Body"]) for message in batch) < LARGEST_PAYLOAD


def test_what_failed_is_not_deleted_and_all_is_counted() -> None:
    queue = Queue(["{}"] * 12)
    function = Function({"batchItemFailures": [{"itemIdentifier": "m3"}]})
    own = source(queue, function)
    own.hand_over(own.gather())
    assert queue.deleted == [f"r{number}" for number in range(12) if number != 3]
    assert own.invocations == [12]
    assert set(own.received.values()) == {1}
    record = function.payloads[0]["Records"][0]
    assert (record["messageId"], record["body"], record["eventSourceARN"]) == ("m0", "{}", MAPPED.queue_arn)


def test_of_an_invocation_that_broke_nothing_is_deleted() -> None:
    queue = Queue(["{}"])
    own = source(queue, Function({"errorMessage": "no"}, error="Unhandled"))
    own.hand_over(own.gather())
    assert queue.deleted == []


def test_what_ends_a_poller_is_kept() -> None:
    class Broken(Queue):
        def receive_message(self, **_: Any) -> dict[str, Any]:
            raise ConnectionError("gone")

    own = source(Broken([]))
    own._poll()
    with pytest.raises(ConnectionError, match="gone"):
        raise own.failure or AssertionError
