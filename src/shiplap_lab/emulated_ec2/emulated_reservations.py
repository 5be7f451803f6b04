"""Capacity reservations and blocks as EC2 plays them: each starts and ends by the region's clock, and counts instances.

A block's instances are ended from 30 minutes before its end; those of an ordinary reservation go on as on-demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

BLOCK = "capacity-block"
BLOCK_TAIL_S = 30 * 60


class EmulatedReservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One reservation of `total` instances. Times are epoch seconds, 0 for none.

    `scheduled` becomes `active` at the start, and that `expired` at the end; any other `state` stays until it is
    replaced. `purchased_as` is default or capacity-block.
    """

    id: str
    instance_type: str
    zone: str
    total: int = 1
    purchased_as: str = "default"
    state: str = "scheduled"
    starts_at: float = 0.0
    ends_at: float = 0.0
    tags: dict[str, str] = {}

    def state_at(self, now: float) -> str:
        """Return EC2's word for it at a moment, epoch seconds."""
        if self.state not in ("scheduled", "active"):
            return self.state
        if self.ends_at and now >= self.ends_at:
            return "expired"
        return "active" if self.state == "active" or now >= self.starts_at else "scheduled"

    def ends_instances(self, now: float) -> bool:
        """True if EC2 is ending the instances of a block, epoch seconds."""
        return self.purchased_as == BLOCK and bool(self.ends_at) and now >= self.ends_at - BLOCK_TAIL_S


def target_of(data: Mapping[str, Any]) -> str:
    """The reservation that a launch template names, empty for none."""
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId", ""))


def refusal_of(
    held: EmulatedReservation | None, instance_type: str, zone: str, used: int, now: float
) -> tuple[str, str] | None:
    """Return EC2's error code and message for a launch into a reservation that `used` instances run in, or None."""
    if held is None:
        return "InvalidCapacityReservationId.NotFound", "The specified capacity reservation does not exist."
    if held.state_at(now) != "active":
        return "InvalidCapacityReservationState", f"The capacity reservation {held.id} is {held.state_at(now)}."
    if (held.instance_type, held.zone) != (instance_type, zone) or used >= held.total or held.ends_instances(now):
        return "ReservationCapacityExceeded", (
            "The requested reservation does not have sufficient compatible and available capacity for this request."
        )
    return None


def described(
    reservations: Iterable[EmulatedReservation], used: Mapping[str, int], states: Iterable[str], now: float, owner: str
) -> list[dict[str, Any]]:
    """Answer DescribeCapacityReservations for reservations in these states; nothing is available before the start."""
    wanted = frozenset(states)
    shown = ((held, held.state_at(now)) for held in sorted(reservations, key=lambda held: held.id))
    return [
        {
            "CapacityReservationId": held.id,
            "OwnerId": owner,
            "InstanceType": held.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": held.zone,
            "TotalInstanceCount": held.total,
            "AvailableInstanceCount": max(held.total - used.get(held.id, 0), 0) if state == "active" else 0,
            "State": state,
            "StartDate": _time(held.starts_at),
            "EndDate": _time(held.ends_at) if held.ends_at else None,
            "EndDateType": "limited" if held.ends_at else "unlimited",
            "InstanceMatchCriteria": "targeted",
            "ReservationType": held.purchased_as,
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(held.tags.items())],
        }
        for held, state in shown
        if not wanted or state in wanted
    ]


def _time(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, tz=UTC).replace(tzinfo=None)
