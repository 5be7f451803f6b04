"""The event source mapping of load tests: windows, full batches, failures, as Lambda has them."""

from __future__ import annotations

import io
import json
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tests.event_source import (
    LARGEST_PAYLOAD,
    EventSourceMapping,
    EventSourcePoller,
    take_over_mapping,
)

MAPPED = EventSourceMapping("https://sqs/q", "arn:aws:sqs:r:1:q", "f:live", batch_size=25, window_s=1.0, most_at_once=2)


class Queue:
    """SQS of one queue; each request takes `takes_s` of the clock."""

    def __init__(self, bodies: list[str]) -> None:
        self.now = 0.0
        self.takes_s = 0.1
        self.asked = 0
        self.waiting = deque(
            {"MessageId": f"m{number}", "ReceiptHandle": f"r{number}", "Body": body}
            for number, body in enumerate(bodies)
        )
        self.deleted: list[str] = []

    def receive_message(self, *, MaxNumberOfMessages: int, **_: Any) -> dict[str, Any]:  # noqa: N803 - SQS's name
        self.now += self.takes_s
        self.asked += 1
        taken = [self.waiting.popleft() for _ in range(min(MaxNumberOfMessages, len(self.waiting)))]
        return {"Messages": taken} if taken else {}

    def rest(self, seconds: float) -> None:
        self.now += seconds

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> None:  # noqa: N803
        assert QueueUrl == MAPPED.queue_url
        assert len(Entries) <= 10
        self.deleted += [entry["ReceiptHandle"] for entry in Entries]


class Function:
    """Lambda; `answer` is what every invocation returns."""

    def __init__(self, answer: dict[str, Any], error: str = "") -> None:
        self.payloads: list[Any] = []
        self.meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))
        self._answer = answer
        self._error = error

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - Lambda's names
        assert FunctionName == "f:live"
        self.payloads.append(json.loads(Payload))
        answer: dict[str, Any] = {"Payload": io.BytesIO(json.dumps(self._answer).encode())}
        return answer | ({"FunctionError": self._error} if self._error else {})


def source(queue: Queue, function: Function | None = None) -> EventSourcePoller:
    return EventSourcePoller(
        queue, function or Function({"batchItemFailures": []}), MAPPED, clock=lambda: queue.now, pause=queue.rest
    )


def test_a_batch_is_full_at_its_size() -> None:
    queue = Queue(["{}"] * 60)
    assert [len(source(queue).gather()) for _ in range(3)] == [25, 25, 10]


def test_a_window_ends_though_the_batch_is_not_full() -> None:
    queue = Queue(["{}"] * 3)
    assert len(source(queue).gather()) == 3
    assert 1.0 <= queue.now < 1.4


def test_a_window_is_slept_through_not_polled_through() -> None:
    queue = Queue(["{}"])
    queue.takes_s = 0.0
    assert len(source(queue).gather()) == 1
    assert queue.asked < 30


def test_nothing_is_no_batch() -> None:
    assert source(Queue([])).gather() == []


def test_a_batch_ends_before_lambda_would_refuse_it() -> None:
    queue = Queue(["x" * 200_000] * 40)
    batch = EventSourcePoller(queue, Function({}), MAPPED, clock=lambda: 0.0).gather()
    assert sum(len(message["Body"]) for message in batch) < LARGEST_PAYLOAD


def test_what_failed_is_not_deleted_and_all_is_counted() -> None:
    queue = Queue(["{}"] * 12)
    function = Function({"batchItemFailures": [{"itemIdentifier": "m3"}]})
    own = source(queue, function)
    own.invoke(own.gather())
    assert queue.deleted == [f"r{number}" for number in range(12) if number != 3]
    assert own.invocations == [12]
    assert set(own.received.values()) == {1}
    (handed,) = own.answered
    assert handed.messages == tuple(f"m{number}" for number in range(12))
    assert handed.invoked_at == handed.answered_at == queue.now
    record = function.payloads[0]["Records"][0]
    assert (record["messageId"], record["body"], record["eventSourceARN"]) == ("m0", "{}", MAPPED.queue_arn)


def test_of_an_invocation_that_broke_nothing_is_deleted() -> None:
    queue = Queue(["{}"])
    own = source(queue, Function({"errorMessage": "no"}, error="Unhandled"))
    own.invoke(own.gather())
    assert queue.deleted == []


class Mappings:
    """Lambda's event source mappings: one of another queue, and ours."""

    def __init__(self) -> None:
        ours = {"UUID": "u", "EventSourceArn": MAPPED.queue_arn, "BatchSize": 25, "MaximumBatchingWindowInSeconds": 1}
        others = {"UUID": "o", "EventSourceArn": "arn:aws:sqs:r:1:other-q"}
        self.listed = [others, ours | {"ScalingConfig": {"MaximumConcurrency": 2}}]
        self.off: list[str] = []
        self.loop = "Terminate"

    def list_event_source_mappings(self) -> dict[str, Any]:
        return {"EventSourceMappings": self.listed}

    def update_event_source_mapping(self, *, UUID: str, Enabled: bool) -> None:  # noqa: N803 - Lambda's names
        assert not Enabled
        self.off.append(UUID)

    def get_function_recursion_config(self, *, FunctionName: str) -> dict[str, str]:  # noqa: N803 - as above
        assert FunctionName == "f"
        return {"RecursiveLoop": self.loop}


def test_the_mapping_of_a_queue_is_taken_over_with_what_the_template_says() -> None:
    mappings = Mappings()
    assert take_over_mapping(mappings, "https://sqs/q", "f:live") == MAPPED
    assert mappings.off == ["u"]
    del mappings.listed[1]["MaximumBatchingWindowInSeconds"]
    mappings.loop = "Allow"
    assert take_over_mapping(mappings, "https://sqs/q", "f:live").window_s == 0
    assert take_over_mapping(mappings, "https://sqs/q", "f:live").recursive


def test_what_ends_a_poller_is_kept() -> None:
    class Broken(Queue):
        def receive_message(self, **_: Any) -> dict[str, Any]:
            raise ConnectionError("gone")

    own = source(Broken([]))
    own._poll()
    with pytest.raises(ConnectionError, match="gone"):
        raise own.failure or AssertionError
