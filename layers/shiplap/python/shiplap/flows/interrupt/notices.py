"""Reads AWS's notices about instances that are about to go or have gone, typed.

These events come from the account's default bus and concern every instance in the Region: they name no cluster, and
most are not about ours. What is not known, or says nothing that matters here, is a notice about no instance at all.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from shiplap.errors import InvalidMessage
from shiplap.kubernetes.timestamps import epoch, epoch_of


class NoticeKind(StrEnum):
    """The kind of event that happens to an instance.

    Stopped and terminated have happened, the other kinds leave it some time.
    Nobody sends word of an impaired instance, of an unhealthy or incomplete node, or in time of a capacity block that
    ends: they are found by looking. So is that a user has deleted the NodeClaim or Node object.
    """

    SPOT = "SpotInterruption"
    CAPACITY_RESERVATION = "CapacityReservationInterruption"
    BLOCK_ENDING = "CapacityBlockEnding"
    SCHEDULED_CHANGE = "ScheduledChange"
    CHANGE_CALLED_OFF = "ScheduledChangeCalledOff"
    REBALANCE = "RebalanceRecommendation"
    IMPAIRED = "InstanceImpaired"
    UNHEALTHY = "NodeUnhealthy"
    INCOMPLETE = "NodeIncomplete"
    DELETED = "ObjectDeleted"
    STOPPED = "InstanceStopped"
    TERMINATED = "InstanceTerminated"
    RESERVATION_STARTED = "CapacityReservationStarted"
    OTHER = "Other"


class Notice(msgspec.Struct, frozen=True):
    """One event of AWS. `time` in epoch seconds, 0 when unknown; `instance_ids` sorted.

    The time is the event's own. Two kinds differ: of a capacity block that ends it is when EC2 begins to end the
    instances, of a deleted object when its terminationGracePeriod ends, 0 without one.
    `due_at` is when a scheduled change begins, or was to begin, as far as it is told.
    """

    kind: NoticeKind
    instance_ids: tuple[str, ...] = ()
    time: float = 0.0
    due_at: float = 0.0
    reservation: str = ""
    """The capacity reservation that has started, by id: it is about no instance yet."""


_SPOT = ("aws.ec2", "EC2 Spot Instance Interruption Warning")
_REBALANCE = ("aws.ec2", "EC2 Instance Rebalance Recommendation")
_STATE = ("aws.ec2", "EC2 Instance State-change Notification")
_RESERVATION = ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning")
_HEALTH = ("aws.health", "AWS Health Event")

STARTS = ("Capacity Block Delivered", "Capacity Block Reservation Delivered", "EC2 Capacity Reservation Active")
"""EC2's events of capacity that can be launched into from now on: AWS documents the first in both spellings."""

_STATES = {
    "stopping": NoticeKind.STOPPED,
    "stopped": NoticeKind.STOPPED,
    "shutting-down": NoticeKind.TERMINATED,
    "terminated": NoticeKind.TERMINATED,
}


class _Envelope(msgspec.Struct, frozen=True, rename="kebab"):
    source: str
    detail_type: str
    detail: msgspec.Raw
    time: str = ""


class _InstanceDetail(msgspec.Struct, frozen=True, rename="kebab"):
    instance_id: str


class _StateDetail(msgspec.Struct, frozen=True, rename="kebab"):
    instance_id: str
    state: str


class _ReservationDetail(msgspec.Struct, frozen=True, rename="kebab"):
    capacity_reservation_id: str


class _AffectedEntity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: str = ""


class _HealthDetail(msgspec.Struct, frozen=True, rename="camel"):
    service: str
    event_type_category: str
    status_code: str = ""
    start_time: str = ""
    affected_entities: tuple[_AffectedEntity, ...] = ()


_envelope = msgspec.json.Decoder(_Envelope)
_instance = msgspec.json.Decoder(_InstanceDetail)
_state = msgspec.json.Decoder(_StateDetail)
_health = msgspec.json.Decoder(_HealthDetail)
_reservation = msgspec.json.Decoder(_ReservationDetail)


def read_notice(body: str | bytes, source: str) -> Notice:
    """Read one message of the queue `interruption`.

    Args:
        body: the event as EventBridge delivers it.
        source: the queue's name, for the error.

    Raises:
        InvalidMessage: not JSON, not an event, or without what an event of its kind always has.
    """
    try:
        envelope = _envelope.decode(body)
        time = epoch(envelope.time) if envelope.time else 0.0
        if envelope.source == "aws.ec2" and envelope.detail_type in STARTS:
            started = _checked(_reservation.decode(envelope.detail).capacity_reservation_id, "cr-")
            return Notice(NoticeKind.RESERVATION_STARTED, time=time, reservation=started)
        decode = _KINDS.get((envelope.source, envelope.detail_type))
        kind, instance_ids, due_at = decode(envelope.detail) if decode else _NOTHING
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(source, str(error)) from error
    return Notice(kind, instance_ids, time, due_at)


_Content = tuple[NoticeKind, tuple[str, ...], float]
"""What happens to which instances, and when if that is not at once: epoch seconds, else 0."""

_NOTHING: _Content = (NoticeKind.OTHER, (), 0.0)


def _about(kind: NoticeKind) -> Callable[[msgspec.Raw], _Content]:
    return lambda detail: (kind, (_checked(_instance.decode(detail).instance_id),), 0.0)


def _state_change(detail: msgspec.Raw) -> _Content:
    change = _state.decode(detail)
    instance_id = _checked(change.instance_id)
    kind = _STATES.get(change.state.lower())
    return (kind, (instance_id,), 0.0) if kind else _NOTHING


def _health_event(detail: msgspec.Raw) -> _Content:
    """A change that AWS has scheduled for instances, or closed again; volumes and the like are not looked at."""
    event = _health.decode(detail)
    if event.service != "EC2" or event.event_type_category != "scheduledChange":
        return _NOTHING
    entities = {entity.entity_value for entity in event.affected_entities}
    instances = tuple(sorted(entity for entity in entities if entity.startswith("i-")))
    kind = NoticeKind.CHANGE_CALLED_OFF if event.status_code == "closed" else NoticeKind.SCHEDULED_CHANGE
    return kind, instances, _moment(event.start_time)


def _moment(text: str) -> float:
    """Epoch seconds of a time as AWS Health writes it (RFC 5322); 0 for one that cannot be read: then it may be now."""
    try:
        return epoch_of(parsedate_to_datetime(text))
    except ValueError:
        return 0.0


def _checked(found: str, prefix: str = "i-") -> str:
    if not found.startswith(prefix):
        raise ValueError(f"{found!r} is not the id of {'an instance' if prefix == 'i-' else 'a capacity reservation'}")
    return found


_KINDS: dict[tuple[str, str], Callable[[msgspec.Raw], _Content]] = {
    _SPOT: _about(NoticeKind.SPOT),
    _RESERVATION: _about(NoticeKind.CAPACITY_RESERVATION),
    _REBALANCE: _about(NoticeKind.REBALANCE),
    _STATE: _state_change,
    _HEALTH: _health_event,
}
