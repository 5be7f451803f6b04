"""Finds a claim for a pod that no node has room for: one that is open already, or a new one in some template.

`PossibleNodes` says which nodes templates allow for a pod at all, `Openings` which of them can be opened now.
A template refuses for one of the reasons in `RefusalKind`. Before a refusal counts, open claims give back what they
hold without needing it: estimates of types nobody has run yet, and room under the pool's limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.resources import PLENTY, Bools, Floats, Ints, pods_held
from shiplap.scheduling.supply.daemons import NO_COMPANY
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap.scheduling.supply.open_claims import ClaimGroup, ClaimGroups, OpenClaims, PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.reservations import Reservations
from shiplap.scheduling.supply.room_by_state import RoomByState
from shiplap.scheduling.supply.templates import NodeClaimTemplate, may_be_spot

_LEAST_MERGES = BOUNDS.group_comparisons // 1000
"""The least share of a class, however many classes there are."""


class CheapestPlace(msgspec.Struct, frozen=True, eq=False):
    """A place for the next pod: the open claim at `place`, which comes into `group` by it, or a new one (None).

    `added` is what the pod adds to the price, in USD per hour. At most `most` pods may go there before other targets
    are asked.
    """

    attempt: PlacementAttempt
    added: float
    place: int | None = None
    group: ClaimGroup | None = None
    most: int = 1


class PossibleNodes:
    """The nodes that templates allow for a pod, whatever is left of limits, reservations and estimates at the moment.

    Domains of topology constraints are computed from this, so that nothing that decides whether a pod gets a node can
    decide where its siblings go. It therefore knows no open claims, and of limits only those of 0: with them a NodePool
    says that it has no such nodes. Answers are remembered as long as a packing lasts.
    """

    def __init__(self, templates: Sequence[NodeClaimTemplate], groups: ClaimGroups, *, best_effort: bool) -> None:
        """With `best_effort` a minValues that no list can keep is lowered to what the types have."""
        self.templates = templates
        self._groups = groups
        self.best_effort = best_effort
        self._joined: dict[tuple[int, int], Requirements | RefusalKind] = {}
        self._allowed: dict[int, Bools] = {}

    def suits(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
        """True if taints and requirements let a template's nodes take pods of a class, whatever their size."""
        return not isinstance(self.joined(template, attempt), RefusalKind)

    def joined(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> Requirements | RefusalKind:
        """The requirements of a template's node for a pod of a class, or which of its rules keep the pod out."""
        key = (template.index, attempt.constraint)
        known = self._joined.get(key)
        if known is None:
            if template.blocked:
                known = RefusalKind.BLOCKED
            elif not _tolerates(template, attempt):
                known = RefusalKind.TAINT
            elif not template.requirements.compatible(attempt.term, template.allow_undefined):
                known = RefusalKind.REQUIREMENTS
            else:
                known = template.requirements.and_(attempt.term.values())
            self._joined[key] = known
        return known

    def rows(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> Bools:
        """The rows [rows] that a node for a pod may be of, estimates included unless its last node was too small."""
        table = template.table
        allowed = self._allowed.get(template.index)
        if allowed is None:
            allowed = ~template.limits.forbidden(table.capacity)[table.row_type]
            self._allowed[template.index] = allowed
        rows = allowed & beside_daemons(template, attempt)
        return rows & table.careful_rows if attempt.pod_class.missed else rows

    def entry(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """The group that a node for one pod would be in, or why the template has no such node."""
        requirements = self.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        return self.holding_group(template, requirements, self.rows(template, attempt), attempt)

    def has_node(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
        """True if the template has a node for one pod."""
        return not isinstance(self.entry(template, attempt), RefusalKind)

    def group(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """As `entry`, whatever the size of the pod."""
        requirements = self.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        group = self._groups.get(template, requirements, self.rows(template, attempt))
        return group if len(group.rows) else RefusalKind.TYPES

    def holding_group(
        self, template: NodeClaimTemplate, requirements: Requirements, allowed: Bools, attempt: PlacementAttempt
    ) -> ClaimGroup | RefusalKind:
        """The group of a node with these requirements and rows [rows] that holds one pod."""
        group = self._groups.get(template, requirements, allowed)
        holds = group.holding(attempt.requests)
        if not holds.any():
            return RefusalKind.TYPES
        empty = np.zeros((1, len(attempt.requests)), np.int64)
        if not group.minimums or group.room(empty, attempt.requests)[0] > 0:
            return group
        if not self.best_effort:
            return RefusalKind.MIN_VALUES
        return self._groups.get(template, requirements, allowed, _attainable_minimums(group, holds))


def _attainable_minimums(group: ClaimGroup, holds: Bools) -> dict[str, int]:
    """The minValues of a group, each lowered to what one variant of its nodes has among the rows that `holds` names.

    The types of a list are all in one variant, so what several have together helps no list.
    """
    variants = group.rows % len(group.template.variants.all)
    counts = [
        tuple(int((group.values(key) & holds & (variants == variant)).any(axis=1).sum()) for key in group.minimums)
        for variant in np.unique(variants[holds]).tolist()
    ]
    lowered = {key: min(least, most) for (key, least), most in zip(group.minimums.items(), max(counts), strict=True)}
    return {key: least for key, least in lowered.items() if least}


def _by_weight_and_pool(templates: Iterable[NodeClaimTemplate]) -> list[list[list[NodeClaimTemplate]]]:
    weights = (some for _, some in groupby(templates, lambda template: template.pool.spec.weight))
    return [[list(some) for _, some in groupby(pools, lambda template: template.tier.pool)] for pools in weights]


class Openings:
    """Answers for one packing. `pool_limits` are by pool name; `holder` is the claim that relies on each estimate."""

    def __init__(
        self,
        templates: Sequence[NodeClaimTemplate],
        limits: Mapping[str, PoolLimits],
        open_claims: OpenClaims,
        *,
        best_effort: bool,
    ) -> None:
        """`limits` are those of the NodePools by name, before anything is opened."""
        self.templates = templates
        self.open = open_claims
        self.possible = PossibleNodes(templates, open_claims.groups, best_effort=best_effort)
        self.pool_limits = {pool: left.copy() for pool, left in limits.items()}
        self.reservations = Reservations(templates, open_claims)
        self.holder: dict[str, int] = {}
        self._unheld: dict[int, Bools] = {}
        self._slim: dict[tuple[str, bytes], _LeastCharges] = {}
        self._least: dict[tuple[int, bytes, bytes], tuple[Ints, Bools]] = {}
        self._careful_starts: dict[tuple[int, int], ClaimGroup | RefusalKind] = {}
        self._merged: dict[tuple[int, int], ClaimGroup | None] = {}
        self.merges: dict[int, int] = {}
        """How many groups each class, by its index, was compared with, and was to be beyond its share."""
        self._most_merges = BOUNDS.group_comparisons
        self._by_pool = _by_weight_and_pool(templates)
        self._tied = [pools for pools in self._by_pool if len(pools) > 1]
        self._best_of_all = min((template.level for template in templates), default=None)
        self._same_level = len({template.level for template in templates}) < 2
        self._by_index = {template.index: template for template in templates}
        self._reserves = any(template.reserved or template.steady for template in templates)
        self._rooms: dict[tuple[int, bytes], RoomByState] = {}
        self._new_prices: dict[tuple[int, bytes, bool], tuple[object, float]] = {}
        self._known_least: dict[tuple[int, int, int], _LeastAdded] = {}
        self._orders: dict[tuple[int, bytes, bool, int], tuple[object, Sequence[NodeClaimTemplate]]] = {}
        self._holds = 0
        self._best: tuple[tuple[int, int, object], tuple[int, int] | None] | None = None
        self._within: dict[tuple[int, Requirements, bytes], tuple[bytes, ClaimGroup | RefusalKind]] = {}

    def in_order(self, attempt: PlacementAttempt, number: int) -> Sequence[NodeClaimTemplate]:
        """The templates in the order in which they are tried for pods: by weight of their NodePools, then by price.

        The price of a NodePool is that of nodes of its first template that has one for such pods. Its name breaks ties,
        and its templates stay together, so that its tiers keep their order.

        Args:
            attempt: of the pods.
            number: how many equal pods are to be placed, or may be on one node if that is less.
        """
        if not self._tied:
            return self.templates
        key = (attempt.constraint, attempt.requests.tobytes(), attempt.pod_class.missed, number)
        now = self._allowances()
        known = self._orders.get(key)
        if known is None or known[0] != now:
            known = self._orders[key] = (now, self._ordered(attempt, number))
        return known[1]

    def _ordered(self, attempt: PlacementAttempt, number: int) -> Sequence[NodeClaimTemplate]:
        def price(pool: Sequence[NodeClaimTemplate]) -> float:
            prices = (entry.price_of_pods(attempt.requests, number) for entry in self._entries(pool, attempt))
            return next(prices, np.inf)

        ordered = (sorted(pools, key=price) if len(pools) > 1 else pools for pools in self._by_pool)
        return [template for pools in ordered for pool in pools for template in pool]

    def cheapest_pools(self, attempt: PlacementAttempt, requests: Ints) -> Ints:
        """The NodePool [weights, pods] that sells room to each pod [pods, resources] for least, by its place.

        Only weights of several NodePools count. All pods have the constraints of `attempt`.
        """
        return np.array([self._cheapest(pools, attempt, requests) for pools in self._tied], np.int64).reshape(
            len(self._tied), len(requests)
        )

    def _cheapest(
        self, pools: Sequence[Sequence[NodeClaimTemplate]], attempt: PlacementAttempt, requests: Ints
    ) -> Ints:
        prices = np.full((len(pools), len(requests)), np.inf)
        for pool, line in zip(pools, prices, strict=True):
            for entry in self._entries(pool, attempt):
                line[:] = np.where(np.isfinite(line), line, entry.prices_of_parts(requests))
        cheapest: Ints = prices.argmin(axis=0)
        return cheapest

    def _entries(self, pool: Iterable[NodeClaimTemplate], attempt: PlacementAttempt) -> Iterator[ClaimGroup]:
        """The groups that claims of a NodePool start in, by its templates; those that limits allow now go first."""
        for entry_of in (self.entry, self.possible.entry):
            for template in pool:
                entry = entry_of(template, attempt)
                if not isinstance(entry, RefusalKind):
                    yield entry

    def _best_level(self, attempt: PlacementAttempt) -> tuple[int, int] | None:
        """The level of the first template that could open a claim; claims of later levels are filled but not enlarged.

        Remembered while limits and estimates stay, because every group of claims asks.
        """
        key = (attempt.constraint, attempt.pod_class.index, self._allowances())
        if self._best is None or self._best[0] != key:
            opening = (
                template.level
                for template in self.in_order(attempt, len(attempt.pod_class.members))
                if not isinstance(self.entry(template, attempt), RefusalKind)
            )
            self._best = (key, next(opening, None))
        return self._best[1]

    def take_estimates(self, group: ClaimGroup, place: int) -> None:
        """The claim at `place` now relies on the estimates among its group's rows; no other claim may."""
        keys = estimates(group)
        if keys:
            self.holder |= dict.fromkeys(keys, place)
            self._unheld.clear()
            self._holds += 1

    def entry(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """The group a new claim would start in, or why this template cannot open one now."""
        requirements = self.possible.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        limits = self.pool_limits[template.pool.metadata.name]
        if limits.nodes_left < 1:
            return RefusalKind.NODES
        if limits.spot_bound is not None and may_be_spot(requirements) and not limits.spot_openable():
            return RefusalKind.SPOT_SHARE
        if template.reserved:
            return self._reserved_entry(template, requirements, attempt)
        return self._within_limits(template, requirements, attempt)

    def _reserved_entry(
        self, template: NodeClaimTemplate, requirements: Requirements, attempt: PlacementAttempt
    ) -> ClaimGroup | RefusalKind:
        """The group of the largest reservation with an instance left for a pod; RESERVED if this plan took the last."""
        refusal = RefusalKind.TYPES
        for reservation in template.reservations:
            pinned = requirements.and_(self.reservations.pins(template, reservation))
            entry = self._within_limits(template, pinned, attempt)
            if isinstance(entry, RefusalKind):
                refusal = refusal if entry is RefusalKind.TYPES else entry
            elif self.reservations.openable(entry):
                return entry
            elif self.reservations.taken_here(reservation):
                refusal = RefusalKind.RESERVED
        return refusal

    def openable(self, template: NodeClaimTemplate, group: ClaimGroup) -> int:
        """Return how many claims of a group may open at once, limits on resources and nodes aside; at least one."""
        if template.reserved:
            return max(self.reservations.openable(group), 1)
        if template.steady:
            return 1
        limits = self.pool_limits[template.pool.metadata.name]
        return max(limits.spot_openable(), 1) if may_be_spot(group.requirements) else PLENTY

    def opened(self, template: NodeClaimTemplate, group: ClaimGroup, claims: int, rows: Ints) -> None:
        """Reckon with claims of a group that were opened: reservations and the share of spot.

        `rows` are those of the group that any of the claims may be launched as.
        """
        if template.reserved:
            self.reservations.take(group, claims)
        limits = self.pool_limits[template.pool.metadata.name]
        least = int(template.table.capacity[template.table.row_type[rows], 0].min())
        limits.count(claims, steady=not may_be_spot(group.requirements), vcpus=least)

    def _within_limits(
        self, template: NodeClaimTemplate, requirements: Requirements, attempt: PlacementAttempt
    ) -> ClaimGroup | RefusalKind:
        limits = self.pool_limits[template.pool.metadata.name]
        allowed = within = self.allowed_rows(template, attempt)
        if len(limits.columns):
            within = allowed & limits.allowed(template.table.capacity)[template.table.row_type]
        # Most limits still leave the same rows when the template is asked again.
        key = (template.index, requirements, attempt.requests.tobytes())
        rows = np.packbits((allowed, within)).tobytes()
        known = self._within.get(key)
        if known is None or known[0] != rows:
            known = self._within[key] = (rows, self._group_within(template, requirements, allowed, within, attempt))
        return known[1]

    def _group_within(
        self,
        template: NodeClaimTemplate,
        requirements: Requirements,
        allowed: Bools,
        within: Bools,
        attempt: PlacementAttempt,
    ) -> ClaimGroup | RefusalKind:
        if within is allowed:
            return self.possible.holding_group(template, requirements, allowed, attempt)
        # Asked before a group is made for these rows: a pool at its limit is asked for every class.
        fits = (template.net >= attempt.requests).all(axis=1)
        group = (
            self.possible.holding_group(template, requirements, within, attempt)
            if (within & fits).any()
            else RefusalKind.TYPES
        )
        if isinstance(group, RefusalKind):
            unlimited = self.possible.holding_group(template, requirements, allowed, attempt)
            return group if isinstance(unlimited, RefusalKind) else RefusalKind.LIMITS
        return group

    def careful_start(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """As `start`, without estimates, and remembered: as limits and claims were when it was asked first."""
        key = (template.index, attempt.constraint)
        known = self._careful_starts.get(key)
        if known is None:
            known = self._careful_starts[key] = self.start(template, attempt, careful=True)
        return known

    def start(
        self, template: NodeClaimTemplate, attempt: PlacementAttempt, *, careful: bool = False
    ) -> ClaimGroup | RefusalKind:
        """As `entry`, whatever the pod's size; if `careful`, without estimates."""
        requirements = self.possible.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        limits = self.pool_limits[template.pool.metadata.name]
        if limits.nodes_left < 1:
            return RefusalKind.NODES
        allowed = self.allowed_rows(template, attempt)
        if careful:
            allowed = allowed & template.table.careful_rows
        within = (
            allowed & limits.allowed(template.table.capacity)[template.table.row_type]
            if len(limits.columns)
            else allowed
        )
        group = self.open.groups.get(template, requirements, within)
        if len(group.rows):
            return group
        unlimited = self.open.groups.get(template, requirements, allowed)
        return RefusalKind.LIMITS if len(unlimited.rows) else RefusalKind.TYPES

    def allowed_rows(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> Bools:
        """Rows [rows] a new claim may use: careful ones, and estimates that no other claim of this plan relies on."""
        table = template.table
        allowed = self._unheld_rows(table) if table.explores and not attempt.pod_class.missed else table.careful_rows
        return allowed & beside_daemons(template, attempt)

    def _unheld_rows(self, table: TypeTable) -> Bools:
        """Careful rows and the estimates [rows] that no claim holds, remembered until a claim takes or returns one."""
        known = self._unheld.get(id(table))
        if known is None:
            free = [not key or key not in self.holder for key in table.row_key]
            known = self._unheld[id(table)] = np.array(free, np.bool_)
        return known

    def share_merges(self, classes: int) -> None:
        """Let each of so many classes be compared with as many groups of claims."""
        self._most_merges = max(_LEAST_MERGES, BOUNDS.group_comparisons // max(classes, 1))

    def unmerged(self) -> dict[int, str]:
        """Words for the classes, by their index, that were denied comparisons with groups of claims."""
        most = self._most_merges
        return {
            index: f"pods were compared with {most} kinds of planned nodes, and {number - most} times with no more"
            for index, number in self.merges.items()
            if number > most
        }

    def merge(self, group: ClaimGroup, attempt: PlacementAttempt) -> ClaimGroup | None:
        """The group a claim comes into when it takes a pod of this class, or None when it cannot take one.

        A class that was compared with its share of groups has no more room on claims of further groups: pods that each
        have constraints of their own would be compared with each other.
        """
        key = (group.index, attempt.constraint)
        if key not in self._merged:
            index = attempt.pod_class.index
            self.merges[index] = self.merges.get(index, 0) + 1
            if self.merges[index] > self._most_merges:
                return None
            self._merged[key] = self._merge(group, attempt)
        return self._merged[key]

    def _merge(self, group: ClaimGroup, attempt: PlacementAttempt) -> ClaimGroup | None:
        template = group.template
        if isinstance(self.possible.joined(template, attempt), RefusalKind):
            return None
        if not group.requirements.compatible(attempt.term, template.allow_undefined):
            return None
        allowed = group.allowed
        if attempt.pod_class.missed:
            allowed = allowed & template.table.careful_rows
        allowed = allowed & beside_daemons(template, attempt)
        requirements = group.requirements.and_(attempt.term.values())
        return self.open.groups.get(template, requirements, allowed, group.minimums)

    def fill(self, place: int, group: ClaimGroup, attempt: PlacementAttempt, pods: Sequence[Pod]) -> None:
        """Put pods of a class on an open claim, which comes into `group` by it."""
        self.open.load(place, group, attempt.requests * len(pods))
        claim = self.open.claims[place]
        claim.pods.append((attempt.pod_class, pods))
        claim.ports |= attempt.pod_class.ports
        if attempt.level:
            claim.relaxations.append(attempt)

    def takers(self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None) -> Ints:
        """Return how many pods of an attempt each open claim takes [claims].

        Args:
            attempt: of the pods.
            bound: the most pods that each claim may take [claims], if there is a bound.
            inside: the claims [claims] that count; None if all do.
        """
        states, room, some = self._looked_at(attempt, bound, inside)
        unasked = states if some is None else states[some]
        self._ask(room, attempt, unasked[room.many[unasked] < 0])
        many: Ints = np.maximum(room.many[states], 0)
        if some is not None:
            many[~some] = 0
        if attempt.pod_class.ports:
            np.minimum(many, 1, out=many)
        return many if bound is None else np.minimum(many, bound)

    def cheapest_claim(
        self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None, most: int, *, joining: bool
    ) -> CheapestPlace | None:
        """The open claim whose price a pod raises least; None if none takes it.

        Among equals it is the first one; with `joining` the first one with the fewest pods, as in Karpenter.

        Args:
            attempt: of the pod.
            bound: as for `takers`.
            inside: as for `takers`.
            most: at most so many pods may go there.
            joining: as for `keeps_size`.
        """
        if not len(self.open):
            return None
        place, least = self._least_added(attempt, bound, inside, joining=joining)
        if least == np.inf:
            return None
        group = self.open.claims[place].group
        target = self.merge(group, attempt)
        if least > 0 or target is None:
            return CheapestPlace(attempt, least, place, target)
        state, room = int(self.open.states()[place]), self._room_of(attempt)
        if room.kept[state] < 0:
            room.kept[state] = room_on_launch_row(group, target, self.open.used[[place]], attempt.requests)[0]
        if room.many[state] < 0:
            self._ask(room, attempt, np.array([state], np.int64))
        most = min(most, int(room.kept[state]), 1 if attempt.pod_class.ports else int(room.many[state]))
        return CheapestPlace(attempt, least, place, target, most if bound is None else min(most, int(bound[place])))

    def _least_added(
        self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None, *, joining: bool
    ) -> tuple[int, float]:
        """The claim that `cheapest_claim` finds, and what a pod adds to its price; infinite where none takes it.

        Remembered until a claim changes that is `inside`: the next pod of a class looks into all its domains again, and
        the last one changed a claim in one of them.
        """
        pod_class = attempt.pod_class
        if bound is not None or joining or pod_class.ports or self.merges.get(pod_class.index, 0) >= self._most_merges:
            return self._find_least_added(attempt, bound, inside, joining=joining)
        key, allowances = (pod_class.index, attempt.level, attempt.constraint), self._allowances()
        known = self._known_least.get(key)
        if known is None or known.allowances != allowances or self._has_changed(known, inside):
            place, least = self._find_least_added(attempt, bound, inside, joining=joining)
            known = self._known_least[key] = _LeastAdded(0, allowances, place, least)
        known.seen = len(self.open.altered)
        return known.place, known.least

    def _has_changed(self, known: _LeastAdded, inside: Bools | None) -> bool:
        changed = set(self.open.altered[known.seen :])
        return bool(changed) and (inside is None or known.place in changed or bool(inside[list(changed)].any()))

    def _find_least_added(
        self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None, *, joining: bool
    ) -> tuple[int, float]:
        added = self._added(attempt, bound, inside, joining=joining)
        place = int(np.argmin(added))
        least = float(added[place])
        if joining and least < np.inf:
            places = np.flatnonzero(added <= least).tolist()
            place = min(places, key=lambda place: sum(len(pods) for _, pods in self.open.claims[place].pods))
        return place, least

    def _added(self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None, *, joining: bool) -> Floats:
        """Return what a pod adds to the price of each open claim [claims]; infinite where the pod may not go."""
        states, room, some = self._looked_at(attempt, bound, inside)
        added: Floats = room.added[states]
        if some is not None:
            added[~some] = np.inf
        if np.isnan(added[int(np.argmin(added))]):  # the first that is not a number, if there is one
            unknown = np.isnan(added)
            self._price(room, attempt, states[unknown])
            added[unknown] = room.added[states[unknown]]
            added[np.isnan(added)] = np.inf
        if not self._same_level:
            growing = np.flatnonzero((added > 0) & np.isfinite(added))
            of = self.open.template_of[growing]
            for number in set(of.tolist()):
                if self.keeps_size(self._by_index[number], attempt, joining=joining):
                    added[growing[of == number]] = np.inf
        return added

    def _looked_at(
        self, attempt: PlacementAttempt, bound: Ints | None, inside: Bools | None
    ) -> tuple[Ints, RoomByState, Bools | None]:
        """The state of each claim [claims], what is known of states, and the claims [claims] that may take pods."""
        states, room = self.open.states(), self._room_of(attempt)
        room.reach(len(self.open.known_states))
        some = inside if bound is None else bound > 0 if inside is None else inside & (bound > 0)
        ports = attempt.pod_class.ports
        if ports:
            free = np.array([not ports_collide(ports, claim.ports) for claim in self.open.claims], np.bool_)
            some = free if some is None else some & free
        return states, room, some

    def _room_of(self, attempt: PlacementAttempt) -> RoomByState:
        key = (attempt.constraint, attempt.requests.tobytes())
        known = self._rooms.get(key)
        if known is None:
            known = self._rooms[key] = RoomByState()
        return known

    def _ask(self, room: RoomByState, attempt: PlacementAttempt, states: Ints) -> None:
        """Note how many pods of an attempt claims in these states take."""
        if not len(states):
            return
        known = self.open.known_states
        by_group: dict[int, list[int]] = {}
        for state in sorted(set(states.tolist())):
            by_group.setdefault(known.groups[state], []).append(state)
        for number in sorted(by_group):
            members, group = np.array(by_group[number], np.int64), self.open.groups.all[number]
            used = np.array([known.loads[state] for state in by_group[number]], np.int64)
            room.many[members] = 0
            # Most claims are full, so this saves asking each of their groups.
            within = (used + attempt.requests <= group.reach).all(axis=1)
            if not within.any():
                continue
            target = self.merge(group, attempt)
            if target is not None:
                room.many[members[within]] = target.room(used[within], attempt.requests)
            elif (number, attempt.constraint) not in self._merged:
                room.many[members[within]] = -1  # it is asked again, perhaps by a class that may still compare

    def _price(self, room: RoomByState, attempt: PlacementAttempt, states: Ints) -> None:
        """Note what a pod of an attempt adds to the price of claims in these states."""
        known, groups = self.open.known_states, self.open.groups.all
        for state in sorted(set(states.tolist()), key=known.groups.__getitem__):
            group, load = groups[known.groups[state]], known.loads[state]
            after = load + attempt.requests
            room.added[state] = np.inf
            # Most claims are full, so this saves asking each of their groups.
            if (after > group.reach).any():
                continue
            target = self.merge(group, attempt)
            if target is not None and (not target.minimums or target.room(load[None, :], attempt.requests)[0]):
                room.added[state] = round(target.launch_price(after) - group.launch_price(load), 9)
            elif (group.index, attempt.constraint) not in self._merged:
                room.added[state] = np.nan  # it is asked again, perhaps by a class that may still compare

    def _allowances(self) -> object:
        """A value that changes with what decides where claims can be opened: limits, estimates, reservations."""
        limits = tuple(
            (left.left.tobytes(), left.nodes_left, left.nodes, left.steady)
            for left in self.pool_limits.values()
            if left.is_bounded or left.shares
        )
        return limits, self._holds, self.open.changes if self._reserves else 0

    def new_price(self, attempt: PlacementAttempt) -> float:
        """USD per hour of a new claim for one pod of a class; infinite where none can be opened."""
        key, now = (attempt.constraint, attempt.requests.tobytes(), attempt.pod_class.missed), self._allowances()
        known = self._new_prices.get(key)
        if known is None or known[0] != now:
            entries = (self.entry(template, attempt) for template in self.in_order(attempt, 1))
            group = next((entry for entry in entries if not isinstance(entry, RefusalKind)), None)
            price = np.inf if group is None else round(group.launch_price(attempt.requests), 9)
            known = self._new_prices[key] = (now, price)
        return known[1]

    def keeps_size(self, template: NodeClaimTemplate, attempt: PlacementAttempt, *, joining: bool) -> bool:
        """True if a pod must not enlarge claims of a template, as a better level could open a claim for it.

        If `joining`, it may although a NodePool of a larger weight could.
        """
        if template.level == self._best_of_all:
            return False
        level = self._best_level(attempt)
        return level is not None and template.level > level and not (joining and template.level[0] > level[0])

    def make_way(
        self, template: NodeClaimTemplate, attempt: PlacementAttempt, refusal: RefusalKind
    ) -> ClaimGroup | RefusalKind:
        """Free what open claims hold without needing it: estimates of unverified types, and room under the limits."""
        if (
            refusal in (RefusalKind.TYPES, RefusalKind.MIN_VALUES)
            and template.table.explores
            and self._release_pilots()
        ):
            return self.entry(template, attempt)
        if refusal is RefusalKind.LIMITS:
            for squeeze in (False, True):
                entry = self._recharge(template, attempt, squeeze=squeeze)
                if not isinstance(entry, RefusalKind):
                    return entry
        return refusal

    def _release_pilots(self) -> bool:
        """Take estimates back from claims whose load fits the careful bound, or no longer fits the estimate."""
        freed = False
        for place in sorted(set(self.holder.values())):
            claim = self.open.claims[place]
            table = claim.group.template.table
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
                self._holds += 1
                for key in released:
                    del self.holder[key]
                keep = np.array([not key or key in needed for key in table.row_key], np.bool_)
                self.open.restrict(place, claim.group.allowed & keep)
        return freed

    def _recharge(
        self, template: NodeClaimTemplate, attempt: PlacementAttempt, *, squeeze: bool
    ) -> ClaimGroup | RefusalKind:
        """Charge the pool's claims with no more than they need, if that makes room for one more.

        Types that no longer hold a claim's load stop counting; with `squeeze` claims also give up types that have more
        than the one they would launch of what the limits are short of.
        """
        pool = template.pool.metadata.name
        limits = self.pool_limits[pool]
        short = limits.exceeded_by(template.table.capacity.max(axis=0, initial=0))
        slim = self._slimmer(pool, short if squeeze else short[:0])
        if not slim.gain.any():
            return RefusalKind.LIMITS
        before = limits.left.copy()
        limits.left[limits.columns] += slim.gain
        entry = self.entry(template, attempt)
        if isinstance(entry, RefusalKind):
            limits.left = before
            return entry
        for place, (charge, allowed) in zip(slim.places, slim.least, strict=True):
            self.open.charges[place] = charge
            if allowed is not self.open.claims[place].group.allowed:
                self.open.restrict(place, allowed)
        self.open.changes += 1
        return entry

    def opens_with(self, gain: Ints, template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
        """True if limits refuse a claim now that they would allow with this much more of their resources."""
        if self.entry(template, attempt) is not RefusalKind.LIMITS:
            return False
        limits = self.pool_limits[template.pool.metadata.name]
        before = limits.left.copy()
        limits.left[limits.columns] += gain
        opens = not isinstance(self.entry(template, attempt), RefusalKind)
        limits.left = before
        return opens

    def gains_of_launches(self) -> dict[str, Ints]:
        """Return what limits get back once open claims are what they would launch, by pool [limited resources].

        Pools that get nothing back are left out.
        """
        gains: dict[str, Ints] = {}
        for claim, load, charge in zip(self.open.claims, self.open.used, self.open.charges, strict=True):
            group, pool = claim.group, claim.group.template.pool.metadata.name
            columns = self.pool_limits[pool].columns
            if len(columns):
                table, launched = group.template.table, int(np.argmax(group.holding(load)))
                gain = charge - table.capacity[table.row_type[group.rows[launched]]]
                gains[pool] = gains[pool] + gain[columns] if pool in gains else gain[columns]
        return {pool: gain for pool, gain in gains.items() if gain.any()}

    def _slimmer(self, pool: str, short: Ints) -> _LeastCharges:
        """The pool's claims with the least they can be charged and the rows they keep then.

        They give up what has more of the resources `short` than they need. Remembered while no claim changes, because
        a pool at its limit is asked again for every class; and claim by claim, because few of them change in between.
        """
        key = (pool, short.tobytes())
        known = self._slim.get(key)
        if known is not None and known.changes == self.open.changes:
            return known
        columns = self.pool_limits[pool].columns
        places = [
            place for place, claim in enumerate(self.open.claims) if claim.group.template.pool.metadata.name == pool
        ]
        loads = self.open.used
        least: list[tuple[Ints, Bools]] = []
        for place in places:
            group, load = self.open.claims[place].group, loads[place]
            identity = (group.index, load.tobytes(), key[1])
            one = self._least.get(identity)
            if one is None:
                one = self._least[identity] = _least_charge(group, load, short)
            least.append(one)
        gain = np.zeros(len(columns), np.int64)
        if places:
            charges = np.array([charge for charge, _ in least], np.int64)
            gain = (self.open.charges[places] - charges).sum(axis=0)[columns]
        known = self._slim[key] = _LeastCharges(self.open.changes, places, least, gain)
        return known


class _LeastAdded(msgspec.Struct, eq=False):
    """The claim at `place` to whose price a pod adds least, `least` USD per hour.

    Found with these `allowances`, when so many claims had been altered as are `seen`.
    """

    seen: int
    allowances: object
    place: int
    least: float


class _LeastCharges(msgspec.Struct, frozen=True, eq=False):
    """The claims of a pool at `places`, each with the `least` it can be charged and the rows [rows] it keeps then.

    `gain` [limited resources] is what its limits would get back; true as long as open claims have seen `changes`.
    """

    changes: int
    places: list[int]
    least: list[tuple[Ints, Bools]]
    gain: Ints


def _least_charge(group: ClaimGroup, load: Ints, short: Ints) -> tuple[Ints, Bools]:
    """The least that a claim with this load [resources] can be charged and the rows [rows] it keeps then.

    It gives up those with most of the resources `short`, but neither the row it would launch nor what minValues needs.
    """
    kept, allowed = group.holding(load), group.allowed
    table = group.template.table
    capacity = table.capacity[table.row_type[group.rows]]
    if len(short):
        kept = _smallest(group, kept, capacity, short)
        small = (table.capacity[:, short] <= capacity[kept].max(axis=0)[short]).all(axis=1)[table.row_type]
        if not small[allowed].all():
            allowed = allowed & small
    return capacity[kept].max(axis=0), allowed


def _smallest(group: ClaimGroup, holds: Bools, capacity: Ints, short: Ints) -> Bools:
    """The rows [rows] that hold a claim, without all that have more of the resources `short` than they have to.

    `capacity` is that of the rows [rows, resources].
    """
    launch = capacity[int(np.argmax(holds))]
    if not group.minimums:
        kept: Bools = holds & (capacity[:, short] <= launch[short]).all(axis=1)
        return kept
    kept, columns = holds, short.tolist()
    while columns:
        column = columns[0]
        most = int(capacity[kept, column].max())
        fewer = kept & (capacity[:, column] < most)
        if most > launch[column] and group.keeps_minimums(fewer):
            kept = fewer
        else:
            columns.pop(0)
    return kept


def beside_daemons(template: NodeClaimTemplate, attempt: PlacementAttempt) -> Bools:
    """The rows [rows] on which DaemonSets leave the pod its host ports and are the company that it must have."""
    if attempt.company is NO_COMPANY:
        rows = np.ones_like(template.table.careful_rows)
    else:
        rows = attempt.company.rows(template.daemons)
    if attempt.pod_class.ports and template.daemons.ports is not None:
        rows &= np.array(
            [not ports_collide(attempt.pod_class.ports, taken) for taken in template.daemons.ports], np.bool_
        )
    return rows


def room_on_launch_row(group: ClaimGroup, target: ClaimGroup, used: Ints, requests: Ints) -> Ints:
    """Return how many pods each claim takes without leaving the row that it would launch now."""
    first = group.cheapest(used)
    rows = group.rows[np.maximum(first, 0)]
    kept = (first >= 0) & target.has_row(rows)
    free = group.template.net[rows] - used
    return np.where(kept & (free >= 0).all(axis=1), pods_held(free, requests), 0)


def estimates(group: ClaimGroup) -> list[str]:
    """The pilot keys of the estimate rows that a claim of this group may use."""
    table = group.template.table
    return [table.row_key[row] for row in group.rows[table.row_estimate[group.rows]].tolist()]


def _tolerates(template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
    taints = template.pool.spec.template.spec.taints
    return untolerated(taints, attempt.pod_class.tolerations, ignore_preferences=attempt.soft) is None
