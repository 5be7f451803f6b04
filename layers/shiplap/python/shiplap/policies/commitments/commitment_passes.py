"""Plans that use commitments: a few plans in a row, each at the prices that the room left makes.

A commitment gives the first nodes a price that later ones do not have, and one plan has one price for each offering. So
a plan is made as if all nodes were first ones. Nodes that the room covers as the plan assumed are kept, and the other
pods are planned again with the room that is left, last of all at list prices. What is kept stands in the next plan like
a claim in flight that holds its pods and has no room for others.

Where more nodes would use commitments than there is room for, those go first that are worth most. All commitments are
weighed together, by what a unit more of each would save. Where the bill stays above what fractions of nodes would cost,
they are also weighed one by one, each with the least factor at which its room suffices, found by halving: few nodes are
often better off so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse, merged
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom, Coverage
from shiplap.policies.commitments.commitment_weights import (
    LEAST_WEIGHT,
    BoughtNode,
    PodDemand,
    WeighedCommitments,
    bought_nodes,
    list_values,
    weighed_commitments,
)
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim, left_by_priority
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.held_claims import holding, still_held, together

_MOST_WEIGHT = 4.0
"""The largest weight of a committed dollar. It may be worth more than it costs: as much as the on-demand price that it
saves, which is 1.4 times the rate at a discount of 28 %, and 4 times at 75 %. Where it is weighed with more, the list
price counts."""

_HALVINGS = 6
"""How often the range of weights is halved, as factors."""

_MOST_PARTS = 6
"""Parts of the room that have weights of their own: each costs some plans."""

_MOST_TURNS = 6
"""Plans at weights of all commitments together, each of which keeps what the room covers, at most."""

_MOST_ROUNDS = 4
"""How often commitments are weighed for each, with one more quick plan each time, at most."""

_CLOSE = 0.01
"""Where the bill is at most so much above that of fractions of nodes, commitments are not weighed one by one, too."""

_ALIKE, _CLEARLY_LESS = 0.05, 0.75
"""Of a dollar saved by a weighed one: so near counts as the same, and up to such a part as clearly less."""

_MOST_PASSES = 4
"""Plans at the least weight, each of which uses what the one before has left over, and the plan before them."""

REASON = "commitments pay"
"""How the reason of a claim that uses commitments begins."""

DecideAt = Callable[[Snapshot, CommitmentRoom | None], Plan]
"""Plans a snapshot at the prices that a room makes; None stands for list prices."""


def is_linux(instance_type: InstanceType) -> bool:
    """True if nodes of a type run Linux: Savings Plans and Reserved Instances cover no other system of it."""
    system = next((entry for entry in instance_type.requirements if entry.key == labels.OS), None)
    return system is None or system.has("linux")


class _Kept(msgspec.Struct, frozen=True):
    """Claims that the room covers, narrowed to what it covers, and the room behind them; `missed` were too many."""

    claims: tuple[PlannedClaim, ...]
    room: CommitmentRoom
    missed: int


def plan_on_commitments(snapshot: Snapshot, room: CommitmentRoom, decide: DecideAt) -> Plan:
    """The plan of a snapshot with room left; `decide` makes one at the prices of a room. Raises as it does.

    Of several plans it is the one in which most pods have a place; of those the one with the lowest bill, and of equal
    ones that of the fewest passes. Types that are paid for may take more of a limit than types at list prices.
    """
    types = _Types(snapshot)
    plan = decide(snapshot, _at(room, LEAST_WEIGHT))
    kept = _kept(plan, room, types)
    if not kept.missed and not plan.unschedulable:
        return together(plan, kept.claims)
    listed = decide(snapshot, None)
    plans = [_marked(listed, room, types)]
    if kept.missed:
        passes = _Passes(snapshot, room, types, decide)
        plans += passes.weighed_together(listed, plan)
        if min(bill(some, room, types) for some in plans) > passes.least_hourly * (1 + _CLOSE):
            plans += passes.one_by_one()
    else:
        plans.insert(0, together(plan, kept.claims))
    priorities = {pod.key: pod.spec.priority for pod in snapshot.view.pods}
    return min(plans, key=lambda some: (left_by_priority(some, priorities), round(bill(some, room, types), 6)))


class _Passes:
    """Plans of one snapshot in which nodes that the room covers are kept, and the other pods are planned again.

    `least_hourly` is about the least bill that is to be had, USD per hour, once commitments were weighed together.
    """

    def __init__(self, snapshot: Snapshot, room: CommitmentRoom, types: _Types, decide: DecideAt) -> None:
        self._snapshot, self._room, self._types, self._decide = snapshot, room, types, decide
        self.least_hourly = 0.0

    def weighed_together(self, listed: Plan, first: Plan) -> Iterator[Plan]:
        """Each commitment weighs what a unit more of it would save. Made were a plan at list prices, and a first one.

        At these weights several kinds of nodes are worth the same, and a plan has mostly one of them. What the room
        covers of it is kept, and the rest is weighed again.
        """
        demand = PodDemand(self._snapshot, listed)
        bought = [node for plan in (listed, first) for node in self._bought(demand, plan)]
        values = list_values(demand, bought)
        claims: list[PlannedClaim] = []
        going, left = self._snapshot, self._room
        for turn in range(_MOST_TURNS):
            found = self._settled_weights(going, left, demand.without(claims), bought)
            self.least_hourly = self.least_hourly if turn else found.hourly
            weighed = replace(left, weight=LEAST_WEIGHT, weights=found.weights)
            plan = self._decide(going, weighed)
            kept = _kept(plan, weighed, self._types, lambda claim: demand.worth(claim, values))
            claims += kept.claims
            going, left = holding(going, kept.claims), replace(kept.room, weights={})
            if not kept.claims or left.is_empty or not kept.missed:
                break
        return self._finished(claims, going, left)

    def _settled_weights(
        self, snapshot: Snapshot, room: CommitmentRoom, demand: PodDemand, bought: list[BoughtNode]
    ) -> WeighedCommitments:
        """The weights once a plan made at them shows no nodes that change them. Its nodes are added to `bought`."""
        quick = replace(snapshot, settings=replace(snapshot.settings, improve_s=0.0))
        found = weighed_commitments(demand, bought, room)
        for _ in range(_MOST_ROUNDS):
            weighed = replace(room, weight=LEAST_WEIGHT, weights=found.weights)
            bought += self._bought(demand, self._decide(quick, weighed))
            before, found = found, weighed_commitments(demand, bought, room)
            if found.weights == before.weights:
                break
        return found

    def _bought(self, demand: PodDemand, plan: Plan) -> list[BoughtNode]:
        covered = {claim.name: self._types.may_be_covered(claim) for claim in plan.node_claims}
        return bought_nodes(demand, plan.node_claims, covered)

    def one_by_one(self) -> Iterator[Plan]:
        """One commitment after the other has the weight at which its room suffices."""
        claims: list[PlannedClaim] = []
        going = self._snapshot
        rooms = []
        for part in _parts(self._room):
            left = part
            for weight in _weights(going, part, self._types, self._decide):
                kept = _kept(self._decide(going, _at(left, weight)), left, self._types)
                claims += kept.claims
                going, left = holding(going, kept.claims), kept.room
                if left.is_empty:
                    break
            rooms.append(left)
        return self._finished(claims, going, _joined(rooms))

    def _finished(self, kept: Sequence[PlannedClaim], going: Snapshot, left: CommitmentRoom) -> Iterator[Plan]:
        """Plans of these claims and of others at list prices, each further one using what that before has left."""
        claims = list(kept)
        for number in range(_MOST_PASSES):
            if number or not claims:
                more = _kept(self._decide(going, _at(left, LEAST_WEIGHT)), left, self._types)
                if not more.claims:
                    return
                claims += more.claims
                going, left = holding(going, more.claims), more.room
            plan = self._decide(going, None)
            if still_held(plan, claims):
                yield _marked(together(plan, claims), self._room, self._types)
            if left.is_empty:
                return


def _parts(room: CommitmentRoom) -> list[CommitmentRoom]:
    """The commitments one by one, in the order AWS applies them: each is worth most to other nodes.

    Savings Plans of one family are one part. If there are many, the last ones are a part together.
    """
    parts = [CommitmentRoom(zonal=room.zonal)] if room.zonal else []
    parts += [CommitmentRoom(regional=(item,)) for item in room.regional]
    for _, plans in groupby(room.savings_plans, key=lambda plan: plan.family):
        parts.append(CommitmentRoom(savings_plans=tuple(plans)))
    return [*parts[: _MOST_PARTS - 1], _joined(parts[_MOST_PARTS - 1 :])] if len(parts) > _MOST_PARTS else parts


def _joined(rooms: Sequence[CommitmentRoom]) -> CommitmentRoom:
    return CommitmentRoom(
        tuple(item for room in rooms for item in room.zonal),
        tuple(item for room in rooms for item in room.regional),
        tuple(plan for room in rooms for plan in room.savings_plans),
    )


def room_behind(room: CommitmentRoom, claims: Sequence[PlannedClaim]) -> CommitmentRoom:
    """Return the room left once these claims of a plan have taken the commitments that pay for them."""
    ledger = CommitmentLedger(room)
    for claim in claims:
        if claim.covered is not msgspec.UNSET:
            ledger.take(*_offering(claim))
    return ledger.room


def bill(plan: Plan, room: CommitmentRoom, types: _Types) -> float:
    """Return the amount that the claims of a plan would add to the bill, USD per hour, while the room is left."""
    on_demand = [claim for claim in plan.node_claims if types.may_be_covered(claim)]
    uses = (InstanceUse(claim.launch.instance_type, claim.launch.zone, 1) for claim in on_demand)
    prices = {claim.launch.instance_type: _offering(claim)[2] for claim in on_demand}
    covered = {claim.name for claim in on_demand}
    others = sum(claim.launch.price for claim in plan.node_claims if claim.name not in covered)
    return others + CommitmentLedger(room).settle(merged(uses), prices) / MICROS


def _at(room: CommitmentRoom, weight: float) -> CommitmentRoom:
    return replace(room, weight=weight)


def _weights(snapshot: Snapshot, room: CommitmentRoom, types: _Types, decide: DecideAt) -> tuple[float, ...]:
    """A weight at which the room suffices, then a little less, at which more nodes are worth it than it covers."""
    quick = replace(snapshot, settings=replace(snapshot.settings, improve_s=0.0))

    def suffices(weight: float) -> bool:
        return not _kept(decide(quick, _at(room, weight)), room, types).missed

    low, high = LEAST_WEIGHT, _MOST_WEIGHT
    if suffices(low):
        return (low,)
    if not suffices(high):
        return (high,)
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high, low


class _Types:
    """The instance types of a snapshot by their EC2NodeClass and name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_class: Mapping[str, Mapping[str, InstanceType]] = {
            catalog.node_class: {item.name: item for item in catalog.instance_types} for catalog in snapshot.catalogs
        }

    def may_be_covered(self, claim: PlannedClaim) -> bool:
        """True if commitments may pay for the instance that a claim would be launched as."""
        launched = self.of(claim).get(claim.launch.instance_type)
        on_demand = claim.launch.capacity_type == labels.ON_DEMAND and claim.launch.price > 0
        return on_demand and launched is not None and is_linux(launched)

    def of(self, claim: PlannedClaim) -> dict[str, InstanceType]:
        """Return the known types of a claim's launch list, in its order."""
        known = self._by_class.get(claim.node_class, {})
        return {name: known[name] for name in claim.instance_types if name in known}


