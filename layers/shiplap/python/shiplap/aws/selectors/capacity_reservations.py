"""The capacity reservations and the placement group an EC2NodeClass selects.

Both are few in an account, and EC2 refuses a request that names one which is gone: all are asked for, and chosen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shiplap.aws import tags
from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import (
    ACTIVE,
    FAILED_STATES,
    UPCOMING_STATES,
    CapacityReservation,
    PlacementGroup,
)
from shiplap.manifests.custom_resources import CapacityReservationSelectorTerm, EC2NodeClass

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import CapacityReservationTypeDef, PlacementGroupTypeDef

LATE_S = 5.0
"""For so many seconds an answer is trusted while a reservation that was to start has not."""

_PLATFORMS = {"linux": "Linux/UNIX", "windows": "Windows"}


def capacity_reservations(ec2: EC2Client, node_class: EC2NodeClass, os: str) -> tuple[CapacityReservation, ...]:
    """The reservations that any term selects and that instances of this system (`linux`, `windows`) can use.

    They are active, will be, or have failed to be. Terms that select none are no mistake: reservations come and go.
    Sorted by id; no terms, no request.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    terms = node_class.spec.capacity_reservation_selector_terms
    if not terms:
        return ()
    with aws_errors("describe capacity reservations"):
        pages = ec2.get_paginator("describe_capacity_reservations").paginate(
            Filters=[{"Name": "state", "Values": [ACTIVE, *UPCOMING_STATES, *FAILED_STATES]}]
        )
        seen = [reservation for page in pages for reservation in page["CapacityReservations"]]
    chosen = (item for item in seen if item.get("InstancePlatform") == _PLATFORMS[os] and _any_selects(terms, item))
    return tuple(sorted((reservation_of(item) for item in chosen), key=lambda reservation: reservation.id))


def _any_selects(terms: Iterable[CapacityReservationSelectorTerm], seen: CapacityReservationTypeDef) -> bool:
    return any(_selects(term, seen) for term in terms)


def _selects(term: CapacityReservationSelectorTerm, seen: CapacityReservationTypeDef) -> bool:
    """All that a term says must hold; the value `*` of a tag asks only that the tag exists."""
    wanted = (
        (term.id, seen.get("CapacityReservationId")),
        (term.owner_id, seen.get("OwnerId")),
        (term.instance_match_criteria, seen.get("InstanceMatchCriteria")),
    )
    if any(value and value != found for value, found in wanted):
        return False
    return _has_tags(term.tags, tags.read(seen.get("Tags", [])))


def _has_tags(wanted: Mapping[str, str], present: Mapping[str, str]) -> bool:
    return all(key in present and value in ("*", present[key]) for key, value in wanted.items())


def reservation_of(seen: CapacityReservationTypeDef) -> CapacityReservation:
    """Return a capacity reservation as EC2 describes it."""
    start, end = seen.get("StartDate"), seen.get("EndDate")
    return CapacityReservation(
        id=seen["CapacityReservationId"],
        instance_type=seen["InstanceType"],
        zone=seen.get("AvailabilityZone", ""),
        owner=seen.get("OwnerId", ""),
        match_criteria=seen.get("InstanceMatchCriteria", "open"),
        type=seen.get("ReservationType", "default"),
        interruptible=seen.get("Interruptible", False),
        available=seen.get("AvailableInstanceCount", 0),
        ends_at=end.timestamp() if end is not None else 0.0,
        starts_at=start.timestamp() if start is not None else 0.0,
        state=seen.get("State", ACTIVE),
    )


def lifetime_s(known: Iterable[CapacityReservation], most_s: float, now: float) -> float:
    """Return for how many seconds an answer may be trusted: not beyond the next start, and hardly while one is late."""
    starts = (item.starts_at - now for item in known if item.state in UPCOMING_STATES and item.starts_at)
    return min(max(min(starts, default=most_s), LATE_S), most_s)


def placement_group(ec2: EC2Client, node_class: EC2NodeClass) -> PlacementGroup | None:
    """The group the EC2NodeClass names; None when it names none.

    Raises:
        NodeClassNotReady: it does not exist, or is not available (any more).
        AwsThrottled, AwsError: EC2 refused.
    """
    selector = node_class.spec.placement_group_selector
    if selector is None:
        return None
    with aws_errors("describe placement groups"):
        answer = ec2.describe_placement_groups(Filters=[{"Name": "state", "Values": ["available"]}])
    for seen in answer["PlacementGroups"]:
        if selector.id in ("", seen.get("GroupId")) and selector.name in ("", seen.get("GroupName")):
            return placement_group_of(seen)
    raise NodeClassNotReady(
        f"EC2NodeClass {node_class.metadata.name}: placementGroupSelector names no group that is available: "
        f"{selector.id or selector.name}",
        code="PlacementGroupNotFound",
    )


def placement_group_of(seen: PlacementGroupTypeDef) -> PlacementGroup:
    """Return a placement group as EC2 describes it."""
    return PlacementGroup(
        id=seen.get("GroupId", ""),
        name=seen.get("GroupName", ""),
        strategy=seen.get("Strategy", ""),
        partitions=seen.get("PartitionCount", 0),
    )
