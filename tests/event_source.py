"""Lambda's event source mappings of SQS queues, as AWS runs them: for tests that the emulator's own would mislead.

MiniStack delivers ten messages at most and waits for no window, so that a burst becomes hundreds of invocations. Here
each of `most_at_once` pollers collects until its window is over or its batch is full, by count or by Lambda's 6 MB,
invokes, and deletes what did not fail; the rest comes again when it is visible.

Chains of invocations are counted as by Lambda's recursive loop detection (`lineage`): an invocation too many is not
made, and its messages go to the queue's dead letters, unless the function allows recursion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread, local
from typing import Any

import msgspec

from shiplap_lab.emulated_aws import lineage

LARGEST_PAYLOAD = 6 * 2**20
"""Bytes that Lambda takes in one invocation."""

_AT_ONCE = 10
"""Messages that SQS hands out or deletes in one request."""

_LONG_POLL_S = 1.0
_SHORT_POLL_S = 0.05
"""Between two looks within a window, in seconds: SQS counts its own waiting in whole seconds."""

Message = Mapping[str, Any]
"""As SQS's ReceiveMessage returns it."""


class EventSourceMapping(msgspec.Struct, frozen=True):
    """One mapping as the stack declares it; `window_s` in seconds; `recursive` when the function may invoke itself."""

    queue_url: str
    queue_arn: str
    function: str
    batch_size: int
    window_s: float
    most_at_once: int
    recursive: bool = False


class AnsweredInvocation(msgspec.Struct, frozen=True):
    """One invocation: the ids of its messages, and when, in epoch seconds, it was begun and answered."""

    messages: tuple[str, ...]
    invoked_at: float
    answered_at: float


def take_over_mapping(lambda_: Any, queue_url: str, function: str) -> EventSourceMapping:
    """Switch the emulator's own polling of a queue off; what the template says of it. `function` with its alias."""
    (mapping,) = [
        item
        for item in lambda_.list_event_source_mappings()["EventSourceMappings"]
        if item["EventSourceArn"].endswith(":" + queue_url.rpartition("/")[2])
    ]
    lambda_.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    loop = lambda_.get_function_recursion_config(FunctionName=function.partition(":")[0])["RecursiveLoop"]
    return EventSourceMapping(
        queue_url=queue_url,
        queue_arn=mapping["EventSourceArn"],
        function=function,
        batch_size=mapping["BatchSize"],
        window_s=float(mapping.get("MaximumBatchingWindowInSeconds") or 0),
        most_at_once=mapping["ScalingConfig"]["MaximumConcurrency"],
        recursive=loop == "Allow",
    )