def _kept(
    plan: Plan, room: CommitmentRoom, types: _Types, worth: Callable[[PlannedClaim], float] | None = None
) -> _Kept:
    """The claims that the room covers as they were planned, as long as it lasts: those that it pays most of first.

    With `worth`, what a claim's pods cost at list prices, USD per hour, those come first for which commitments save
    most. Once the room covers one no more, claims for which it saves clearly less wait, too: the pods of that one may
    be planned on other nodes that it covers.
    """
    before, ledger = CommitmentLedger(room), CommitmentLedger(room)
    found = [(claim, cover) for claim in plan.node_claims if (cover := _quote(claim, before, types)).covered]
    saved = {claim.name: _saved(worth(claim), cover) if worth is not None else 0.0 for claim, cover in found}
    found.sort(key=lambda pair: _order(pair[0], pair[1], saved[pair[0].name]))
    claims: list[PlannedClaim] = []
    least = 0.0
    for claim, assumed in found:
        now = ledger.quote(*_offering(claim))
        if saved[claim.name] < least:
            continue
        if now.uncovered > assumed.uncovered or now.uncovered + now.weighed > assumed.uncovered + assumed.weighed:
            least = max(least, _CLEARLY_LESS * saved[claim.name])
            continue
        claims.append(_narrowed(claim, ledger.take(*_offering(claim)), before, types))
    return _Kept(tuple(claims), ledger.room, len(found) - len(claims))


