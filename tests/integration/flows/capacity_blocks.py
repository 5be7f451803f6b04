"""A stage whose NodePool may use a capacity block."""

from __future__ import annotations

from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from tests.builders.pools import family_pool
from tests.integration.flows.stage import ZONES, Stage

HOUR_S = 3600.0


def staged(ends_in_s: float, kind: str = "capacity-block") -> Stage:
    """A pool that may use a reservation of two instances, which ends so many seconds from now."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=("reserved", "on-demand")),))
    stage.compute.reservations = (
        CapacityReservation(
            id="cr-1",
            instance_type="m6i.large",
            zone=ZONES[0],
            available=2,
            type=kind,
            ends_at=stage.clock.now() + ends_in_s,
        ),
    )
    return stage
