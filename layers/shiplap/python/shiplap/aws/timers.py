"""Timers: a message to the lifecycle queue that SQS holds back for up to fifteen minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.failures import store_errors
from shiplap.ports import LONGEST_DELAY_S

if TYPE_CHECKING:
    from types_boto3_sqs import SQSClient


class TimerMessage(msgspec.Struct, frozen=True):
    """What arrives in the lifecycle queue; a hint to look at a claim, like every message."""

    cluster: str
    claim: str
    step: str


class SqsTimers:
    """Timers on SQS."""

    def __init__(self, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        body = msgspec.json.encode(TimerMessage(cluster, claim, step)).decode()
        with store_errors(f"set a timer in {self._queue_url}"):
            self._client.send_message(
                QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=min(max(delay_s, 0), LONGEST_DELAY_S)
            )
