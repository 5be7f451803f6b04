"""The stage itself: templates and domains for all shapes, parcels of what belongs together, nodes, claims."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Axis, Bools, Ints
from shiplap.scheduling.packing.bulk.allotment import Allotment, TierDemand, fits_front, split_by_quotas
from shiplap.scheduling.packing.bulk.first_fit import first_fit
from shiplap.scheduling.packing.bulk.settling import ClaimBuilder
from shiplap.scheduling.packing.bulk.size_classes import SizeClass, Waiting, size_classes_of
from shiplap.scheduling.packing.bulk.tier_problems import ProblemPart, TierProblem, UnclaimedPods, tier_problem_of
from shiplap.scheduling.search.bin_packing import Filling
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt, Refusal, RefusalKind
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class ExistingCapacity(Protocol):
    """Nodes that exist and claims in flight."""

    def might_take(self, attempt: PlacementAttempt, least: Ints) -> bool:
        """Whether some of it suits that has room for `least` [resources]."""

    def fill(self, attempt: PlacementAttempt, pods: list[Pod], inside: Bools | None) -> int:
        """Put pods there, `inside` [rooms] if given; returns how many of them, the first ones."""


class BulkStage:
    """Places what it can of the waiting pods on new nodes; one use."""

    def __init__(
        self,
        axis: Axis,
        openings: Openings,
        attempts: PlacementAttempts,
        topology_counts: TopologyCounts,
        effort: Effort,
        existing: ExistingCapacity | None,
    ) -> None:
        """`effort` is what may be spent on cheaper nodes than first-fit-decreasing finds."""
        self._axis = axis
        self._openings = openings
        self._attempts = attempts
        self._topology_counts = topology_counts
        self._starts: dict[tuple[int, int], ClaimGroup | RefusalKind] = {}
        self._domains: dict[tuple[int, int, str], dict[str, ClaimGroup]] = {}
        self._refusals: dict[int, tuple[Refusal, ...]] = {}
        self._effort = effort
        self._existing = existing
        self._unfilled = 0
        self._plain = 0.0
        self._changed = False
        self.floor = np.inf
        """USD per hour below which first-fit-decreasing would surely not have come; infinite where nothing beat it."""
        self._waiting: Waiting = ()
        self._sizes: Ints = np.zeros((0, len(axis)), np.int64)
        self._counts: Ints = np.zeros(0, np.int64)
        self._totals: Ints = np.ones(len(axis), np.int64)

    def run(self, waiting: Waiting) -> list[tuple[PodClass, list[Pod]]]:
        """What is still waiting afterwards, in the same order."""
        self._waiting = waiting
        self._sizes = self._axis.matrix([item.requests for item, _ in waiting])
        self._counts = np.array([len(pods) for _, pods in waiting], np.int64)
        settler = ClaimBuilder(self._openings, self._topology_counts, waiting)
        shapes = size_classes_of(waiting, self._attempts, self._topology_counts.terms)
        if self._existing is not None:
            shapes = self._fill_anywhere(self._existing, shapes, settler)
        self._totals = np.maximum(self._counts @ self._sizes, 1)
        units = self._settled([unit for shape in shapes for unit in self._units(shape)])
        if self._existing is not None:
            self._fill_domains(self._existing, units, settler)
        # Fallback templates first, so that what their nodes leave over can be used by pods that may go anywhere.
        lots = self._lots(units)
        self._unfilled = sum(int(lot.counts.sum()) for lot in lots)
        by_lane = [list(some) for _, some in groupby(reversed(lots), lambda lot: lot.template.index)]
        for some in by_lane:
            self._fill(some, settler)
        left = settler.finish()
        if self._changed:
            # Between templates, and for what is left over, cheaper nodes may leave less room that costs nothing.
            self.floor = self._plain if len(by_lane) == 1 and not left else 0.0
        return left

    def _fill_anywhere(
        self, existing: ExistingCapacity, shapes: Sequence[SizeClass], settler: ClaimBuilder
    ) -> list[SizeClass]:
        """Let pods into what exists whose domain is open; returns the shapes that may go on."""
        going = []
        free: list[tuple[int, SizeClass]] = []
        for shape in shapes:
            if not shape.binds(self._topology_counts.terms):
                free += [(place, shape) for place in shape.places]
            elif (not shape.spreads or shape.affinity or shape.anti) and existing.might_take(
                shape.attempt, self._sizes[shape.places].min(axis=0)
            ):
                continue  # where followers start, and who keeps away from whom, depends on where there is room
            going.append(shape)
        for place, shape in sorted(free, key=lambda pair: pair[0]):
            item, pods = self._waiting[place]
            own = msgspec.structs.replace(shape.attempt, pod_class=item, requests=self._sizes[place])
            self._leave(place, existing.fill(own, pods, None), settler)
        return going

    def _fill_domains(self, existing: ExistingCapacity, units: Sequence[TierDemand], settler: ClaimBuilder) -> None:
        """Let pods into what exists in the domain they were allotted to."""
        rooms = self._topology_counts.base.existing
        for unit in units:
            if not unit.shape.binds(self._topology_counts.terms):
                continue
            codes = self._topology_counts.place_codes(unit.key)[:rooms]
            for share, value in zip(
                split_by_quotas([list(unit.quotas.values())], [unit.counts])[0].T, list(unit.quotas), strict=True
            ):
                inside = codes == self._topology_counts.code(unit.key, value)
                if not inside.any():
                    continue
                for at in np.flatnonzero(share).tolist():
                    place = int(unit.places[at])
                    item, pods = self._waiting[place]
                    own = msgspec.structs.replace(unit.shape.attempt, pod_class=item, requests=self._sizes[place])
                    start = settler.given(place)
                    number = existing.fill(own, pods[start : start + int(share[at])], inside)
                    self._leave(place, number, settler)
                    unit.counts[at] -= number
                    unit.quotas[value] -= number

    def _leave(self, place: int, number: int, settler: ClaimBuilder) -> None:
        """Some pods of a class have got a place."""
        self._counts[place] -= number
        settler.leave(place, number)

    def _fill(self, lots: Sequence[TierProblem], settler: ClaimBuilder) -> None:
        """Fill the lots of one template and settle them."""
        stocks = [UnclaimedPods(lot) for lot in lots]
        parcels = [settler.fill_open_claims(lot, stock) for lot, stock in zip(lots, stocks, strict=True)]
        plain = [first_fit(parcel) for parcel in parcels]
        fillings: Sequence[Filling] = plain
        if not self._effort.spent:
            # It is of use only where there is a budget.
            from shiplap.scheduling.search.improve import improve_cached  # noqa: PLC0415

            part = self._effort.share(sum(int(lot.counts.sum()) for lot in lots) / max(self._unfilled, 1))
            fillings = improve_cached(parcels, plain, part)
            self._effort.give_back(part)
            self._changed |= any(filling is not first for filling, first in zip(fillings, plain, strict=True))
            self._plain += sum(filling.hourly(parcel) for parcel, filling in zip(parcels, plain, strict=True))
        self._unfilled -= sum(int(lot.counts.sum()) for lot in lots)
        prepared = [settler.prepare(lot, filling) for lot, filling in zip(lots, fillings, strict=True)]
        if not settler.affordable(prepared):
            prepared = [settler.with_smaller_types(one) for one in prepared]
        if any(lot.domain_matters for lot in lots) and not settler.affordable(prepared):
            return  # which domains still get a node decides where the pods of the others may go
        for one, stock in zip(prepared, stocks, strict=True):
            settler.settle(one, stock)

    def _units(self, shape: SizeClass) -> list[TierDemand]:
        """The classes of a shape by the first template that holds them, as far as that is certain."""
        places = np.array(shape.places, np.int64)
        places = places[self._counts[places] > 0]
        taken: list[tuple[NodeClaimTemplate, Ints]] = []
        for template in self._openings.templates:
            if not len(places):
                break
            group = self._start(template, shape.attempt)
            if isinstance(group, RefusalKind):
                self._refuse(template, shape.attempt, group, places)
                continue
            if group.minimums or template.counted:
                break  # what fits such nodes follows from the packer's order
            fits = fits_front(self._sizes[places], group.front)
            if fits.any():
                taken.append((template, places[fits]))
            places = places[~fits]
            if template.table.explores and len(places):
                hopeful = self._openings.start(template, shape.attempt)
                if not isinstance(hopeful, RefusalKind):  # what only an estimate holds is the packer's to place
                    places = places[~fits_front(self._sizes[places], hopeful.front)]
            self._refuse(template, shape.attempt, RefusalKind.TYPES, places)
        return [self._unit(shape, template, some) for template, some in taken]

    def _unit(self, shape: SizeClass, template: NodeClaimTemplate, places: Ints) -> TierDemand:
        unit = TierDemand(
            shape, template, shape.key, places, self._counts[places], (), frozenset(), self._weight(places)
        )
        if shape.key:
            self._spread_out(unit, shape.key)
        return unit

    def _spread_out(self, unit: TierDemand, key: str) -> None:
        """Let a unit choose among the domains of a label."""
        unit.key = key
        known = self._domains_of(unit.template, unit.shape.attempt, key)
        sizes = self._sizes[unit.places]
        unit.domains = tuple(value for value, group in known.items() if fits_front(sizes, group.front).all())
        if unit.shape.spreads:
            reached: set[str] = set()
            for template in self._openings.templates:
                for value, group in self._domains_of(template, unit.shape.attempt, key).items():
                    if value not in reached and fits_front(sizes, group.front).any():
                        reached.add(value)
            unit.reachable = frozenset(reached)

    def _weight(self, places: Ints) -> float:
        return float(
            (self._counts[places] @ self._sizes[places] / self._totals).sum() / max(self._counts[places].sum(), 1)
        )

    def _start(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        key = (template.index, attempt.constraint)
        known = self._starts.get(key)
        if known is None:
            known = self._starts[key] = self._openings.start(template, attempt, careful=True)
        return known

    def _domains_of(self, template: NodeClaimTemplate, attempt: PlacementAttempt, key: str) -> dict[str, ClaimGroup]:
        """The values of a label that nodes of a template can have for these pods, with the groups they start in."""
        identity = (template.index, attempt.constraint, key)
        known = self._domains.get(identity)
        if known is None:
            known = self._domains[identity] = {}
            for value in template.values_of(key):
                pinned = self._pinned(attempt, key, value)
                group = self._start(template, pinned) if pinned is not None else RefusalKind.REQUIREMENTS
                if not isinstance(group, RefusalKind) and not group.minimums:
                    known[value] = group
        return known

    def _refuse(self, template: NodeClaimTemplate, attempt: PlacementAttempt, kind: RefusalKind, places: Ints) -> None:
        left = self._openings.pool_limits[template.pool.metadata.name].left.copy()
        for place in places.tolist():
            item = self._waiting[place][0]
            own = msgspec.structs.replace(attempt, pod_class=item, requests=self._sizes[place])
            self._refusals[place] = (*self._refusals.get(place, ()), Refusal(template, kind, own, left))

    def _settled(self, units: Sequence[TierDemand]) -> list[TierDemand]:
        """Units with their quotas; with the domain "" where none has to be settled."""
        keys: dict[int, set[str]] = {}
        for unit in units:
            keys.setdefault(unit.template.index, set()).update({unit.key} - {""})
        for unit in units:
            known = keys[unit.template.index]
            if not unit.key and len(known) == 1:
                self._spread_out(unit, next(iter(known)))
        settled: list[TierDemand] = []
        for key in sorted({unit.key for unit in units}):
            some = [unit for unit in units if unit.key == key]
            if key:
                settled += Allotment(key, some, self._topology_counts).run()
                continue
            for unit in some:
                unit.quotas = {"": unit.number}
            settled += some
        return settled

    def _lots(self, units: Sequence[TierDemand]) -> list[TierProblem]:
        """The lots that these units make, by template and domain."""
        order = sorted({(unit.template.index, unit.key, value) for unit in units for value in unit.quotas})
        number = {identity: place for place, identity in enumerate(order)}
        lots: list[list[ProblemPart]] = [[] for _ in order]
        shares = split_by_quotas([list(unit.quotas.values()) for unit in units], [unit.counts for unit in units])
        for unit, share in zip(units, shares, strict=True):
            for column, value in enumerate(unit.quotas):
                attempt = self._pinned(unit.shape.attempt, unit.key, value)
                start = self._start(unit.template, attempt) if attempt is not None else RefusalKind.REQUIREMENTS
                if attempt is None or isinstance(start, RefusalKind):
                    continue
                some = np.flatnonzero(share[:, column])
                if not len(some):
                    continue
                part = ProblemPart(unit.shape, attempt, start, unit.places[some], share[some, column])
                lots[number[unit.template.index, unit.key, value]].append(part)
        return [tier_problem_of(parts, self._sizes, self._openings, self._refusals) for parts in lots if parts]

    def _pinned(self, attempt: PlacementAttempt, key: str, value: str) -> PlacementAttempt | None:
        return self._attempts.pinned(attempt, (Requirement(key, False, frozenset((value,))),)) if key else attempt
