"""First-fit-decreasing over classes of pods, placing all pods of a class at once.

Order of targets: nodes that exist or are in flight, claims opened by this decision, then a new claim in the first lane
that can hold the pod. Counts are closed-form per node and claim, so the cost does not grow with the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.classes import HostPort, PodClass, ports_collide
from shiplap.scheduling.groups import Group, Groups
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.nodes import NodeTable
from shiplap.scheduling.resources import Axis, Bools, Ints
from shiplap.scheduling.universe import TypeTable


class Kind(StrEnum):
    """Why a lane was passed over."""

    BLOCKED = "blocked"
    TAINT = "taint"
    REQUIREMENTS = "requirements"
    TYPES = "types"
    MIN_VALUES = "minValues"
    LIMITS = "limits"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """A lane could not open a claim for a class; `left` [resources] is what its limits left then."""

    lane: Lane
    kind: Kind
    want: Want
    left: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """A class in one attempt: one of its node-affinity terms, PreferNoSchedule tolerated or not.

    `constraint` numbers what matters for which claims suit, so that classes of different size share answers.
    """

    item: PodClass
    term: Requirements
    soft: bool
    requests: Ints
    constraint: int


@dataclass(slots=True, eq=False)
class OpenClaim:
    """The parts of a claim that are not arrays."""

    group: Group
    pods: list[tuple[PodClass, Sequence[Pod]]] = field(default_factory=list)
    ports: set[HostPort] = field(default_factory=set)
    skipped: tuple[Refusal, ...] = ()
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class Packing:
    """The outcome: claims with their loads [claims, resources], filled nodes, and pods that fit nowhere by class.

    `packer` still knows what is left of limits and estimates.
    """

    claims: list[OpenClaim]
    used: Ints
    nodes: NodeTable
    unplaced: dict[int, list[Pod]]
    packer: Packer


class Packer:
    """One run over all classes, in the order given to `run`."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        nodes: NodeTable,
        axis: Axis,
        *,
        best_effort: bool,
        groups: Groups,
    ) -> None:
        self.lanes = lanes
        self.nodes = nodes.copy()
        self.axis = axis
        self.best_effort = best_effort
        self.groups = groups
        self.budgets = {lane.pool.metadata.name: lane.budget.copy() for lane in lanes}
        self.claims: list[OpenClaim] = []
        self.used: Ints = np.zeros((64, len(axis)), np.int64)
        self.group_of: Ints = np.zeros(64, np.int64)
        self.charges: Ints = np.zeros((64, len(axis)), np.int64)
        self.holder: dict[str, int] = {}
        self._unheld: dict[int, Bools] = {}
        self._soft_possible = nodes.has_preferences or any(
            taint.effect == "PreferNoSchedule" for lane in lanes for taint in lane.pool.spec.template.spec.taints
        )
        self._mixed_levels = len({lane.level for lane in lanes}) > 1
        self._constraints: dict[object, int] = {}
        self._merged: dict[tuple[int, int], Group | None] = {}
        self._entries: dict[tuple[int, int], Requirements | Kind] = {}

    def run(self, classes: Iterable[PodClass]) -> Packing:
        """Place the members of each class, in this order; pods promised a claim in flight come first."""
        classes = list(classes)
        kept = self._keep_promises(classes)
        waiting = [(item, [pod for pod in item.members if id(pod) not in kept]) for item in classes]
        before = -1
        while waiting and (number := sum(len(pods) for _, pods in waiting)) != before:
            # Claims that were filled further may need less of a limit, so that another round can place more.
            before = number
            waiting = [(item, left) for item, pods in waiting if (left := self._place(item, pods))]
        unplaced = {item.index: left for item, left in waiting}
        used = self.used[: len(self.claims)]
        return Packing(self.claims, used, self.nodes, unplaced, self)

    def _keep_promises(self, classes: Sequence[PodClass]) -> set[int]:
        """Put pods on the claims in flight that were opened for them; returns the identities of those that still fit.

        Otherwise a newcomer could take their room, and they would be launched for a second time.
        """
        kept: set[int] = set()
        if not any(room.promised for room in self.nodes.rooms):
            return kept
        waiting = {
            token: (item, pod) for item in classes for pod in item.members for token in (pod.key, pod.metadata.uid)
        }
        suits: dict[int, Bools] = {}
        for place, room in enumerate(self.nodes.rooms):
            for token in sorted(room.promised):
                item, pod = waiting.get(token, (None, None))
                if item is None or pod is None or id(pod) in kept:
                    continue
                if item.index not in suits:
                    suits[item.index] = self.nodes.fits(item, soft=True)
                requests = self.axis.vector(item.requests)
                if suits[item.index][place] and self.nodes.takes(item, place, requests):
                    self.nodes.place(item, place, [pod], requests)
                    kept.add(id(pod))
        return kept

    def wants(self, item: PodClass) -> list[Want]:
        """The attempts to place a class: each term in turn, then the last with PreferNoSchedule tolerated."""
        requests = self.axis.vector(item.requests)
        attempts = [(term, False) for term in item.terms]
        if self._soft_possible:
            attempts.append((item.terms[-1], True))
        return [Want(item, term, soft, requests, self._constraint(item, term, soft=soft)) for term, soft in attempts]

    def _constraint(self, item: PodClass, term: Requirements, *, soft: bool) -> int:
        key = (term, item.tolerations, item.ports, item.missed, soft)
        return self._constraints.setdefault(key, len(self._constraints))

    def _place(self, item: PodClass, pods: list[Pod]) -> list[Pod]:
        previous_soft: bool | None = None
        for want in self.wants(item):
            if want.soft is not previous_soft:  # nodes are asked for all terms at once
                pods = self._fill_nodes(want, pods)
                previous_soft = want.soft
            if pods:
                pods = self._fill_claims(want, pods)
            if pods:
                pods = self._open_claims(want, pods)
            if not pods:
                break
        return pods

    def _fill_nodes(self, want: Want, pods: list[Pod]) -> list[Pod]:
        if not self.nodes.rooms:
            return pods
        many = self.nodes.count(want.item, self.nodes.fits(want.item, soft=want.soft), want.requests)
        taken = _first_fit(many, len(pods))
        for place in np.flatnonzero(taken).tolist():
            number = int(taken[place])
            self.nodes.place(want.item, place, pods[:number], want.requests)
            pods = pods[number:]
        return pods

    def _fill_claims(self, want: Want, pods: list[Pod]) -> list[Pod]:
        count = len(self.claims)
        if not count:
            return pods
        level = self._best_level(want) if self._mixed_levels else None
        groups = self.group_of[:count]
        many = np.zeros(count, np.int64)
        targets: dict[int, Group] = {}
        for number in np.unique(groups).tolist():
            target = self.merge(self.groups.all[number], want)
            if target is None:
                continue
            targets[number] = target
            members = np.flatnonzero(groups == number)
            used = self.used[members]
            many[members] = target.room(used, want.requests)
            if level is not None and target.lane.level > level:
                many[members] = np.minimum(
                    many[members], _paid_room(self.groups.all[number], target, used, want.requests)
                )
        if want.item.ports:
            for place in np.flatnonzero(many).tolist():
                many[place] = 0 if ports_collide(want.item.ports, self.claims[place].ports) else 1
        taken = _first_fit(many, len(pods))
        for place in np.flatnonzero(taken).tolist():
            number = int(taken[place])
            self._add(place, targets[int(groups[place])], want, pods[:number])
            pods = pods[number:]
        return pods

    def _best_level(self, want: Want) -> tuple[int, int] | None:
        """The level of the first lane that could open a claim; claims of later levels are filled but not enlarged."""
        for lane in self.lanes:
            if not isinstance(self.entry(lane, want), Kind):
                return lane.level
        return None

    def _add(self, place: int, group: Group, want: Want, pods: list[Pod]) -> None:
        claim = self.claims[place]
        claim.group = group
        claim.pods.append((want.item, pods))
        claim.ports |= want.item.ports
        self.group_of[place] = group.index
        self.used[place] += want.requests * len(pods)

    def _open_claims(self, want: Want, pods: list[Pod]) -> list[Pod]:
        skipped: list[Refusal] = []
        for lane in self.lanes:
            budget = self.budgets[lane.pool.metadata.name]
            while pods:
                entry = self.entry(lane, want)
                if isinstance(entry, Kind):
                    entry = self._make_way(lane, want, entry)
                if isinstance(entry, Kind):
                    skipped.append(Refusal(lane, entry, want, budget.left.copy()))
                    break
                pods = self._open(lane, entry, want, pods, tuple(skipped))
            if not pods:
                break
        return pods

    def _open(self, lane: Lane, group: Group, want: Want, pods: list[Pod], skipped: tuple[Refusal, ...]) -> list[Pod]:
        """Open as many claims as can be told to be alike; at least one."""
        budget = self.budgets[lane.pool.metadata.name]
        empty = np.zeros((1, len(self.axis)), np.int64)
        each = 1 if want.item.ports else int(group.room(empty, want.requests)[0])
        holding = group.rows[group.holding(want.requests)]
        charge = lane.table.capacity[lane.table.row_type[holding]].max(axis=0)
        pilots = [lane.table.row_key[row] for row in group.rows[lane.table.row_estimate[group.rows]].tolist()]
        claims = 1 if pilots else min(-(-len(pods) // each), max(budget.openable(charge), 1))
        relaxed = group.minimums != {
            key: entry.min_values for key, entry in group.requirements.items() if entry.min_values
        }
        for _ in range(claims):
            place = len(self.claims)
            self._reserve(place)
            self.claims.append(OpenClaim(group, skipped=skipped, relaxed=relaxed))
            self.charges[place] = charge
            if pilots:
                self.holder |= dict.fromkeys(pilots, place)
                self._unheld.clear()
            self._add(place, group, want, pods[:each])
            pods = pods[each:]
        budget.charge(charge, claims)
        return pods

    def _reserve(self, place: int) -> None:
        if place == len(self.used):
            self.used = np.concatenate([self.used, np.zeros_like(self.used)])
            self.charges = np.concatenate([self.charges, np.zeros_like(self.charges)])
            self.group_of = np.concatenate([self.group_of, np.zeros_like(self.group_of)])

    def entry(self, lane: Lane, want: Want) -> Group | Kind:
        """The group a new claim would start in, or why this lane cannot open one now."""
        requirements = self._joined(lane, want)
        if isinstance(requirements, Kind):
            return requirements
        budget = self.budgets[lane.pool.metadata.name]
        if budget.nodes_left < 1:
            return Kind.NODES
        allowed = self.allowed_rows(lane, want)
        within = allowed
        if len(budget.columns):
            within = allowed & budget.allowed(lane.table.capacity)[lane.table.row_type]
        group = self._holding_group(lane, requirements, within, want)
        if isinstance(group, Kind) and within is not allowed:
            unlimited = self._holding_group(lane, requirements, allowed, want)
            return group if isinstance(unlimited, Kind) else Kind.LIMITS
        return group

    def _holding_group(self, lane: Lane, requirements: Requirements, allowed: Bools, want: Want) -> Group | Kind:
        empty = np.zeros((1, len(self.axis)), np.int64)
        group = self.groups.get(lane, requirements, allowed)
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
        return self.groups.get(lane, requirements, allowed, {key: least for key, least in lowered.items() if least})

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
        return self.groups.get(lane, requirements, allowed, group.minimums)

    def _make_way(self, lane: Lane, want: Want, refusal: Kind) -> Group | Kind:
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
            claim = self.claims[place]
            table = claim.group.lane.table
            holds = claim.group.rows[claim.group.holding(self.used[place])]
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
                self._regroup(place, claim.group.allowed & keep)
        return freed

    def _regroup(self, place: int, allowed: Bools) -> None:
        claim = self.claims[place]
        group = claim.group
        claim.group = self.groups.get(group.lane, group.requirements, allowed, group.minimums)
        self.group_of[place] = claim.group.index

    def _recharge(self, lane: Lane, want: Want, *, squeeze: bool) -> Group | Kind:
        """Charge the pool's claims with no more than they need, if that makes room for one more.

        Types that no longer hold a claim's load stop counting; with `squeeze` claims also give up types larger than the
        one they would launch.
        """
        pool = lane.pool.metadata.name
        budget = self.budgets[pool]
        mine = [place for place, claim in enumerate(self.claims) if claim.group.lane.pool.metadata.name == pool]
        # No claim can be charged less than its load, so this bound spares the work when the pool is simply full.
        slack = (self.charges[mine] - self.used[mine]).clip(min=0).sum(axis=0) if mine else 0
        if not (lane.table.capacity <= np.maximum(budget.left + slack, 0))[:, budget.columns].all(axis=1).any():
            return Kind.LIMITS
        narrowed: list[tuple[int, Ints, Bools]] = []
        for place in mine:
            group = self.claims[place].group
            table = group.lane.table
            holds = group.rows[group.holding(self.used[place])]
            allowed = group.allowed
            if squeeze and not group.minimums:
                launch = table.capacity[table.row_type[holds[0]]]
                small = (table.capacity[:, budget.columns] <= launch[budget.columns]).all(axis=1)[table.row_type]
                allowed = allowed & small
                holds = holds[small[holds]]
            narrowed.append((place, table.capacity[table.row_type[holds]].max(axis=0), allowed))
        before = budget.left.copy()
        for place, charge, _ in narrowed:
            budget.left[budget.columns] += (self.charges[place] - charge)[budget.columns]
        entry = self.entry(lane, want)
        if isinstance(entry, Kind):
            budget.left = before
            return entry
        for place, charge, allowed in narrowed:
            self.charges[place] = charge
            if squeeze:
                self._regroup(place, allowed)
        return entry


def _tolerates(lane: Lane, want: Want) -> bool:
    taints = lane.pool.spec.template.spec.taints
    return untolerated(taints, want.item.tolerations, ignore_preferences=want.soft) is None


def _first_fit(many: Ints, number: int) -> Ints:
    """How many of `number` pods each target takes when targets that could take `many` are filled in order."""
    many = np.minimum(many, number)
    before = np.cumsum(many) - many
    taken: Ints = np.clip(number - before, 0, many)
    return taken


def _paid_room(group: Group, target: Group, used: Ints, requests: Ints) -> Ints:
    """How many pods each claim takes without leaving the row it would launch now."""
    first = group.cheapest(used)
    rows = group.rows[np.maximum(first, 0)]
    kept = (first >= 0) & np.isin(rows, target.rows)
    free = group.lane.net[rows] - used
    wanted = requests > 0
    many = np.where((free >= 0).all(axis=1), (free[:, wanted] // requests[wanted]).min(axis=1), 0)
    return np.where(kept, np.maximum(many, 0), 0)
