"""The contract of DeadLetters, held by the in-memory fake and by the SQS adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from shiplap.aws.sqs import SqsDeadLetters
from shiplap.errors import StoreError
from shiplap.ports import DeadLetters
from shiplap_lab.fakes.signals import FakeDeadLetters
from tests.integration.contracts.in_process_aws import aws_in_process, make_client


@dataclass(frozen=True)
class LetterWorld:
    letters: DeadLetters
    kept: Callable[[], list[tuple[str, str]]]


@pytest.fixture(params=["fake", "sqs"])
def world(request: pytest.FixtureRequest) -> Iterator[LetterWorld]:
    if request.param == "fake":
        fake = FakeDeadLetters()
        yield LetterWorld(fake, lambda: fake.letters)
        return
    with aws_in_process():
        sqs = make_client("sqs")
        queue = sqs.create_queue(QueueName="dead")["QueueUrl"]

        def kept() -> list[tuple[str, str]]:
            received = sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
            )
            return [(m["Body"], m["MessageAttributes"]["reason"]["StringValue"]) for m in received["Messages"]]

        yield LetterWorld(SqsDeadLetters(sqs, queue), kept)


def test_a_letter_is_kept_as_it_came_with_the_reason(world: LetterWorld) -> None:
    world.letters.send('{"cluster": "blüe"', "shiplap-provisioning: input data was truncated")
    assert world.kept() == [('{"cluster": "blüe"', "shiplap-provisioning: input data was truncated")]


def test_without_a_queue_or_with_one_that_is_gone_the_letter_is_refused() -> None:
    with aws_in_process():
        sqs = make_client("sqs")
        with pytest.raises(StoreError, match="SHIPLAP_DEAD_LETTER_QUEUE_URL"):
            SqsDeadLetters(sqs, "").send("x", "y")
        with pytest.raises(StoreError, match="gone"):
            SqsDeadLetters(sqs, "https://sqs.eu-west-1.amazonaws.com/123456789012/gone").send("x", "y")


def test_a_long_reason_and_an_empty_body_still_fit() -> None:
    with aws_in_process():
        sqs = make_client("sqs")
        queue = sqs.create_queue(QueueName="dead")["QueueUrl"]
        SqsDeadLetters(sqs, queue).send("", "r" * 100_000)
        (message,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
        assert len(message["MessageAttributes"]["reason"]["StringValue"]) == 1000
