"""Stages whose NodePools wait for capacity reservations that have not started."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.manifests.custom_resources import CapacityReservationSelectorTerm, NodePool
from tests.builders.pools import family_pool
from tests.integration.flows.capacity_blocks import HOUR_S
from tests.integration.flows.stage import NODE_CLASS, ZONES, Stage

TERM = CapacityReservationSelectorTerm(tags={"use": "training"})


def reserved_only(name: str = "training", replicas: int | None = None, grace: str = "") -> NodePool:
    """A pool that launches into reservations alone."""
    made = family_pool(name, ("m6i",), sizes=("large",), capacity_types=("reserved",))
    template = made.spec.template
    spec = replace(template.spec, termination_grace_period=grace or None)
    return replace(made, spec=replace(made.spec, replicas=replicas, template=replace(template, spec=spec)))


def block(
    starts_at: float, name: str = "cr-1", *, zone: str = ZONES[0], lasts_s: float = 24 * HOUR_S
) -> CapacityReservation:
    """A capacity block as EC2 describes it before it starts: with nothing available."""
    return CapacityReservation(
        id=name,
        instance_type="m6i.large",
        zone=zone,
        type="capacity-block",
        state="scheduled",
        starts_at=starts_at,
        ends_at=starts_at + lasts_s,
    )


def waiting_stage(pools: Sequence[NodePool] = (), starts_in_s: float = 600.0, beside: Stage | None = None) -> Stage:
    """A stage whose only capacity is a block that starts so many seconds from now."""
    stage = Stage(pools or (reserved_only(),), beside=beside)
    selecting = replace(NODE_CLASS, spec=replace(NODE_CLASS.spec, capacity_reservation_selector_terms=(TERM,)))
    manifests = replace(stage.settings.manifests, node_classes=(selecting,))
    stage.settings = replace(stage.settings, manifests=manifests)
    stage.compute.reservations = (block(stage.clock.now() + starts_in_s),)
    return stage


def start(stage: Stage, name: str = "cr-1", available: int = 2) -> None:
    """EC2 calls a reservation active."""
    stage.compute.reservations = tuple(
        replace(held, state="active", available=available) if held.id == name else held
        for held in stage.compute.reservations
    )


def delivered(stage: Stage, name: str = "cr-1", detail_type: str = "Capacity Block Reservation Delivered") -> str:
    """EC2's event of a reservation that has started."""
    return json.dumps(
        {
            "version": "0",
            "id": f"{name}-delivered",
            "detail-type": detail_type,
            "source": "aws.ec2",
            "account": "111111111111",
            "time": "2026-01-01T00:00:00Z",
            "region": "eu-west-1",
            "resources": [f"arn:aws:ec2:eu-west-1:111111111111:capacity-reservation/{name}"],
            "detail": {"capacity-reservation-id": name, "end-date": "2026-01-02T00:00:00Z"},
        }
    )
