"""The stage itself: lanes and domains for all shapes, parcels of what belongs together, nodes, claims."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.bulk.allotment import Allotment, Unit, dealt, fits_all
from shiplap.scheduling.bulk.first_fit import FirstFit
from shiplap.scheduling.bulk.lots import Lot, Part, Stock, lot_of
from shiplap.scheduling.bulk.settling import Settler
from shiplap.scheduling.bulk.shapes import Shape, Waiting, shapes_of
from shiplap.scheduling.classes import PodClass
from shiplap.scheduling.groups import Group
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.ledger import Ledger
from shiplap.scheduling.open_claims import Kind, Refusal, Want
from shiplap.scheduling.openings import Openings, estimates
from shiplap.scheduling.resources import Axis, Ints
from shiplap.scheduling.wants import Wants


class Bulk:
    """Places what it can of the waiting pods on new nodes; one use."""

    def __init__(self, axis: Axis, openings: Openings, wants: Wants, ledger: Ledger) -> None:
        self._axis = axis
        self._openings = openings
        self._wants = wants
        self._ledger = ledger
        self._starts: dict[tuple[int, int], Group | Kind] = {}
        self._domains: dict[tuple[int, int, str], dict[str, Group]] = {}
        self._refusals: dict[int, tuple[Refusal, ...]] = {}
        self._waiting: Waiting = ()
        self._sizes: Ints = np.zeros((0, len(axis)), np.int64)
        self._counts: Ints = np.zeros(0, np.int64)

    def run(self, waiting: Waiting) -> list[tuple[PodClass, list[Pod]]]:
        """What is still waiting afterwards, in the same order."""
        self._waiting = waiting
        self._sizes = self._axis.matrix([item.requests for item, _ in waiting])
        self._counts = np.array([len(pods) for _, pods in waiting], np.int64)
        units = [unit for shape in shapes_of(waiting, self._wants, self._ledger.terms) for unit in self._units(shape)]
        settled = self._settled(units)
        settler = Settler(self._openings, self._ledger, waiting)
        # Fallback lanes first, so that what their nodes leave over can be used by pods that may go anywhere.
        for lot in reversed(self._lots(settled)):
            stock = Stock(lot)
            parcel = settler.top_up(lot, stock)
            settler.settle(lot, stock, FirstFit(parcel).run())
        return settler.finish()

    def _units(self, shape: Shape) -> list[Unit]:
        """The classes of a shape by the first lane that holds them, as far as that is certain."""
        places = np.array(shape.places, np.int64)
        taken: list[tuple[Lane, Ints]] = []
        for lane in self._openings.lanes:
            if not len(places):
                break
            group = self._start(lane, shape.want)
            if isinstance(group, Kind):
                self._refuse(lane, shape.want, group, places)
                continue
            if group.minimums or estimates(group) or lane.counted:
                break  # how many nodes may count on what follows from the packer's order
            fits = fits_all(self._sizes[places], group.front)
            if fits.any():
                taken.append((lane, places[fits]))
            places = places[~fits]
            self._refuse(lane, shape.want, Kind.TYPES, places)
        return [self._unit(shape, lane, some) for lane, some in taken]

    def _unit(self, shape: Shape, lane: Lane, places: Ints) -> Unit:
        unit = Unit(shape, lane, shape.key, places, self._counts[places], (), frozenset(), self._weight(places))
        if shape.key:
            self._spread_out(unit, shape.key)
        return unit

    def _spread_out(self, unit: Unit, key: str) -> None:
        """Let a unit choose among the domains of a label."""
        unit.key = key
        known = self._domains_of(unit.lane, unit.shape.want, key)
        sizes = self._sizes[unit.places]
        unit.domains = tuple(value for value, group in known.items() if fits_all(sizes, group.front).all())
        if unit.shape.spreads:
            reached: set[str] = set()
            for lane in self._openings.lanes:
                for value, group in self._domains_of(lane, unit.shape.want, key).items():
                    if value not in reached and fits_all(sizes, group.front).any():
                        reached.add(value)
            unit.reachable = frozenset(reached)

    def _weight(self, places: Ints) -> float:
        totals = np.maximum(self._counts @ self._sizes, 1)
        return float((self._counts[places] @ self._sizes[places] / totals).sum() / max(self._counts[places].sum(), 1))

    def _start(self, lane: Lane, want: Want) -> Group | Kind:
        key = (lane.index, want.constraint)
        known = self._starts.get(key)
        if known is None:
            known = self._starts[key] = self._openings.start(lane, want)
        return known

    def _domains_of(self, lane: Lane, want: Want, key: str) -> dict[str, Group]:
        """The values of a label that nodes of a lane can have for these pods, with the groups they start in."""
        identity = (lane.index, want.constraint, key)
        known = self._domains.get(identity)
        if known is None:
            known = self._domains[identity] = {}
            for value in lane.values_of(key):
                pinned = self._pinned(want, key, value)
                group = self._start(lane, pinned) if pinned is not None else Kind.REQUIREMENTS
                if not isinstance(group, Kind) and not group.minimums and not estimates(group):
                    known[value] = group
        return known

    def _refuse(self, lane: Lane, want: Want, kind: Kind, places: Ints) -> None:
        left = self._openings.budgets[lane.pool.metadata.name].left.copy()
        for place in places.tolist():
            item = self._waiting[place][0]
            own = msgspec.structs.replace(want, item=item, requests=self._sizes[place])
            self._refusals[place] = (*self._refusals.get(place, ()), Refusal(lane, kind, own, left))

    def _settled(self, units: Sequence[Unit]) -> list[Unit]:
        """Units with their quotas; with the domain "" where none has to be settled."""
        keys: dict[int, set[str]] = {}
        for unit in units:
            keys.setdefault(unit.lane.index, set()).update({unit.key} - {""})
        for unit in units:
            known = keys[unit.lane.index]
            if not unit.key and len(known) == 1:
                self._spread_out(unit, next(iter(known)))
        settled: list[Unit] = []
        for key in sorted({unit.key for unit in units}):
            some = [unit for unit in units if unit.key == key]
            if key:
                settled += Allotment(key, some, self._ledger).run()
                continue
            for unit in some:
                unit.quotas = {"": unit.number}
            settled += some
        return settled

    def _lots(self, units: Sequence[Unit]) -> list[Lot]:
        """The lots that these units make, by lane and domain."""
        order = sorted({(unit.lane.index, unit.key, value) for unit in units for value in unit.quotas})
        number = {identity: place for place, identity in enumerate(order)}
        lots: list[list[Part]] = [[] for _ in order]
        shares = dealt([list(unit.quotas.values()) for unit in units], [unit.counts for unit in units])
        for unit, share in zip(units, shares, strict=True):
            for column, value in enumerate(unit.quotas):
                want = self._pinned(unit.shape.want, unit.key, value)
                start = self._start(unit.lane, want) if want is not None else Kind.REQUIREMENTS
                if want is None or isinstance(start, Kind):
                    continue
                some = np.flatnonzero(share[:, column])
                part = Part(unit.shape, want, start, unit.places[some], share[some, column])
                lots[number[unit.lane.index, unit.key, value]].append(part)
        return [lot_of(parts, self._sizes, self._openings, self._refusals) for parts in lots if parts]

    def _pinned(self, want: Want, key: str, value: str) -> Want | None:
        return self._wants.pinned(want, (Requirement(key, False, frozenset((value,))),)) if key else want