def _saved(worth: float, cover: Coverage) -> float:
    """Return the saving per weighed dollar of commitments, for a claim whose pods cost `worth` at list prices."""
    return round((worth - cover.uncovered / MICROS) / max(cover.weighed / MICROS, 1e-9), 6)


def _order(claim: PlannedClaim, cover: Coverage, saved: float) -> tuple[float, float, float, str]:
    return -(saved // _ALIKE), cover.uncovered / cover.listed, -_fullness(claim), claim.name


def _fullness(claim: PlannedClaim) -> float:
    """Return the share of its scarcest resource that a claim uses."""
    shares = (claim.requests.get(name, 0) / amount for name, amount in claim.allocatable.items() if amount)
    return round(max(shares, default=0.0), 6)


def _quote(claim: PlannedClaim, ledger: CommitmentLedger, types: _Types) -> Coverage:
    """Return the coverage of a claim's launch.

    The plan gives static nodes and rooms for virtual pods what is left over.
    """
    if not claim.pods or claim.virtual_pods or not types.may_be_covered(claim):
        return Coverage(1, 1)
    return ledger.quote(*_offering(claim))


def _offering(claim: PlannedClaim) -> tuple[str, str, int]:
    launch = claim.launch
    return launch.instance_type, launch.zone, round(launch.price * MICROS)


def _narrowed(claim: PlannedClaim, cover: Coverage, ledger: CommitmentLedger, types: _Types) -> PlannedClaim:
    """The claim for on-demand instances of types that are covered like that of its launch.

    Where minValues asks for a choice of types, all of them stay.
    """
    pinned: dict[str, tuple[str, ...]] = {labels.CAPACITY_TYPE: (labels.ON_DEMAND,)}
    if cover.zonal:
        pinned[labels.ZONE] = (claim.launch.zone,)
    names = claim.instance_types
    if not any(line.min_values for line in claim.requirements):
        names = tuple(name for name, item in types.of(claim).items() if _like(item, claim, cover, ledger))
        pinned[labels.INSTANCE_TYPE] = tuple(sorted(names))
    lines = [line for line in claim.requirements if line.key not in pinned]
    lines += [RequirementSpec(key, "In", values) for key, values in pinned.items()]
    return replace(
        _paid(claim, cover),
        requirements=tuple(sorted(lines, key=lambda line: line.key)),
        labels={**claim.labels, **{key: values[0] for key, values in pinned.items() if len(values) == 1}},
        instance_types=names,
        relies_on_estimate=tuple(name for name in claim.relies_on_estimate if name in names),
    )


def _paid(claim: PlannedClaim, cover: Coverage) -> PlannedClaim:
    """The claim with what commitments pay for it, as a figure and as a reason."""
    reason = f"{REASON} ${cover.covered / MICROS:.4f} of ${cover.listed / MICROS:.4f} an hour"
    return replace(claim, covered=cover.covered / MICROS, reasons=(*claim.reasons, reason))


def _marked(plan: Plan, room: CommitmentRoom, types: _Types) -> Plan:
    """The plan with what commitments pay for claims at list prices, after those that were planned on commitments."""
    ledger = CommitmentLedger(room)
    marked = {}
    claims = sorted(plan.node_claims, key=lambda claim: (claim.covered is msgspec.UNSET, claim.name))
    for claim in claims:
        if not types.may_be_covered(claim):
            continue
        cover = ledger.take(*_offering(claim))
        if claim.covered is msgspec.UNSET and cover.covered:
            marked[claim.name] = _paid(claim, cover)
    return replace(plan, node_claims=tuple(marked.get(claim.name, claim) for claim in plan.node_claims))


def _like(item: InstanceType, claim: PlannedClaim, cover: Coverage, ledger: CommitmentLedger) -> bool:
    """True if commitments would cover a type in the launch's zone no less than the launch, and as cheaply."""
    if item.name == claim.launch.instance_type:
        return True
    price = min(
        (
            offering.price
            for offering in item.offerings
            if offering.capacity_type == labels.ON_DEMAND and offering.zone == claim.launch.zone and offering.available
        ),
        default=0.0,
    )
    if not price:
        return False
    other = ledger.quote(item.name, claim.launch.zone, round(price * MICROS))
    return other.uncovered <= cover.uncovered and other.taken <= cover.taken * _AS_CHEAP


_AS_CHEAP = 1.1
"""A type that takes up to so much more of commitments may be launched where the planned one has no capacity."""
