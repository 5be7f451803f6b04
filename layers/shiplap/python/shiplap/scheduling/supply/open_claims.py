"""The claims a decision has opened so far: how full each is, what it may become and what its pool is charged for it.

A claim keeps every instance type that can still hold it. Which types those are follows from its group (a template, the
requirements accumulated so far, the rows allowed to it) and its load, so only the load is kept per claim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import HostPort, PodClass
from shiplap.scheduling.model.resources import (
    CHUNK,
    PLENTY,
    ROUNDING,
    Bools,
    Floats,
    Ints,
    distinct_lines,
    pareto_front,
    places_with,
    rows_holding,
)
from shiplap.scheduling.model.topology_constraints import Constraints
from shiplap.scheduling.supply.daemons import NO_COMPANY, Company
from shiplap.scheduling.supply.room_by_state import ClaimStates
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class RowSet(msgspec.Struct, eq=False):
    """Rows of a template's catalogue at their prices, cheapest first, then by name; groups share them.

    What follows from them is computed once. `nets` are the net resources of sets by `number`, as far as they are
    remembered.
    """

    template: NodeClaimTemplate
    rows: Ints
    price: Floats
    number: int
    nets: dict[int, Ints]
    _front: Ints | None = None
    _reach: Ints | None = None
    _among: Bools | None = None
    _plain: Bools | None = None
    _bargains: tuple[Ints, Floats] | None = None
    _steps: list[list[int]] | None = None

    @property
    def net(self) -> Ints:
        """The net resources of the rows [rows, resources]; forgotten with all others once these are too many."""
        known = self.nets.get(self.number)
        if known is None:
            known = np.asfortranarray(self.template.net[self.rows])  # every look at it is a look at its columns
            if (len(self.nets) + 1) * self.template.net.nbytes > BOUNDS.net_bytes:
                self.nets.clear()
            self.nets[self.number] = known
        return known

    @property
    def front(self) -> Ints:
        """The rows' net resources that no other row exceeds."""
        if self._front is None:
            self._front = pareto_front(self.net)
        return self._front

    @property
    def reach(self) -> Ints:
        """The most that any row has of each resource [resources]; no load beyond it fits."""
        if self._reach is None:
            self._reach = self.net.max(axis=0, initial=-1)
        return self._reach

    @property
    def plain(self) -> Bools:
        """True for each row [rows] whose type is not exotic."""
        if self._plain is None:
            table = self.template.table
            self._plain = ~table.exotic[table.row_type[self.rows]]
        return self._plain

    @property
    def bargains(self) -> tuple[Ints, Floats]:
        """Net resources and price of the rows that no other exceeds for less; none of estimates, nor exotic types."""
        if self._bargains is None:
            table = self.template.table
            some = ~table.row_estimate[self.rows] & self.plain
            nanos = np.round(self.price[some] * 1e9).astype(np.int64)
            front = pareto_front(np.concatenate([self.net[some], -nanos[:, None]], axis=1))
            self._bargains = front[:, :-1], -front[:, -1] / 1e9
        return self._bargains

    @property
    def steps(self) -> list[list[int]]:
        """The rows' net resources [resources, rows] where each has at least as much as all cheaper ones; else empty.

        So it is with the sizes of one family of instances.
        """
        if self._steps is None:
            grows = bool(self.plain.all()) and bool((self.net[1:] >= self.net[:-1]).all())
            self._steps = self.net.T.tolist() if grows else []
        return self._steps

    def has_row(self, rows: Ints) -> Bools:
        """True for each of these rows of the template [n] that is in the set."""
        if self._among is None:
            self._among = np.zeros(len(self.template.net), np.bool_)
            self._among[self.rows] = True
        return self._among[rows]


