"""Inspect and redrive dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.failures import code_of, store_errors
from shiplap.aws.session import client
from shiplap.aws.sqs import REASON

_BATCH = 10
_MOST_REQUESTS = 5
_HELD_S = 60
_NOT_OURS = ("AWS.SimpleQueueService.MessageNotInflight", "ReceiptHandleIsInvalid")
"""An expired handle is an InvalidParameterValue instead, whose text says so."""
GIVEN_UP = "its function failed on it until the queue gave up; that function's log says why"


class DeadLetter(msgspec.Struct, frozen=True):
    """A message. `malformed` was refused by a function and would be again; `reason` says why it is here."""

    id: str
    receipt: str
    body: str
    reason: str
    malformed: bool
    attributes: dict[str, Any]


def depth(queue: str) -> tuple[int, int]:
    """Messages that wait (later ones included), and those that somebody holds. Raises StoreError."""
    names: list[Any] = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
    ]
    with store_errors(f"look at {queue}"):
        answer: Any = client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)
    waiting, later, held = (int(answer.get("Attributes", {}).get(name, 0)) for name in names)
    return waiting + later, held


def peek(queue: str) -> list[DeadLetter]:
    """Some of the messages, which are given back at once. Raises StoreError."""
    letters = list(_received(queue, _MOST_REQUESTS))
    for dead_letter in letters:
        _give_back(queue, dead_letter)
    return letters


def redrive(dead: str, queue: str) -> tuple[int, int]:
    """Put dead letters back into their queue; how many were, and how many malformed ones stay.

    Each is sent before it is deleted: dying in between doubles a hint, which is harmless. Raises StoreError.
    """
    moved = stayed = 0
    sqs: Any = client("sqs")
    held: list[DeadLetter] = []
    seen_ids: set[str] = set()
    for dead_letter in _received(dead, None):
        if dead_letter.id in seen_ids:  # held for too long: it was given to us again
            break
        seen_ids.add(dead_letter.id)
        if dead_letter.malformed:
            stayed += 1
            held.append(dead_letter)
            continue
        with store_errors(f"put a message back into {queue}"):
            sqs.send_message(QueueUrl=queue, MessageBody=dead_letter.body, MessageAttributes=dead_letter.attributes)
            with _unless_taken():
                sqs.delete_message(QueueUrl=dead, ReceiptHandle=dead_letter.receipt)
        moved += 1
    for dead_letter in held:
        _give_back(dead, dead_letter)
    return moved, stayed


def _give_back(queue: str, dead_letter: DeadLetter) -> None:
    """Let others receive the message at once. Raises StoreError."""
    with store_errors(f"give back a message of {queue}"), _unless_taken():
        client("sqs").change_message_visibility(QueueUrl=queue, ReceiptHandle=dead_letter.receipt, VisibilityTimeout=0)


@contextmanager
def _unless_taken() -> Iterator[None]:
    """Pass over a message that is not ours any more: it was held for too long and is visible, or somebody has it."""
    try:
        yield
    except ClientError as error:
        is_of_receipt = code_of(error) == "InvalidParameterValue" and "ReceiptHandle" in str(error)
        if not is_of_receipt and code_of(error) not in _NOT_OURS:
            raise


def _received(queue: str, looks: int | None) -> Iterator[DeadLetter]:
    """Messages until none comes, or for so many requests."""
    number = 0
    while looks is None or number < looks:
        number += 1
        with store_errors(f"receive from {queue}"):
            answer: Any = client("sqs").receive_message(
                QueueUrl=queue,
                MaxNumberOfMessages=_BATCH,
                VisibilityTimeout=_HELD_S,
                WaitTimeSeconds=0,
                MessageAttributeNames=["All"],
            )
        messages = answer.get("Messages", ())
        if not messages:
            return
        for message in messages:
            yield _dead_letter(message)


def _dead_letter(message: dict[str, Any]) -> DeadLetter:
    attributes = message.get("MessageAttributes", {})
    said = attributes.get(REASON, {}).get("StringValue", "")
    return DeadLetter(
        id=message["MessageId"],
        receipt=message["ReceiptHandle"],
        body=message["Body"],
        reason=said or attributes.get("ERROR_MESSAGE", {}).get("StringValue", "") or GIVEN_UP,
        malformed=bool(said),
        attributes=attributes,
    )