class EventSourcePoller:
    """Polls a queue and invokes a function until it is stopped.

    Attributes:
        invocations: how many messages each invocation had.
        received: how often each message, by its id, was handed to the function.
        bodies: what each message said.
        handed: the invocations that were answered, in the order of their answers.
        dropped: what messages of invocations said that ended a chain (Lambda's metric RecursiveInvocationsDropped).
        failure: what ended a poller, None while all is well.
    """

    def __init__(
        self,
        sqs: Any,
        lambda_: Any,
        mapped: EventSourceMapping,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.invocations: list[int] = []
        self.received: dict[str, int] = {}
        self.bodies: dict[str, str] = {}
        self.answered: list[AnsweredInvocation] = []
        self.dropped: list[str] = []
        self.failure: Exception | None = None
        self._sqs = sqs
        self._lambda = lambda_
        self._mapped = mapped
        self._clock = clock
        self._pause = pause
        self._stop = Event()
        self._lock = Lock()
        self._invocation = local()
        lambda_.meta.events.register("before-call.lambda.Invoke", self._trace)
        self._pollers = [
            Thread(target=self._poll, name=f"poller-{number}", daemon=True) for number in range(mapped.most_at_once)
        ]

    def __enter__(self) -> EventSourcePoller:
        for poller in self._pollers:
            poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for poller in self._pollers:
            poller.join()

    def stop(self) -> None:
        """Ask nothing more; who leaves the context waits for what is being asked."""
        self._stop.set()

    def gather(self) -> list[Message]:
        """One batch: empty when nothing came within a long poll."""
        batch = self._receive(_LONG_POLL_S, _AT_ONCE)
        ends_at = self._clock() + self._mapped.window_s
        size = _size(batch)
        while batch and len(batch) < self._mapped.batch_size and size < LARGEST_PAYLOAD * 9 // 10:
            left_s = ends_at - self._clock()
            if left_s <= 0:
                break
            more = self._receive(0, min(_AT_ONCE, self._mapped.batch_size - len(batch)))
            if not more:
                self._pause(min(_SHORT_POLL_S, left_s))
            batch += more
            size += _size(more)
        return batch

    def invoke(self, batch: Sequence[Message]) -> None:
        """Invoke the function on a batch, and delete the messages it did not report as failed."""
        headers = [message.get("Attributes", {}).get("AWSTraceHeader", "") for message in batch]
        trace = lineage.longest(headers, self._mapped.function)
        if not self._mapped.recursive and lineage.turns(trace, self._mapped.function) >= lineage.MOST_TURNS:
            self._drop(batch)
            return
        self._invocation.trace = lineage.invoked(trace, self._mapped.function)
        with self._lock:
            self.invocations.append(len(batch))
            for message in batch:
                self.received[message["MessageId"]] = self.received.get(message["MessageId"], 0) + 1
                self.bodies[message["MessageId"]] = message["Body"]
        records = [self._record(message) for message in batch]
        invoked_at = self._clock()
        answer = self._lambda.invoke(
            FunctionName=self._mapped.function, Payload=msgspec.json.encode({"Records": records})
        )
        said = answer["Payload"].read()
        ids = tuple(message["MessageId"] for message in batch)
        with self._lock:
            self.answered.append(AnsweredInvocation(ids, invoked_at, self._clock()))
        if answer.get("FunctionError"):
            return  # all of it comes again when it is visible
        failed = {item["itemIdentifier"] for item in msgspec.json.decode(said)["batchItemFailures"]}
        self._delete([message for message in batch if message["MessageId"] not in failed])

    def _drop(self, batch: Sequence[Message]) -> None:
        attributes = self._sqs.get_queue_attributes(QueueUrl=self._mapped.queue_url, AttributeNames=["RedrivePolicy"])
        target = msgspec.json.decode(attributes["Attributes"]["RedrivePolicy"])["deadLetterTargetArn"]
        url = self._sqs.get_queue_url(QueueName=target.rpartition(":")[2])["QueueUrl"]
        for message in batch:
            self._sqs.send_message(QueueUrl=url, MessageBody=message["Body"])
        self._delete(batch)
        with self._lock:
            self.dropped += [message["Body"] for message in batch]

    def _delete(self, batch: Sequence[Message]) -> None:
        for start in range(0, len(batch), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(batch[start : start + _AT_ONCE])
            ]
            self._sqs.delete_message_batch(QueueUrl=self._mapped.queue_url, Entries=entries)

    def _trace(self, params: dict[str, Any], **_: Any) -> None:
        """Of botocore, before an invocation: the operation has no parameter for its trace.

        Others may invoke functions by the same client: theirs have no trace.
        """
        trace = getattr(self._invocation, "trace", None)
        if trace is not None:
            params["headers"][lineage.HEADER] = trace

    def _receive(self, wait_s: float, most: int) -> list[Message]:
        answer = self._sqs.receive_message(
            QueueUrl=self._mapped.queue_url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=int(wait_s),
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))

    def _record(self, message: Message) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": self._mapped.queue_arn,
        }

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                batch = self.gather()
                if batch:
                    self.invoke(batch)
            except Exception as error:  # noqa: BLE001 - kept for whoever looks: a thread has no caller
                self.failure = error
                return


def _size(batch: Sequence[Message]) -> int:
    return sum(len(message["Body"]) + 500 for message in batch)
