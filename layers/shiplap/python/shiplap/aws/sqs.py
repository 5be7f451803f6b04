"""Messages that functions themselves send to SQS: dead letters and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.failures import store_errors
from shiplap.errors import StoreError
from shiplap.ports import LONGEST_DELAY_S

if TYPE_CHECKING:
    from types_boto3_sqs import SQSClient
    from types_boto3_sqs.type_defs import MessageAttributeValueTypeDef

REASON = "reason"
"""Name of the message attribute that holds the reason."""

_LONGEST_REASON = 1000


class SqsDeadLetters:
    """DeadLetters in the dead-letter queue of the queue that feeds the function.

    A malformed message joins those that the queue itself gave up on, with the reason as an attribute.
    """

    def __init__(self, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, body: str, reason: str) -> None:
        if not self._queue_url:
            raise StoreError("this function has no dead-letter queue; set SHIPLAP_DEAD_LETTER_QUEUE_URL")
        text = reason[:_LONGEST_REASON] or "unknown"
        attribute: MessageAttributeValueTypeDef = {"DataType": "String", "StringValue": text}
        with store_errors(f"send to {self._queue_url}"):
            self._client.send_message(
                QueueUrl=self._queue_url, MessageBody=body or " ", MessageAttributes={REASON: attribute}
            )


class TimerMessage(msgspec.Struct, frozen=True):
    """A message of a timer in the lifecycle queue; a hint to look at a claim, like every message."""

    cluster: str
    claim: str
    step: str


class SqsTimers:
    """Timers: a message to the lifecycle queue that SQS holds back for up to fifteen minutes."""

    def __init__(self, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        body = msgspec.json.encode(TimerMessage(cluster, claim, step)).decode()
        with store_errors(f"set a timer in {self._queue_url}"):
            self._client.send_message(
                QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=min(max(delay_s, 0), LONGEST_DELAY_S)
            )
