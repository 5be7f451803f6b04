"""Dead letters on SQS: a malformed message joins those the queue itself gave up on, with the reason as an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplap.aws.failures import store_errors
from shiplap.errors import StoreError

if TYPE_CHECKING:
    from types_boto3_sqs import SQSClient
    from types_boto3_sqs.type_defs import MessageAttributeValueTypeDef

REASON = "reason"
"""Name of the message attribute that holds the reason."""

_LONGEST_REASON = 1000


class SqsDeadLetters:
    """DeadLetters in the dead-letter queue of the queue that feeds the function."""

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
