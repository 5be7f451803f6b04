"""Instances left in capacity reservations: no more claims are given to a reservation than it has room for.

A claim of a reserved template takes one instance of one reservation when it is opened, of the largest instances first,
so that it can be filled. When all pods are placed it moves to the cheapest reservation that still holds it, and then
may also use others of the same instance types, each of which sets an instance aside for it until it is launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.resources import Ints
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.open_claims import ClaimGroup, OpenClaims, PlacementAttempt
from shiplap.scheduling.supply.templates import NodeClaimTemplate

SHOWN_AFTER_S = 120.0
"""How long after a claim was launched its instance may be missing from what EC2 says a reservation has left."""

_ALIKE = (labels.RESERVATION_TYPE, labels.RESERVATION_INTERRUPTIBLE)


def units_left(tables: Iterable[TypeTable], claims: Iterable[NodeClaim], now: float) -> dict[str, int]:
    """Instances each reservation has left, less those promised to claims that EC2 does not count there yet.

    Args:
        tables: catalogues; of several counts of one reservation the least counts.
        claims: in flight.
        now: epoch seconds.
    """
    units: dict[str, int] = {}
    for table in tables:
        for reservation, left in table.units.items():
            units[reservation] = min(left, units.get(reservation, left))
    for claim in claims:
        coming = claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING)
        fresh = claim.state in (ClaimState.LAUNCHED, ClaimState.REGISTERED) and now - claim.changed_at < SHOWN_AFTER_S
        if coming or fresh:
            for reservation in held_by(claim):
                if reservation in units:
                    units[reservation] = max(units[reservation] - 1, 0)
    return units


def held_by(claim: NodeClaim) -> tuple[str, ...]:
    """The reservations that a claim may be launched into, or was."""
    if claim.known_instance.capacity_type not in ("", labels.RESERVED):
        return ()
    known = claim.plan.labels.get(labels.RESERVATION_ID)
    if known:
        return (known,)
    return next(
        (r.values for r in claim.plan.requirements if r.key == labels.RESERVATION_ID and r.operator == "In"), ()
    )


class Reservations:
    """The instances left while one packing goes on."""

    def __init__(self, templates: Iterable[NodeClaimTemplate], open_claims: OpenClaims) -> None:
        self._open = open_claims
        self._before: Mapping[str, int] = next((template.units for template in templates if template.reserved), {})
        self.left = dict(self._before)
        self._pins: dict[str, tuple[Requirement, ...]] = {}

    def pins(self, template: NodeClaimTemplate, reservation: str) -> tuple[Requirement, ...]:
        """Return the requirements that narrow a claim down to one reservation."""
        if reservation not in self._pins:
            marks = template.table.marks[template.table.reservations.index(reservation)]
            self._pins[reservation] = tuple(Requirement.one_of(name, marks[name]) for name in sorted(marks))
        return self._pins[reservation]

    def taken_here(self, reservation: str) -> bool:
        """True if a reservation had instances left before, and claims of this plan took the last of them."""
        return self._before.get(reservation, 0) > 0 and self.left[reservation] < 1

    def openable(self, group: ClaimGroup) -> int:
        """Return how many more claims of this group its reservations have instances for."""
        return min((self.left.get(reservation, 0) for reservation in _pinned(group)), default=0)

    def take(self, group: ClaimGroup, number: int) -> None:
        """Give instances to claims of this group."""
        for reservation in _pinned(group):
            self.left[reservation] -= number

    def settle(self) -> None:
        """Move every reserved claim to the cheapest reservation that holds it, then give it what else it may use."""
        reserved = [place for place, claim in enumerate(self._open.claims) if claim.group.template.reserved]
        for place in reserved:
            self._move(place)
        for place in reserved:
            self._widen(place)

    def _move(self, place: int) -> None:
        group = self._open.claims[place].group
        (now,) = _pinned(group)
        used = self._open.used[place]
        best = (_cheapest(group, used), now)
        chosen = group
        for reservation in group.template.reservations:
            if reservation != now and self.left[reservation] > 0:
                other = self._instead(place, group, self.pins(group.template, reservation))
                if other is not None and (_cheapest(other, used), reservation) < best:
                    best, chosen = (_cheapest(other, used), reservation), other
        if chosen is not group:
            self.left[now] += 1
            self.take(chosen, 1)
            self._open.regroup(place, chosen)

    def _widen(self, place: int) -> None:
        group = self._open.claims[place].group
        table = group.template.table
        (now,) = _pinned(group)
        own = self.pins(group.template, now)
        types = _types(table, now)
        others = [
            reservation
            for reservation in group.template.reservations
            if reservation != now
            and self.left[reservation] > 0
            and self.pins(group.template, reservation)[1:] == own[1:]
            and set(_types(table, reservation).tolist()) <= set(types.tolist())
            and self._instead(place, group, self.pins(group.template, reservation)) is not None
        ]
        if others:
            wider = (Requirement.one_of(labels.RESERVATION_ID, now, *others), *own[1:])
            for reservation in others:
                self.left[reservation] -= 1
            self._open.regroup(place, self._group(group, wider))

    def _instead(self, place: int, group: ClaimGroup, pins: tuple[Requirement, ...]) -> ClaimGroup | None:
        """The claim's group if it used another reservation; None where its pods or its load do not allow it."""
        asked = (term for pod_class, _ in self._open.claims[place].pods for term in pod_class.terms)
        if any(key in term for term in asked for key in (labels.RESERVATION_ID, *_ALIKE)):
            return None
        other = self._group(group, pins)
        return other if other.holding(self._open.used[place]).any() else None

    def _group(self, group: ClaimGroup, pins: tuple[Requirement, ...]) -> ClaimGroup:
        """The group without the reservation it has, with another."""
        rest = Requirements(
            entry for key, entry in group.requirements.items() if key not in (labels.RESERVATION_ID, *_ALIKE)
        )
        own = (
            group.template.requirements[key]
            for key in (labels.RESERVATION_ID, *_ALIKE)
            if key in group.template.requirements
        )
        requirements = rest.and_((*own, *pins))
        return self._open.groups.get(group.template, requirements, group.allowed, group.minimums)


def awaited(template: NodeClaimTemplate, attempt: PlacementAttempt) -> str:
    """Return in words which reservation would have a place for a class once it has started: the first to start.

    Empty where none would.
    """
    table = template.table
    if not table.upcoming:
        return ""
    requirements = template.requirements.and_(attempt.term.values())
    suits, cells = table.offered(requirements, template.given).suits, table.cells(requirements)[0]
    able = set(table.row_type[(template.net >= attempt.requests).all(axis=1)].tolist())
    found = [
        offering
        for (place, column), offering in table.upcoming.items()
        if place in able and suits[place] and cells[table.zones.index(offering.zone), column]
    ]
    if not found:
        return ""
    first = min(found, key=lambda offering: (offering.starts_at or inf, offering.reservation_id))
    when = f"starts at {rfc3339(first.starts_at)}" if first.starts_at else "has no start yet"
    return f"; waits for capacity reservation {first.reservation_id} ({first.reservation_state}), which {when}"


def _cheapest(group: ClaimGroup, used: Ints) -> float:
    return float(np.min(group.price[group.holding(used)]))


def _pinned(group: ClaimGroup) -> list[str]:
    return sorted(group.requirements[labels.RESERVATION_ID].values)


def _types(table: TypeTable, reservation: str) -> Ints:
    """The types [places] that a reservation is for."""
    column = table.reservations.index(reservation)
    places: Ints = np.flatnonzero(np.isfinite(table.prices[:, :, column]).any(axis=1))
    return places
