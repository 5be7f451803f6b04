"""Events of AWS in, typed notices out; malformed ones are refused with a reason, unknown ones are about nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shiplap.errors import InvalidMessage
from shiplap.flows.interrupt.notices import STARTS, Notice, NoticeKind, read_notice

ID = "i-0123456789abcdef0"


def event(detail_type: str, detail: Any, source: str = "aws.ec2", **changes: Any) -> str:
    body = {
        "version": "0",
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "detail-type": detail_type,
        "source": source,
        "account": "123456789012",
        "time": "2023-11-14T22:13:20Z",
        "region": "eu-west-1",
        "resources": [f"arn:aws:ec2:eu-west-1:123456789012:instance/{ID}"],
        "detail": detail,
    }
    return json.dumps(body | changes)


def state_change(state: str) -> str:
    return event("EC2 Instance State-change Notification", {"instance-id": ID, "state": state})


def health(**changes: Any) -> str:
    detail = {
        "eventArn": "arn:aws:health:eu-west-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/1",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": ID}, {"entityValue": "i-00000000000000001"}, {"entityValue": "vol-1"}],
    }
    return event("AWS Health Event", detail | changes, "aws.health")


@pytest.mark.parametrize(
    ("detail_type", "kind"),
    [
        ("EC2 Spot Instance Interruption Warning", NoticeKind.SPOT),
        ("EC2 Instance Rebalance Recommendation", NoticeKind.REBALANCE),
        ("EC2 Capacity Reservation Instance Interruption Warning", NoticeKind.CAPACITY_RESERVATION),
    ],
)
def test_warnings_are_about_one_instance(detail_type: str, kind: NoticeKind) -> None:
    body = event(detail_type, {"instance-id": ID, "instance-action": "terminate"})
    assert read_notice(body, "q") == Notice(kind, (ID,), 1_700_000_000.0)


@pytest.mark.parametrize("detail_type", STARTS)
def test_a_reservation_that_starts_is_about_no_instance(detail_type: str) -> None:
    detail = {"capacity-reservation-id": "cr-1", "end-date": "2023-11-15T22:13:20Z", "state": "active"}
    kind = NoticeKind.RESERVATION_STARTED
    assert read_notice(event(detail_type, detail), "q") == Notice(kind, time=1_700_000_000.0, reservation="cr-1")
    assert read_notice(event(detail_type, detail, "somebody.else"), "q").kind is NoticeKind.OTHER


@pytest.mark.parametrize("detail", [{}, {"capacity-reservation-id": "i-1"}, {"capacity-reservation-id": 1}, []])
def test_a_start_of_nothing_is_refused(detail: Any) -> None:
    with pytest.raises(InvalidMessage):
        read_notice(event(STARTS[0], detail), "q")


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", NoticeKind.STOPPED),
        ("Stopped", NoticeKind.STOPPED),
        ("shutting-down", NoticeKind.TERMINATED),
        ("terminated", NoticeKind.TERMINATED),
    ],
)
def test_states_that_end_an_instance(state: str, kind: NoticeKind) -> None:
    assert read_notice(state_change(state), "q") == Notice(kind, (ID,), 1_700_000_000.0)


def test_a_scheduled_change_is_about_all_its_instances() -> None:
    assert read_notice(health(), "q") == Notice(
        NoticeKind.SCHEDULED_CHANGE, ("i-00000000000000001", ID), 1_700_000_000.0
    )


@pytest.mark.parametrize(
    ("written", "due_at"),
    [("Wed, 27 Jan 2021 06:02:51 GMT", 1_611_727_371.0), ("", 0.0), ("soon", 0.0), ("2021-01-27T06:02:51Z", 0.0)],
)
def test_a_scheduled_change_may_say_when(written: str, due_at: float) -> None:
    assert read_notice(health(startTime=written), "q").due_at == due_at


def test_a_change_that_is_closed_again_is_called_off() -> None:
    begins = "Tue, 14 Nov 2023 22:13:20 GMT"
    body = health(statusCode="closed", startTime=begins, affectedEntities=[{"entityValue": ID}])
    assert read_notice(body, "q") == Notice(NoticeKind.CHANGE_CALLED_OFF, (ID,), 1_700_000_000.0, 1_700_000_000.0)


@pytest.mark.parametrize(
    "body",
    [
        state_change("running"),
        state_change("pending"),
        health(service="RDS"),
        health(eventTypeCategory="accountNotification"),
        health(affectedEntities=[]),
        event("EC2 Instance Something New", {"any": "thing"}),
        event("EC2 Spot Instance Interruption Warning", {"instance-id": ID}, "somebody.else"),
        '{"source": "a", "detail-type": "b", "detail": {}}',
    ],
)
def test_what_says_nothing_that_matters_is_about_no_instance(body: str) -> None:
    assert read_notice(body, "q").instance_ids == ()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "truncated"),
        ("not json", "malformed"),
        ("[]", "Expected `object`"),
        ("{}", "source"),
        (event("EC2 Spot Instance Interruption Warning", {}), "instance-id"),
        (event("EC2 Spot Instance Interruption Warning", {"instance-id": "x"}), "'x' is not the id of an instance"),
        (event("EC2 Instance State-change Notification", {"instance-id": ID}), "state"),
        (event("EC2 Instance State-change Notification", {"instance-id": "", "state": "stopped"}), "not the id"),
        (event("AWS Health Event", {"service": "EC2"}, "aws.health"), "eventTypeCategory"),
        (event("EC2 Instance Rebalance Recommendation", {"instance-id": ID}, time="now"), "now"),
    ],
)
def test_a_malformed_event_is_refused_with_its_queue_and_a_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        read_notice(body, "shiplap-interruption")
    assert str(refused.value).startswith("shiplap-interruption: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize("inside", [True, False])
def test_an_event_nested_ten_thousand_levels_deep_is_refused(inside: bool) -> None:
    nested = "[" * 10_000 + "]" * 10_000
    body = (
        f'{{"source":"aws.ec2","detail-type":"{REBALANCE}","detail":{{"instance-id":{nested}}}}}' if inside else nested
    )
    with pytest.raises(InvalidMessage):
        read_notice(body, "shiplap-interruption")


REBALANCE = "EC2 Instance Rebalance Recommendation"
