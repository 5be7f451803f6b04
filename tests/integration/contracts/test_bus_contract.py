"""The contracts of EventBus and Timers, held by the in-memory fakes and by the EventBridge and SQS adapters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from shiplap.aws.bus import EventBridgeBus
from shiplap.aws.sqs import SqsTimers
from shiplap.errors import StoreError
from shiplap.ports import BusEvent, EventBus, Timers
from shiplap_lab.fakes.signals import FakeBus, FakeClock, FakeTimers
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, make_client


@dataclass(frozen=True)
class BusWorld:
    bus: EventBus
    delivered: Callable[[], list[tuple[str, str, dict[str, Any]]]]


@pytest.fixture(params=["fake", "eventbridge"])
def world(request: pytest.FixtureRequest) -> Iterator[BusWorld]:
    if request.param == "fake":
        fake = FakeBus()
        yield BusWorld(fake, lambda: [(event.source, event.detail_type, event.detail) for event in fake.events])
        return
    with aws_in_process():
        events, sqs = make_client("events"), make_client("sqs")
        queue = sqs.create_queue(QueueName="all")["QueueUrl"]
        events.create_event_bus(Name="shiplap")
        pattern = json.dumps({"account": ["123456789012"]})
        events.put_rule(Name="all", EventBusName="shiplap", EventPattern=pattern)
        target = {"Id": "queue", "Arn": f"arn:aws:sqs:{REGION}:123456789012:all"}
        events.put_targets(Rule="all", EventBusName="shiplap", Targets=[target])

        def delivered() -> list[tuple[str, str, dict[str, Any]]]:
            found = []
            while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
                for message in messages:
                    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
                    body = json.loads(message["Body"])
                    found.append((body["source"], body["detail-type"], body["detail"]))
            return found

        yield BusWorld(EventBridgeBus(events, "shiplap"), delivered)


def event(number: int, padding: str = "") -> BusEvent:
    detail = {"cluster": "blue", "id": f"id-{number:03}", "time": "2026-01-01T00:00:00Z", "padding": padding}
    return BusEvent("NodeClaimLaunched", detail, "shiplap.schedule")


def by_id(delivered: list[tuple[str, str, dict[str, Any]]]) -> list[tuple[str, str, dict[str, Any]]]:
    return sorted(delivered, key=lambda item: item[2]["id"])


def expected(events: list[BusEvent]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(each.source, each.detail_type, each.detail) for each in events]


def test_what_is_published_arrives(world: BusWorld) -> None:
    events = [event(1), event(2, "Grüße")]
    world.bus.publish(events)
    assert by_id(world.delivered()) == expected(events)


def test_publishing_nothing_is_nothing(world: BusWorld) -> None:
    world.bus.publish([])
    assert world.delivered() == []


def test_many_events_arrive_once_each(world: BusWorld) -> None:
    events = [event(number) for number in range(25)]
    world.bus.publish(events)
    assert by_id(world.delivered()) == expected(events)


@dataclass(frozen=True)
class TimerWorld:
    timers: Timers
    messages: Callable[[], list[tuple[str, str, str, int]]]


class DelayRecorder:
    """An SQS client that notes the delay of each message: moto would make us wait for it."""

    def __init__(self, client: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self._client = client

    def send_message(self, **request: Any) -> Any:
        answer = self._client.send_message(**request)
        self.requests.append(request)
        return answer


@pytest.fixture(params=["fake", "sqs"])
def timer_world(request: pytest.FixtureRequest) -> Iterator[TimerWorld]:
    if request.param == "fake":
        fake = FakeTimers()
        yield TimerWorld(fake, lambda: [(each.cluster, each.claim, each.step, each.delay_s) for each in fake.reminders])
        return
    with aws_in_process():
        sqs = make_client("sqs")
        recorder = DelayRecorder(sqs)
        url = sqs.create_queue(QueueName="lifecycle")["QueueUrl"]

        def messages() -> list[tuple[str, str, str, int]]:
            bodies = [(json.loads(each["MessageBody"]), each["DelaySeconds"]) for each in recorder.requests]
            return [(body["cluster"], body["claim"], body["step"], delay) for body, delay in bodies]

        yield TimerWorld(SqsTimers(recorder, url), messages)


def test_a_timer_names_cluster_claim_and_step(timer_world: TimerWorld) -> None:
    timer_world.timers.remind("blue", "claim-1", "register", 30)
    assert timer_world.messages() == [("blue", "claim-1", "register", 30)]


@pytest.mark.parametrize(("wanted", "set_to"), [(-5, 0), (0, 0), (900, 900), (901, 900), (86_400, 900)])
def test_delays_stay_within_what_sqs_allows(timer_world: TimerWorld, wanted: int, set_to: int) -> None:
    timer_world.timers.remind("blue", "claim-1", "register", wanted)
    assert timer_world.messages()[0][3] == set_to


def test_a_queue_that_does_not_exist_is_a_store_error() -> None:
    with aws_in_process():
        timers = SqsTimers(make_client("sqs"), f"https://sqs.{REGION}.amazonaws.com/123456789012/none")
        with pytest.raises(StoreError, match="set a timer"):
            timers.remind("blue", "claim-1", "register", 1)


def test_the_fakes_reminders_fall_due_in_order() -> None:
    clock = FakeClock(1000.0)
    timers = FakeTimers(clock)
    timers.remind("blue", "late", "register", 60)
    timers.remind("blue", "early", "register", 10)
    assert timers.take_due(1009.0) == []
    assert [each.claim for each in timers.take_due(clock.advance(60))] == ["early", "late"]
    assert timers.reminders == []
