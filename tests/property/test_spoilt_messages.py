"""Messages gone wrong in any way: each is read, or refused with its queue and a reason; none ends a function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given

from shiplap.errors import InvalidMessage
from shiplap.flows import batch
from shiplap.flows.interrupt.notices import Notice, read_notice
from shiplap.flows.messages import Message, decode, for_lifecycle, for_schedule, rfc3339
from shiplap_lab.fakes.signals import FakeDeadLetters, FakeMeter
from tests.odd_input import damaged, fuzzed, kept, spoilt

TIME = "2026-01-31T12:00:00.250Z"
INSTANCE = "i-0123456789abcdef0"


def envelope(source: str, detail_type: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "detail-type": detail_type,
        "source": source,
        "account": "123456789012",
        "time": TIME,
        "region": "eu-west-1",
        "resources": [f"arn:aws:ec2:eu-west-1:123456789012:instance/{INSTANCE}"],
        "detail": detail,
    }


PODS = [["shop", "web-1", "u1"], ["shop", "web-2", "u2"]]
NODE = {"cluster": "demo", "id": "e1", "time": TIME, "node": "ip-1", "providerID": f"aws:///z/{INSTANCE}"}
OURS: list[dict[str, Any]] = [
    envelope("shiplap.watch", "PodPending", {"cluster": "demo", "id": "e", "time": TIME, "pods": PODS, "reason": "x"}),
    envelope("shiplap.schedule", "PodPending", {"cluster": "demo", "time": TIME, "reason": "TurnMissed"}),
    envelope("shiplap.watch", "NodeJoined", NODE),
    envelope("shiplap.watch", "NodeReady", NODE),
    {"kind": "sweep", "cluster": "demo", "time": TIME},
    {"kind": "timer", "cluster": "demo", "claim": "default-1", "step": "join"},
]
HEALTH = {
    "service": "EC2",
    "eventTypeCategory": "scheduledChange",
    "statusCode": "open",
    "startTime": "Sat, 31 Jan 2026 12:00:00 GMT",
    "affectedEntities": [{"entityValue": INSTANCE}, {"entityValue": "vol-1"}],
}
STATE = "EC2 Instance State-change Notification"
WARNING = {"instance-id": INSTANCE, "instance-action": "terminate"}
OF_AWS: list[dict[str, Any]] = [
    envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", WARNING),
    envelope("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": INSTANCE}),
    envelope("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", WARNING),
    envelope("aws.ec2", STATE, {"instance-id": INSTANCE, "state": "shutting-down"}),
    envelope("aws.health", "AWS Health Event", HEALTH),
]
BODIES = [json.dumps(body) for body in (*OURS, *OF_AWS)]


def assert_typed(message: Message) -> None:
    """Check that flows can use a message: its cluster has a name, and its time can be written."""
    assert isinstance(message.cluster, str)
    time = getattr(message, "time", 0.0)
    assert rfc3339(time).endswith("Z")
    for pod in getattr(message, "pods", ()):
        assert all(isinstance(part, str) for part in (pod.namespace, pod.name, pod.uid))


def assert_notice(notice: Notice) -> None:
    assert all(instance.startswith("i-") for instance in notice.instance_ids)
    assert list(notice.instance_ids) == sorted(notice.instance_ids)
    assert all(rfc3339(moment).endswith("Z") for moment in (notice.time, notice.due_at))


def assert_told(problem: InvalidMessage) -> None:
    assert problem.source == "queue"
    assert problem.reason.strip()


def read_by_all(body: str) -> None:
    """Each reader, because a message may come to the wrong queue."""
    for read in (decode, for_schedule, for_lifecycle):
        try:
            assert_typed(read(body, "queue"))
        except InvalidMessage as problem:
            assert_told(problem)
    try:
        assert_notice(read_notice(body, "queue"))
    except InvalidMessage as problem:
        assert_told(problem)


@fuzzed(0.5, usual=300)
@given(spoilt([*OURS, *OF_AWS]))
def test_a_spoilt_message_is_read_or_refused(body: Any) -> None:
    read_by_all(json.dumps(body))


@fuzzed(0.3, usual=200)
@given(damaged(BODIES))
def test_a_damaged_body_is_read_or_refused(body: str) -> None:
    read_by_all(body)


@fuzzed(0.2, usual=100)
@given(spoilt(OF_AWS), damaged(BODIES))
def test_a_batch_sets_unreadable_messages_aside_and_serves_the_rest(first: Any, second: str) -> None:
    served_beside(json.dumps(first), second)


def served_beside(*odd: str) -> None:
    """A sound message behind odd ones is served, and each of them is served or set aside."""
    bodies = [*odd, json.dumps(OF_AWS[0])]
    records = [{"messageId": str(number), "body": body} for number, body in enumerate(bodies)]
    meter, letters = FakeMeter(), FakeDeadLetters()
    served: list[Notice] = []
    answer = batch.run_each(records, read_notice, served.append, dead_letters=letters, meter=meter)
    assert answer == {"batchItemFailures": []}
    assert len(served) + len(letters.letters) == len(records)
    assert read_notice(bodies[-1], "queue") in served


@kept("messages")
def test_a_kept_message_is_read_or_refused(kept_input: Path) -> None:
    body = kept_input.read_text(encoding="utf-8")
    read_by_all(body)
    served_beside(body)


def test_the_sound_ones_are_read() -> None:
    for body in OURS:
        assert_typed(decode(json.dumps(body), "queue"))
    for body in OF_AWS:
        assert read_notice(json.dumps(body), "queue").instance_ids == (INSTANCE,)