class ClaimGroup(msgspec.Struct, eq=False):
    """`row_set` are the catalogue rows that a claim of this group may use; arrays follow them.

    `minimums` maps a label to the number of distinct values the list of types must keep (minValues);
    `relaxed`: they are less than the requirements ask for. `known_prices` are prices of launches by load.
    """

    index: int
    template: NodeClaimTemplate
    requirements: Requirements
    allowed: Bools
    row_set: RowSet
    rows: Ints
    price: Floats
    minimums: Mapping[str, int]
    relaxed: bool = False
    known_prices: dict[bytes, float] = msgspec.field(default_factory=dict)
    _values: dict[str, Bools] = msgspec.field(default_factory=dict)

    @property
    def net(self) -> Ints:
        """The net resources of the rows [rows, resources]."""
        return self.row_set.net

    @property
    def front(self) -> Ints:
        """As `RowSet.front`."""
        return self.row_set.front

    @property
    def reach(self) -> Ints:
        """As `RowSet.reach`."""
        return self.row_set.reach

    @property
    def bargains(self) -> tuple[Ints, Floats]:
        """As `RowSet.bargains`."""
        return self.row_set.bargains

    def has_row(self, rows: Ints) -> Bools:
        """As `RowSet.has_row`."""
        return self.row_set.has_row(rows)

    def room(self, used: Ints, requests: Ints) -> Ints:
        """Return how many pods of `requests` [resources] fit on claims loaded with `used` [claims, resources]."""
        rows = self.net if self.minimums else self.front
        if not len(rows):
            return np.zeros(len(used), np.int64)
        step = max(1, CHUNK // rows.size)
        parts = [self._room(used[start : start + step], requests, rows) for start in range(0, len(used), step)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _room(self, used: Ints, requests: Ints, rows: Ints) -> Ints:
        many = np.full((len(used), len(rows)), PLENTY, np.int64)
        for column, each in enumerate(requests.tolist()):
            free = rows[None, :, column] - used[:, column, None]
            np.minimum(many, free // each if each > 0 else np.where(free >= 0, PLENTY, 0), out=many)
        np.maximum(many, 0, out=many)
        if not self.minimums:
            return many.max(axis=1)
        # The types of a list are all in one variant.
        number = len(self.template.variants.all)
        best = np.zeros(len(used), np.int64)
        for variant in range(number):
            some = self.rows % number == variant
            bounds = [self._room_for_minimum(key, least, many, some) for key, least in self.minimums.items()]
            best = np.maximum(best, np.array(bounds, np.int64).min(axis=0))
        return best

    def _room_for_minimum(self, key: str, least: int, many: Ints, some: Bools) -> Ints:
        """With `n` more pods a value survives if some type that has it takes `n`: the least-th best value decides.

        Only `some` of the rows [rows] count.
        """
        has = self.values(key) & some
        if len(has) < least:
            return np.zeros(len(many), np.int64)
        per_value = np.where(has[None, :, :], many[:, None, :], 0).max(axis=2)
        per_value.sort(axis=1)
        decisive: Ints = per_value[:, len(has) - least]
        return decisive

    def keeps_minimums(self, kept: Bools) -> bool:
        """True if these rows alone [rows] have the values that minValues asks for, all in one variant of the node."""
        variants = self.rows % len(self.template.variants.all)
        return not self.minimums or any(
            all(
                int(self.values(key)[:, kept & (variants == variant)].any(axis=1).sum()) >= least
                for key, least in self.minimums.items()
            )
            for variant in np.unique(variants[kept]).tolist()
        )

    def values(self, key: str) -> Bools:
        """Return a mask [values, rows] of the rows that have each value of a label.

        Values that the requirements exclude are left out.
        """
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = self._compile_values(key)
        return known

    def _compile_values(self, key: str) -> Bools:
        table = self.template.table
        allowed = self.requirements.get(key)
        found: dict[str, list[int]] = {}
        for column, place in enumerate(table.row_type[self.rows].tolist()):
            label = table.label(place, key)
            for value in label.values if label is not None and not label.complement else ():
                if allowed is None or allowed.has(value):
                    found.setdefault(value, []).append(column)
        has = np.zeros((len(found), len(self.rows)), np.bool_)
        for line, value in enumerate(sorted(found)):
            has[line, found[value]] = True
        return has

    def holding(self, used: Ints) -> Bools:
        """True for each row [rows] that holds a load of `used` [resources]."""
        return places_with(self.net, used)

    def prices_of_parts(self, requests: Ints) -> Floats:
        """USD per hour of the part of a node that each pod [pods, resources] takes of its fullest resource [pods].

        The row counts on which that is least.
        """
        part = np.zeros((len(requests), len(self.rows)))
        for column in np.flatnonzero(requests.any(axis=0)).tolist():
            np.maximum(part, requests[:, column, None] * (1.0 / np.maximum(self.net[:, column], 0.5)), out=part)
        prices: Floats = np.where(part <= 1.0 + ROUNDING, part * self.price, np.inf).min(axis=1, initial=np.inf)
        return prices.round(9)

    def price_of_pods(self, requests: Ints, number: int) -> float:
        """USD per hour of nodes of one type for `number` pods of these requests [resources], of the type that is best.

        Exotic types count only if no other holds a pod; infinite where none does.
        """
        asked = np.flatnonzero(requests)
        each = np.minimum((self.net[:, asked] // requests[asked]).min(axis=1, initial=number), number)
        each = np.where(self.holding(requests), each, 0)
        some = each > 0
        if (some & self.row_set.plain).any():
            some &= self.row_set.plain
        prices = self.price[some] * -(-number // each[some])
        return round(float(prices.min(initial=np.inf)), 9)

    def cheapest(self, used: Ints) -> Ints:
        """The first, so cheapest, row (its place in `rows`) that holds each load [claims, resources]; -1 for none."""
        step = max(1, CHUNK // max(self.net.size, 1))
        parts = []
        for start in range(0, len(used), step):
            holds = rows_holding(self.net, used[start : start + step])
            parts.append(np.where(holds.any(axis=1), holds.argmax(axis=1), -1))
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def launch_prices(self, used: Ints) -> Floats:
        """USD per hour of claims with these loads [claims, resources]; exotic types only if none else holds."""
        if self.minimums:
            return self.price[self.cheapest(used)]
        plain = self.row_set.plain
        first, load_of = distinct_lines(used)
        loads = used[first]
        prices = np.full(len(loads), np.inf)
        for some in (plain, ~plain):
            holds = rows_holding(self.net[some], loads)
            cheapest = np.where(holds, self.price[some][None, :], np.inf).min(axis=1, initial=np.inf)
            prices = np.where(np.isfinite(prices), prices, cheapest)
        return prices[load_of]

    def launch_price(self, load: Ints) -> float:
        """USD per hour of one claim with a load [resources]; remembered, because few claims change at a time."""
        key = load.tobytes()
        known = self.known_prices.get(key)
        if known is None:
            known = self.known_prices[key] = self._launch_price(load)
        return known

    def _launch_price(self, load: Ints) -> float:
        steps = self.row_set.steps
        if steps and not self.minimums:
            first = max(map(bisect_left, steps, load.tolist()))
            return float(self.price[first]) if first < len(self.price) else np.inf
        holds = self.holding(load)
        plain = holds & self.row_set.plain
        # Rows stand by price: the first that holds a load is the cheapest.
        some = plain if not self.minimums and plain.any() else holds
        return float(self.price[int(np.argmax(some))]) if some.any() else np.inf


def row_set_of(
    template: NodeClaimTemplate, requirements: Requirements, allowed: Bools, number: int, nets: dict[int, Ints]
) -> RowSet:
    """Return the rows among `allowed` [rows] that a claim of a template with these requirements may use."""
    price = template.prices_of_rows(requirements)
    rows = np.flatnonzero(allowed & np.isfinite(price) & (template.net >= 0).all(axis=1))
    rows = rows[np.argsort(price[rows], kind="stable")]
    return RowSet(template, rows, price[rows], number, nets)


def make_group(
    index: int,
    template: NodeClaimTemplate,
    requirements: Requirements,
    allowed: Bools,
    minimums: Mapping[str, int],
    row_set: RowSet | None = None,
) -> ClaimGroup:
    """The group of claims of a template that have accumulated `requirements` and may use the rows `allowed` [rows]."""
    row_set = row_set or row_set_of(template, requirements, allowed, 0, {})
    relaxed = minimums != minimums_of(requirements)
    return ClaimGroup(index, template, requirements, allowed, row_set, row_set.rows, row_set.price, minimums, relaxed)


def minimums_of(requirements: Requirements) -> dict[str, int]:
    """The minValues of accumulated requirements, by label."""
    return {key: entry.min_values for key, entry in requirements.items() if entry.min_values}


class ClaimGroups:
    """All groups of a decision; equal ones are one object, and groups of equal rows and prices share them."""

    def __init__(self) -> None:
        self.all: list[ClaimGroup] = []
        self._known: dict[tuple[int, Requirements, bytes, tuple[tuple[str, int], ...]], ClaimGroup] = {}
        self._allowed: dict[bytes, Bools] = {}
        self._row_sets: dict[tuple[int, Requirements, bytes], RowSet] = {}
        self._by_rows: dict[tuple[int, bytes, bytes], RowSet] = {}
        self._nets: dict[int, Ints] = {}

    def get(
        self,
        template: NodeClaimTemplate,
        requirements: Requirements,
        allowed: Bools,
        minimums: Mapping[str, int] | None = None,
    ) -> ClaimGroup:
        """The group with these properties; `minimums` replaces those of the requirements."""
        least = minimums_of(requirements) if minimums is None else minimums
        content = allowed.tobytes()
        key = (template.index, requirements, content, tuple(sorted(least.items())))
        known = self._known.get(key)
        if known is None:
            allowed = self._allowed.setdefault(content, allowed)
            row_set = self._row_set(template, requirements, allowed, content)
            known = make_group(len(self.all), template, requirements, allowed, least, row_set)
            self._known[key] = known
            self.all.append(known)
        return known

    def _row_set(
        self, template: NodeClaimTemplate, requirements: Requirements, allowed: Bools, content: bytes
    ) -> RowSet:
        """The rows of a group. Most labels that pods ask for say nothing about types and prices."""
        telling = template.telling
        told = Requirements(entry for name, entry in requirements.items() if name in telling)
        key = (template.index, told, content)
        known = self._row_sets.get(key)
        if known is None:
            made = row_set_of(template, told, allowed, len(self._row_sets), self._nets)
            alike = (template.index, made.rows.tobytes(), made.price.tobytes())
            known = self._row_sets[key] = self._by_rows.setdefault(alike, made)
        return known


class RefusalKind(StrEnum):
    """The reason to pass over a template."""

    BLOCKED = "blocked"
    TAINT = "taint"
    REQUIREMENTS = "requirements"
    TYPES = "types"
    MIN_VALUES = "minValues"
    LIMITS = "limits"
    NODES = "nodes"
    RESERVED = "reserved"
    SPOT_SHARE = "spotShare"


class Refusal(msgspec.Struct, frozen=True, eq=False):
    """A template could not open a claim for a class; `left` [resources] is what its limits left then."""

    template: NodeClaimTemplate
    kind: RefusalKind
    attempt: PlacementAttempt
    left: Ints


class PlacementAttempt(msgspec.Struct, frozen=True, eq=False):
    """A class in one attempt to place it: a node-affinity term, and what is still held to of its preferences.

    `term` is one of the class's, joined with the node preference `preferred` if one is held to. `constraints` are the
    topology constraints that bind: the required ones and the preferred ones not given up yet. `soft`: PreferNoSchedule
    is tolerated. `level` counts the steps of relaxation. `constraint` numbers what matters for which claims suit, so
    that classes of different size share answers. `company` says which DaemonSets must run beside it, or must not.
    """

    pod_class: PodClass
    term: Requirements
    soft: bool
    requests: Ints
    constraint: int
    constraints: Constraints
    level: int = 0
    preferred: Requirements | None = None
    company: Company = NO_COMPANY


class OpenClaim(msgspec.Struct, eq=False):
    """The parts of a claim that are not arrays; `relaxations` are the attempts that gave up preferences."""

    group: ClaimGroup
    pods: list[tuple[PodClass, Sequence[Pod]]] = msgspec.field(default_factory=list)
    ports: set[HostPort] = msgspec.field(default_factory=set)
    skipped: tuple[Refusal, ...] = ()
    relaxed: bool = False
    relaxations: list[PlacementAttempt] = []


class OpenClaims:
    """Claims with their loads as arrays: `used` and `charges` [claims, resources], `group_of` [claims].

    `changes` counts alterations, so that answers about all claims can be remembered while there is none. `altered` are
    the claims whose load or group changed, in turn.
    """

    def __init__(self, columns: int, groups: ClaimGroups) -> None:
        self.groups = groups
        self.claims: list[OpenClaim] = []
        self.changes = 0
        self._used: Ints = np.zeros((64, columns), np.int64)
        self._charges: Ints = np.zeros((64, columns), np.int64)
        self._group_of: Ints = np.zeros(64, np.int64)
        self.known_states = ClaimStates()
        self._state_of: Ints = np.zeros(64, np.int64)
        self._template_of: Ints = np.zeros(64, np.int64)
        self.altered: list[int] = []
        self._numbered = 0

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def used(self) -> Ints:
        """The load of each claim, daemons not included."""
        return self._used[: len(self.claims)]

    @property
    def charges(self) -> Ints:
        """The charge of each claim to the limits of its pool."""
        return self._charges[: len(self.claims)]

    @property
    def group_of(self) -> Ints:
        """The number of each claim's group."""
        return self._group_of[: len(self.claims)]

    @property
    def template_of(self) -> Ints:
        """The number of the template of each claim."""
        return self._template_of[: len(self.claims)]

    def states(self) -> Ints:
        """The state of each claim [claims]. It is looked up when somebody asks: mostly nobody does."""
        for place in self.altered[self._numbered :]:
            self._state_of[place] = self.known_states.number(int(self._group_of[place]), self._used[place])
        self._numbered = len(self.altered)
        return self._state_of[: len(self.claims)]

    def install(self, groups: Sequence[ClaimGroup], charges: Ints, loads: Ints) -> list[OpenClaim]:
        """Open claims with loads decided elsewhere; their pods and what goes with these are the caller's to add.

        `charges` and `loads` are [claims, resources].
        """
        start, end = len(self.claims), len(self.claims) + len(groups)
        while end > len(self._used):
            self._grow()
        opened = [OpenClaim(group, relaxed=group.relaxed) for group in groups]
        self.claims += opened
        self._used[start:end], self._charges[start:end] = loads, charges
        self._group_of[start:end] = [group.index for group in groups]
        self._template_of[start:end] = [group.template.index for group in groups]
        self.altered += range(start, end)
        self.changes += len(groups)
        return opened

    def open(self, group: ClaimGroup, charge: Ints, skipped: tuple[Refusal, ...]) -> int:
        """Open an empty claim and return its place."""
        place = len(self.claims)
        if place == len(self._used):
            self._grow()
        self.claims.append(OpenClaim(group, skipped=skipped, relaxed=group.relaxed))
        self._charges[place] = charge
        self._group_of[place] = group.index
        self._template_of[place] = group.template.index
        self.altered.append(place)
        self.changes += 1
        return place

    def _grow(self) -> None:
        """Make room for twice as many claims."""
        self._used = np.concatenate([self._used, np.zeros_like(self._used)])
        self._charges = np.concatenate([self._charges, np.zeros_like(self._charges)])
        self._group_of = np.concatenate([self._group_of, np.zeros_like(self._group_of)])
        self._state_of = np.concatenate([self._state_of, np.zeros_like(self._state_of)])
        self._template_of = np.concatenate([self._template_of, np.zeros_like(self._template_of)])

    def load(self, place: int, group: ClaimGroup, amounts: Ints) -> None:
        """Add these amounts [resources] to the load of a claim, which comes into `group` by that."""
        self.claims[place].group = group
        self._group_of[place] = group.index
        self._used[place] += amounts
        self.altered.append(place)
        self.changes += 1

    def regroup(self, place: int, group: ClaimGroup) -> None:
        """Let a claim be of another group, which holds its load."""
        self.claims[place].group = group
        self._group_of[place] = group.index
        self.altered.append(place)
        self.changes += 1

    def restrict(self, place: int, allowed: Bools) -> None:
        """Let a claim use only these rows [rows] of its catalogue from now on."""
        claim = self.claims[place]
        group = claim.group
        claim.group = self.groups.get(group.template, group.requirements, allowed, group.minimums)
        self._group_of[place] = claim.group.index
        self.altered.append(place)
        self.changes += 1
