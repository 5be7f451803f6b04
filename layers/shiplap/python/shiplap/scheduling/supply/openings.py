"""Where a pod could go that no node has room for: a claim that is open already, or a new one in some lane.

A lane refuses for one of the reasons in `Kind`. Before a refusal counts, open claims give back what they hold without
needing it: estimates of types nobody has run yet, and room under the pool's limits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints
from shiplap.scheduling.supply.claim_groups import Group
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.open_claims import Kind, OpenClaims, Want
from shiplap.scheduling.supply.reservations import Reservations
from shiplap.scheduling.supply.templates import Lane, may_be_spot


class Openings:
    """Answers for one packing. `budgets` are by pool name; `holder` is the claim that relies on each estimate."""

    def __init__(self, lanes: Sequence[Lane], open_claims: OpenClaims, *, best_effort: bool) -> None:
        self.lanes = lanes
        self.open = open_claims
        self.best_effort = best_effort
        self.budgets = {lane.pool.metadata.name: lane.budget.copy() for lane in lanes}
        self.reservations = Reservations(lanes, open_claims)
        self.holder: dict[str, int] = {}
        self._unheld: dict[int, Bools] = {}
        self._slim: dict[tuple[str, bool], _Slim] = {}
        self._least: dict[tuple[int, bytes, bool], tuple[Ints, Bools]] = {}
        self._merged: dict[tuple[int, int], Group | None] = {}
        self._best: tuple[tuple[int, int, int], tuple[int, int] | None] | None = None
        self._entries: dict[tuple[int, int], Requirements | Kind] = {}
        self._within: dict[tuple[int, Requirements, bytes], tuple[bytes, Group | Kind]] = {}

    def suits(self, lane: Lane, want: Want) -> bool:
        """Whether taints and requirements let a lane's nodes take pods of a class, whatever their size."""
        return not isinstance(self._joined(lane, want), Kind)

    def best_level(self, want: Want) -> tuple[int, int] | None:
        """The level of the first lane that could open a claim; claims of later levels are filled but not enlarged.

        Remembered until a claim changes, because every group of claims asks.
        """
        key = (want.constraint, want.item.index, self.open.changes)
        if self._best is None or self._best[0] != key:
            opening = (lane.level for lane in self.lanes if not isinstance(self.entry(lane, want), Kind))
            self._best = (key, next(opening, None))
        return self._best[1]

    def take_estimates(self, group: Group, place: int) -> None:
        """The claim at `place` now relies on the estimates among its group's rows; no other claim may."""
        keys = estimates(group)
        if keys:
            self.holder |= dict.fromkeys(keys, place)
            self._unheld.clear()

    def entry(self, lane: Lane, want: Want) -> Group | Kind:
        """The group a new claim would start in, or why this lane cannot open one now."""
        requirements = self._joined(lane, want)
        if isinstance(requirements, Kind):
            return requirements
        budget = self.budgets[lane.pool.metadata.name]
        if budget.nodes_left < 1:
            return Kind.NODES
        if budget.spot_bound is not None and may_be_spot(requirements) and not budget.spot_openable():
            return Kind.SPOT_SHARE
        if lane.reserved:
            return self._reserved_entry(lane, requirements, want)
        return self._within_limits(lane, requirements, want)

    def opens(self, lane: Lane, want: Want) -> bool:
        """Whether `entry` finds a group; a pool at its limits is not asked which of its limits it is."""
        budget = self.budgets[lane.pool.metadata.name]
        if isinstance(self._joined(lane, want), Kind):
            return False
        if len(budget.columns):
            within = budget.allowed(lane.table.capacity)[lane.table.row_type]
            if not (within & (lane.net >= want.requests).all(axis=1)).any():
                return False
        return not isinstance(self.entry(lane, want), Kind)

    def _reserved_entry(self, lane: Lane, requirements: Requirements, want: Want) -> Group | Kind:
        """The group of the largest reservation with an instance left for a pod; RESERVED if this plan took the last."""
        refusal = Kind.TYPES
        for reservation in lane.reservations:
            pinned = requirements.and_(self.reservations.pins(lane, reservation))
            entry = self._within_limits(lane, pinned, want)
            if isinstance(entry, Kind):
                refusal = refusal if entry is Kind.TYPES else entry
            elif self.reservations.openable(entry):
                return entry
            elif self.reservations.taken_here(reservation):
                refusal = Kind.RESERVED
        return refusal

    def openable(self, lane: Lane, group: Group) -> int:
        """How many claims of a group may be opened at once, limits on resources and nodes aside; at least one."""
        if lane.reserved:
            return max(self.reservations.openable(group), 1)
        if lane.steady:
            return 1
        budget = self.budgets[lane.pool.metadata.name]
        return max(budget.spot_openable(), 1) if may_be_spot(group.requirements) else PLENTY

    def opened(self, lane: Lane, group: Group, claims: int, rows: Ints) -> None:
        """Reckon with claims of a group that were opened: reservations and the share of spot.

        `rows` are those of the group that any of the claims may be launched as.
        """
        if lane.reserved:
            self.reservations.take(group, claims)
        budget = self.budgets[lane.pool.metadata.name]
        least = int(lane.table.capacity[lane.table.row_type[rows], 0].min())
        budget.count(claims, steady=not may_be_spot(group.requirements), vcpus=least)

    def _within_limits(self, lane: Lane, requirements: Requirements, want: Want) -> Group | Kind:
        budget = self.budgets[lane.pool.metadata.name]
        allowed = within = self.allowed_rows(lane, want)
        if len(budget.columns):
            within = allowed & budget.allowed(lane.table.capacity)[lane.table.row_type]
        # Most limits still leave the same rows when the lane is asked again.
        key = (lane.index, requirements, want.requests.tobytes())
        rows = np.packbits((allowed, within)).tobytes()
        known = self._within.get(key)
        if known is None or known[0] != rows:
            known = self._within[key] = (rows, self._group_within(lane, requirements, allowed, within, want))
        return known[1]

    def _group_within(
        self, lane: Lane, requirements: Requirements, allowed: Bools, within: Bools, want: Want
    ) -> Group | Kind:
        if within is allowed:
            return self._holding_group(lane, requirements, allowed, want)
        # Asked before a group is made for these rows: a pool at its limit is asked for every class.
        fits = (lane.net >= want.requests).all(axis=1)
        group = self._holding_group(lane, requirements, within, want) if (within & fits).any() else Kind.TYPES
        if isinstance(group, Kind):
            unlimited = self._holding_group(lane, requirements, allowed, want)
            return group if isinstance(unlimited, Kind) else Kind.LIMITS
        return group

    def start(self, lane: Lane, want: Want, *, careful: bool = False) -> Group | Kind:
        """As `entry`, whatever the pod's size; if `careful`, without estimates."""
        requirements = self._joined(lane, want)
        if isinstance(requirements, Kind):
            return requirements
        budget = self.budgets[lane.pool.metadata.name]
        if budget.nodes_left < 1:
            return Kind.NODES
        allowed = self.allowed_rows(lane, want)
        if careful:
            allowed = allowed & lane.table.careful_rows
        within = allowed & budget.allowed(lane.table.capacity)[lane.table.row_type] if len(budget.columns) else allowed
        group = self.open.groups.get(lane, requirements, within)
        if len(group.rows):
            return group
        unlimited = self.open.groups.get(lane, requirements, allowed)
        return Kind.LIMITS if len(unlimited.rows) else Kind.TYPES

    def _holding_group(self, lane: Lane, requirements: Requirements, allowed: Bools, want: Want) -> Group | Kind:
        empty = np.zeros((1, len(want.requests)), np.int64)
        group = self.open.groups.get(lane, requirements, allowed)
        if group.room(empty, want.requests)[0] > 0:
            return group
        if not group.minimums or not group.holding(want.requests).any():
            return Kind.TYPES
        if not self.best_effort:
            return Kind.MIN_VALUES
        holds = group.holding(want.requests)
        lowered = {
            key: min(least, int((group.values(key) & holds).any(axis=1).sum())) for key, least in group.minimums.items()
        }
        return self.open.groups.get(
            lane, requirements, allowed, {key: least for key, least in lowered.items() if least}
        )

    def _joined(self, lane: Lane, want: Want) -> Requirements | Kind:
        key = (lane.index, want.constraint)
        known = self._entries.get(key)
        if known is None:
            if lane.blocked:
                known = Kind.BLOCKED
            elif not _tolerates(lane, want):
                known = Kind.TAINT
            elif not lane.template.compatible(want.term, lane.allow_undefined):
                known = Kind.REQUIREMENTS
            else:
                known = lane.template.and_(want.term.values())
            self._entries[key] = known
        return known

    def allowed_rows(self, lane: Lane, want: Want) -> Bools:
        """Rows [rows] a new claim may use: careful ones, and estimates that no other claim of this plan relies on."""
        table = lane.table
        allowed = self._unheld_rows(table) if table.explores and not want.item.missed else table.careful_rows
        if want.item.ports and lane.daemons.ports is not None:
            free = [not ports_collide(want.item.ports, taken) for taken in lane.daemons.ports]
            allowed = allowed & np.array(free, np.bool_)[table.row_type]
        return allowed

    def _unheld_rows(self, table: TypeTable) -> Bools:
        """Careful rows and the estimates [rows] that no claim holds, remembered until a claim takes or returns one."""
        known = self._unheld.get(id(table))
        if known is None:
            free = [not key or key not in self.holder for key in table.row_key]
            known = self._unheld[id(table)] = np.array(free, np.bool_)
        return known

    def merge(self, group: Group, want: Want) -> Group | None:
        """The group a claim comes into when it takes a pod of this class, or None when it cannot take one."""
        key = (group.index, want.constraint)
        if key not in self._merged:
            self._merged[key] = self._merge(group, want)
        return self._merged[key]

    def _merge(self, group: Group, want: Want) -> Group | None:
        lane = group.lane
        if isinstance(self._joined(lane, want), Kind):
            return None
        if not group.requirements.compatible(want.term, lane.allow_undefined):
            return None
        allowed = group.allowed
        if want.item.missed:
            allowed = allowed & lane.table.careful_rows
        if want.item.ports and lane.daemons.ports is not None:
            free = [not ports_collide(want.item.ports, taken) for taken in lane.daemons.ports]
            allowed = allowed & np.array(free, np.bool_)[lane.table.row_type]
        requirements = group.requirements.and_(want.term.values())
        return self.open.groups.get(lane, requirements, allowed, group.minimums)

    def make_way(self, lane: Lane, want: Want, refusal: Kind) -> Group | Kind:
        """Free what open claims hold without needing it: estimates of unverified types, and room under the limits."""
        if refusal in (Kind.TYPES, Kind.MIN_VALUES) and lane.table.explores and self._release_pilots():
            return self.entry(lane, want)
        if refusal is Kind.LIMITS:
            for squeeze in (False, True):
                entry = self._recharge(lane, want, squeeze=squeeze)
                if not isinstance(entry, Kind):
                    return entry
        return refusal

    def _release_pilots(self) -> bool:
        """Take estimates back from claims whose load fits the careful bound, or no longer fits the estimate."""
        freed = False
        for place in sorted(set(self.holder.values())):
            claim = self.open.claims[place]
            table = claim.group.lane.table
            holds = claim.group.rows[claim.group.holding(self.open.used[place])]
            careful = set(table.row_type[holds[~table.row_estimate[holds]]].tolist())
            needed = {
                table.row_key[row]
                for row in holds[table.row_estimate[holds]].tolist()
                if int(table.row_type[row]) not in careful
            }
            released = [key for key, holder in self.holder.items() if holder == place and key not in needed]
            if released:
                freed = True
                self._unheld.clear()
                for key in released:
                    del self.holder[key]
                keep = np.array([not key or key in needed for key in table.row_key], np.bool_)
                self.open.restrict(place, claim.group.allowed & keep)
        return freed

    def _recharge(self, lane: Lane, want: Want, *, squeeze: bool) -> Group | Kind:
        """Charge the pool's claims with no more than they need, if that makes room for one more.

        Types that no longer hold a claim's load stop counting; with `squeeze` claims also give up types larger than the
        one they would launch.
        """
        pool = lane.pool.metadata.name
        budget = self.budgets[pool]
        slim = self._slimmer(pool, squeeze=squeeze)
        if not slim.gain.any():
            return Kind.LIMITS
        before = budget.left.copy()
        budget.left[budget.columns] += slim.gain
        entry = self.entry(lane, want)
        if isinstance(entry, Kind):
            budget.left = before
            return entry
        for place, (charge, allowed) in zip(slim.places, slim.least, strict=True):
            self.open.charges[place] = charge
            if squeeze and allowed is not self.open.claims[place].group.allowed:
                self.open.restrict(place, allowed)
        self.open.changes += 1
        return entry

    def _slimmer(self, pool: str, *, squeeze: bool) -> _Slim:
        """The pool's claims with the least they can be charged and the rows they keep then.

        Remembered while no claim changes, because a pool at its limit is asked again for every class; and claim by
        claim, because few of them change in between.
        """
        known = self._slim.get((pool, squeeze))
        if known is not None and known.changes == self.open.changes:
            return known
        columns = self.budgets[pool].columns
        places = [place for place, claim in enumerate(self.open.claims) if claim.group.lane.pool.metadata.name == pool]
        loads = self.open.used
        least: list[tuple[Ints, Bools]] = []
        for place in places:
            group, load = self.open.claims[place].group, loads[place]
            key = (group.index, load.tobytes(), squeeze)
            one = self._least.get(key)
            if one is None:
                one = self._least[key] = _least(group, load, columns, squeeze=squeeze)
            least.append(one)
        gain = np.zeros(len(columns), np.int64)
        if places:
            charges = np.array([charge for charge, _ in least], np.int64)
            gain = (self.open.charges[places] - charges).sum(axis=0)[columns]
        known = self._slim[pool, squeeze] = _Slim(self.open.changes, places, least, gain)
        return known


