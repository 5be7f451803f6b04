"""Capacity reservations that are about to start: a timer has the cluster planned for as soon as EC2 lets launches in.

EC2 sends an event of it, too, and the sweep looks every minute: whichever comes first launches, the rest finds nothing
to do. A launch before EC2 calls the reservation active would fail, so the clock alone never decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from shiplap.flows.claim_updates import NO_CLAIM, RESERVATION
from shiplap.flows.context import FlowContext
from shiplap.instances.catalog.resolved_nodeclass import UPCOMING_STATES, CapacityReservation

SOON_S = 75.0
"""Starts within so many seconds get a timer: the next sweep is a minute away, or a little more."""

SETTLED_S = 5
"""So many seconds after its start EC2 should call a reservation active."""


def remind_of_starts(cluster: str, upcoming: Iterable[CapacityReservation], context: FlowContext) -> None:
    """Set a timer for each moment, before the next sweep, at which a reservation is to start."""
    now = context.clock.now()
    starts = {ceil(held.starts_at - now) for held in upcoming if held.state in UPCOMING_STATES and held.starts_at}
    for in_s in sorted(starts):
        if 0 < in_s <= SOON_S:
            context.set_timer(cluster, NO_CLAIM, RESERVATION, in_s + SETTLED_S)