class _Slim(msgspec.Struct, frozen=True, eq=False):
    """The claims of a pool at `places`, each with the `least` it can be charged and the rows [rows] it keeps then.

    `gain` [limited resources] is what its limits would get back; true as long as open claims have seen `changes`.
    """

    changes: int
    places: list[int]
    least: list[tuple[Ints, Bools]]
    gain: Ints


def _least(group: Group, load: Ints, columns: Ints, *, squeeze: bool) -> tuple[Ints, Bools]:
    """The least that a claim with this load [resources] can be charged and the rows [rows] it keeps then."""
    table = group.lane.table
    holds = group.rows[group.holding(load)]
    allowed = group.allowed
    if squeeze and not group.minimums:
        launch = table.capacity[table.row_type[holds[0]]]
        small = (table.capacity[:, columns] <= launch[columns]).all(axis=1)[table.row_type]
        if not small[allowed].all():
            allowed = allowed & small
        holds = holds[small[holds]]
    return table.capacity[table.row_type[holds]].max(axis=0), allowed


def estimates(group: Group) -> list[str]:
    """The pilot keys of the estimate rows that a claim of this group may use."""
    table = group.lane.table
    return [table.row_key[row] for row in group.rows[table.row_estimate[group.rows]].tolist()]


def _tolerates(lane: Lane, want: Want) -> bool:
    taints = lane.pool.spec.template.spec.taints
    return untolerated(taints, want.item.tolerations, ignore_preferences=want.soft) is None
