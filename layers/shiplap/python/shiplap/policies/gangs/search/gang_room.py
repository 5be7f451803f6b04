"""An upper bound of the room for gangs: those that exceed it need no plan to be refused.

It never promises too little: topology, host ports, volumes and what else is on a node are left aside. A gang within the
bound may still be short, which a plan finds out.

What a gang lacks in all under limits is told by the same measure. It is the least that is certain: nodes are taken to
hold as many members as they can, and to be of the type that costs the limit least.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Affinity, ObjectMeta, Pod, PodCondition, PodSpec, PodStatus
from shiplap.kubernetes.quantity import format_amount
from shiplap.policies.gangs.gang import GangMembers
from shiplap.policies.gangs.memory.gang_tries import GangSupply
from shiplap.scheduling.explain.nearest import amount
from shiplap.scheduling.model.pod_classes import PodClass, signature
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints, pods_held
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot, compile_snapshot
from shiplap.scheduling.supply.limits import HOURLY, NODES, SPOT_VCPUS, PoolLimits
from shiplap.scheduling.supply.open_claims import ClaimGroup, ClaimGroups, RefusalKind
from shiplap.scheduling.supply.openings import PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts

Size = tuple[int, int, bytes]
"""Where a pod may go, how many of its kind one node takes, and what it requests."""

_MONEY = (HOURLY, SPOT_VCPUS)
"""Limits whose charge depends on prices and on what else runs."""

_PENDING = PodStatus(conditions=(PodCondition("PodScheduled", "False", "Unschedulable"),))


class PodKinds:
    """The waiting pods of gangs by what they ask for: equal ones are looked at once."""

    def __init__(self) -> None:
        self.specs: list[PodSpec] = []
        self._numbers: dict[bytes, int] = {}
        self._of_gangs: dict[int, list[int]] = {}

    def of(self, members: GangMembers) -> list[int]:
        """The number of the kind of each waiting pod of a gang, sorted."""
        known = self._of_gangs.get(id(members))
        if known is None:
            known = self._of_gangs[id(members)] = sorted(self._kind(pod.spec) for pod in members.waiting)
        return known

    def _kind(self, spec: PodSpec) -> int:
        number = self._numbers.setdefault(signature(spec), len(self.specs))
        if number == len(self.specs):
            self.specs.append(spec)
        return number


class _Place(msgspec.Struct, frozen=True, eq=False):
    """The existing nodes [nodes] and the groups of new ones that suit a pod whatever its size, and the room there."""

    nodes: Bools
    groups: Sequence[ClaimGroup]
    room: Ints

    @property
    def pools(self) -> frozenset[str]:
        """The NodePools of the new ones."""
        return frozenset(group.template.pool.metadata.name for group in self.groups)


class _Kind(msgspec.Struct, frozen=True, eq=False):
    """What one kind of pods requests [resources], where it may go, and how many have a node there.

    `most` is how many have one when nothing of NodePools runs, `on_nodes` how many on nodes that exist, and
    `most_of_one` how many one node takes.
    """

    requests: Ints
    place: int
    number: int
    most: int
    on_nodes: int
    most_of_one: int

    @property
    def size(self) -> Size:
        """What kinds have in common that differ in their priority alone."""
        return self.place, self.most_of_one, self.requests.tobytes()


class _Need(msgspec.Struct, frozen=True, eq=False):
    """The least that a gang takes [resources]: in all, and of each place that some of its pods are bound to.

    `by_kind` and `by_size` are the fewest members of each kind and size that it needs. `asks` says what its pods ask
    for, and how many there are.
    """

    total: Ints
    by_place: Mapping[int, Ints]
    by_kind: Mapping[int, int]
    by_size: Mapping[Size, int]
    asks: Sequence[tuple[bytes, int]]


class _Shortfall(msgspec.Struct, frozen=True):
    """The amount of a resource, canonical, that the limits of NodePools are too low by; `needed` is what is asked."""

    resource: str
    short: int
    needed: int
    pools: tuple[str, ...]

    @property
    def text(self) -> str:
        """`short by at least 8 nvidia.com/gpu in all under the limit of NodePool train`."""
        what = self.resource
        if what == NODES and self.short == 1:
            what = "node"
        limits = "limits of NodePools" if len(self.pools) > 1 else "limit of NodePool"
        by = amount(self.resource, self.short)
        return f"short by at least {by} {what} in all under the {limits} {', '.join(self.pools)}"


class _MembersWithoutNode(msgspec.Struct, frozen=True, eq=False):
    """Equal members that no existing node has room for: what one requests [resources], and how many one node takes."""

    requests: Ints
    number: int
    most_of_one: int = PLENTY


class GangRoom:
    """The most that existing nodes and NodePools have for the gangs of one decision."""

    def __init__(self, snapshot: Snapshot, gangs: Sequence[GangMembers], kinds: PodKinds) -> None:
        """Raises ValueError for a malformed quantity of the snapshot."""
        numbers = [kinds.of(members) for members in gangs]
        compiled = compile_snapshot(_with_one_of_each(snapshot, kinds.specs))
        self._axis, self._limits = compiled.axis, compiled.limits
        self._places = _Places(compiled, best_effort=snapshot.settings.min_values_policy == "BestEffort")
        self._kinds = {
            int(pod.metadata.name): self._places.kind(pod_class)
            for pod_class in compiled.classes
            if not pod_class.problem
            for pod in pod_class.members
        }
        self._everywhere, self._specs = self._places.everywhere(), kinds.specs
        self._needs: dict[int, _Need] = {}
        alike: dict[tuple[int, ...], _Need] = {}
        for members, mine in zip(gangs, numbers, strict=True):
            if not self._kinds.keys() >= {*mine}:
                continue  # the plan says what is wrong with such a pod
            asked = (members.needed, *mine)
            if asked not in alike:
                alike[asked] = self._need(members.needed, Counter(mine))
            self._needs[id(members)] = alike[asked]

    def lack(self, gangs: Iterable[GangMembers]) -> str:
        """Return what all these gangs together have certainly too little of; nothing where that is not certain."""
        total = np.zeros(len(self._axis), np.int64)
        bound: dict[int, Ints] = {}
        numbers: Counter[int] = Counter()
        for members in gangs:
            need = self._needs.get(id(members))
            if need is None:
                continue
            numbers.update(need.by_kind)
            total += need.total
            for place, amounts in need.by_place.items():
                bound[place] = bound[place] + amounts if place in bound else amounts
        for number, needed in numbers.items():
            if needed > self._kinds[number].number:
                return f"nodes and NodePools have room for {self._kinds[number].number} of {needed} members at most"
        pairs = [(amounts, self._places.all[place].room) for place, amounts in bound.items()]
        return next(filter(None, (self._lack(*pair) for pair in ((total, self._everywhere), *pairs))), "")

    def shortfall(self, members: GangMembers, before: Iterable[GangMembers]) -> str:
        """Return what a gang lacks in all under limits, behind others; nothing where that is not certain."""
        mine = self._needs.get(id(members))
        if mine is None or len(mine.by_place) != 1:
            return ""
        (place,) = mine.by_place
        ahead = [need.by_size for need in (self._needs.get(id(other)) for other in before) if need is not None]
        kinds = []
        for size, kind in {self._kinds[number].size: self._kinds[number] for number in mine.by_kind}.items():
            total = mine.by_size[size] + sum(others.get(size, 0) for others in ahead)
            kinds.append(_MembersWithoutNode(kind.requests, max(total - kind.on_nodes, 0), kind.most_of_one))
        found = _worst_shortfall(self._places.all[place].groups, self._limits, kinds)
        return found.text if found is not None else ""

    def wait_for(self, members: GangMembers, before: Sequence[GangMembers]) -> frozenset[str]:
        """Return the resources that a gang lacks behind others, if it could have them once enough nodes have ended.

        There are none where its NodePools may never launch as much, or where EC2 has nothing to sell.
        """
        need = self._needs.get(id(members))
        if need is None or any(number > self._kinds[kind].most for kind, number in need.by_kind.items()):
            return frozenset()
        short: set[int] = set()
        for kind, number in need.by_kind.items():
            ahead_of_it = sum(
                self._needs[id(other)].by_kind.get(kind, 0) for other in before if id(other) in self._needs
            )
            if number + ahead_of_it > self._kinds[kind].number:
                short.update(np.flatnonzero(self._kinds[kind].requests).tolist())
        for place, amounts in need.by_place.items():
            ahead = [self._needs[id(other)].by_place.get(place) for other in before if id(other) in self._needs]
            asked = sum((other for other in ahead if other is not None), amounts)
            room, most = self._places.all[place].room, self._places.most(place)
            if (amounts > most).any():
                return frozenset()
            short.update(np.flatnonzero((asked > room) & (room < PLENTY)).tolist())
        return frozenset(self._axis.names[column] for column in short)

    def competes(self, members: GangMembers, other: GangMembers, resources: Collection[str]) -> bool:
        """True if a gang would take any of these resources where another one may be."""
        mine, theirs = self._needs.get(id(members)), self._needs.get(id(other))
        if mine is None or theirs is None:
            return False
        columns = [column for column, name in enumerate(self._axis.names) if name in resources]
        near = any(self._places.share(one, another) for one in mine.by_place for another in theirs.by_place)
        return near and bool(mine.total[columns].any())

    def seen(self, members: GangMembers) -> GangSupply | None:
        """Return what decides whether a gang has room; None where a plan says what is wrong with its pods."""
        need = self._needs.get(id(members))
        if need is None:
            return None
        room = Counter({"members": sum(min(self._kinds[number].number, PLENTY) for number in need.by_kind)})
        columns = np.flatnonzero(need.total).tolist()
        for place in need.by_place:
            room.update({self._axis.names[column]: int(self._places.all[place].room[column]) for column in columns})
        sold = [self._places.sold(place) for place in sorted(need.by_place)]
        digest = hashlib.sha256(repr((need.asks, sold)).encode()).hexdigest()[:16]
        return GangSupply(digest, {name: most for name, most in sorted(room.items()) if most < PLENTY})

    def _lack(self, needed: Ints, room: Ints) -> str:
        short = np.flatnonzero((needed > room) & (room < PLENTY)).tolist()
        if not short:
            return ""
        worst = max(short, key=lambda column: int(needed[column]) / max(int(room[column]), 1))
        name = self._axis.names[worst]
        asked, left = (format_amount(name, int(amounts[worst])) for amounts in (needed, room))
        return f"{name} for {asked} is needed, nodes and NodePools have room for {left} at most"

    def _need(self, needed: int, counts: Mapping[int, int]) -> _Need:
        spare = sum(counts.values()) - needed
        by_place: dict[int, dict[int, int]] = {}
        for number, count in counts.items():
            by_place.setdefault(self._kinds[number].place, {})[number] = count
        by_kind = {number: count - spare for number, count in counts.items() if count > spare}
        by_size = Counter[Size]()
        for number, count in by_kind.items():
            by_size[self._kinds[number].size] += count
        of_places = {place: self._least(some, spare) for place, some in by_place.items()}
        asks = sorted((signature(self._specs[number]), count) for number, count in counts.items())
        return _Need(self._least(counts, spare), of_places, by_kind, by_size, [(b"", needed), *asks])

    def _least(self, counts: Mapping[int, int], spare: int) -> Ints:
        """The least [resources] that these pods take if so many may be left out, resource by resource."""
        each = np.repeat([self._kinds[number].requests for number in counts], [*counts.values()], axis=0)
        least: Ints = np.sort(each, axis=0)[: max(len(each) - spare, 0)].sum(axis=0)
        return least


class _Places:
    """Finds out where kinds of pods may go, and how much room there is. `all` are the places, each once."""

    def __init__(self, compiled: CompiledSnapshot, *, best_effort: bool) -> None:
        self.all: list[_Place] = []
        self._compiled = compiled
        self._possible = PossibleNodes(compiled.templates, ClaimGroups(), best_effort=best_effort)
        self._attempts = PlacementAttempts(compiled.templates, compiled.nodes, compiled.axis, compiled.daemon_terms)
        self._of_shapes: dict[int, int] = {}
        self._sold: dict[int, str] = {}
        self._of_nobody: Bools = np.array(
            [labels.NODE_POOL not in node.labels for node in compiled.nodes.all], np.bool_
        )

    def kind(self, pod_class: PodClass) -> _Kind:
        """Return what one kind of pods requests, and where it may go."""
        number = self._of_shapes.get(id(pod_class.shape))
        if number is None:
            number = self._of_shapes[id(pod_class.shape)] = len(self.all)
            self.all.append(self._place(pod_class))
        requests, most_of_one = self._compiled.axis.vector(pod_class.requests), 1 if pod_class.ports else PLENTY
        place = self.all[number]
        on_all, on_others = (
            self._on_nodes(nodes, requests, most_of_one) for nodes in (place.nodes, place.nodes & self._of_nobody)
        )
        new, of_unused = (self._launchable(place, requests, most_of_one, is_unused=unused) for unused in (False, True))
        return _Kind(requests, number, on_all + new, on_others + of_unused, on_all, most_of_one)

    def _on_nodes(self, nodes: Bools, requests: Ints, most_of_one: int) -> int:
        """How many pods of a kind these nodes [nodes] have room for at most."""
        return int(np.minimum(pods_held(self._compiled.nodes.free[nodes], requests), most_of_one).sum())

    def _launchable(self, place: _Place, requests: Ints, most_of_one: int, *, is_unused: bool) -> int:
        """How many pods of a kind get new nodes at most; with `is_unused` if NodePools had none yet."""
        held, largest = 0, dict[str, int]()
        for group in place.groups:
            pool = group.template.pool.metadata.name
            each = max(pods_held(group.net, requests).tolist(), default=0)
            largest[pool] = max(largest.get(pool, 0), min(each, most_of_one))
        for pool, each in largest.items():
            limits = self._compiled.limits[pool]
            left = limits.amounts.get(NODES, PLENTY) if is_unused else limits.nodes_left
            held += max(left, 0) * each
        return held

    def everywhere(self) -> Ints:
        """The room [resources] of all places together."""
        nodes = np.zeros(len(self._compiled.nodes.all), np.bool_)
        for place in self.all:
            nodes |= place.nodes
        return self._room(nodes, [group for place in self.all for group in place.groups])

    def most(self, place: int) -> Ints:
        """The most [resources] that a place has when nothing of NodePools runs; other nodes count as they are."""
        found = self.all[place]
        return self._room(found.nodes & self._of_nobody, found.groups, is_unused=True)

    def sold(self, place: int) -> str:
        """Return a digest of what the NodePools of a place may launch: offerings, reserved units and limits."""
        if place not in self._sold:
            said = sorted(repr(_offers(group)) for group in self.all[place].groups)
            self._sold[place] = hashlib.sha256("".join(said).encode()).hexdigest()
        return self._sold[place]

    def share(self, place: int, other: int) -> bool:
        """True if two places have a node or a NodePool in common."""
        one, another = self.all[place], self.all[other]
        return bool((one.nodes & another.nodes).any()) or not one.pools.isdisjoint(another.pools)

    def _place(self, pod_class: PodClass) -> _Place:
        found = (
            self._possible.group(template, attempt)
            for attempt in self._attempts.of(pod_class)
            for template in self._compiled.templates
        )
        groups = [group for group in found if not isinstance(group, RefusalKind)]
        nodes = self._compiled.nodes.fits(pod_class, soft=True)
        return _Place(nodes, groups, self._room(nodes, groups))

    def _room(self, nodes: Bools, groups: Iterable[ClaimGroup], *, is_unused: bool = False) -> Ints:
        """What these nodes [nodes] have left, and what the NodePools of these groups may launch [resources].

        With `is_unused` the NodePools have launched nothing yet.
        """
        free = np.maximum(self._compiled.nodes.free[nodes], 0)
        room = [PLENTY if max(column, default=0) >= PLENTY else sum(column) for column in free.T.tolist()]
        largest: dict[str, Ints] = {}
        for group in groups:
            pool, most = group.template.pool.metadata.name, group.net.max(axis=0)
            largest[pool] = np.maximum(largest[pool], most) if pool in largest else most
        for pool, most in sorted(largest.items()):
            limits = self._compiled.limits[pool]
            left, nodes_left = limits.left.tolist(), limits.nodes_left
            if is_unused:
                left = [limits.amounts.get(name, PLENTY) for name in self._compiled.axis.names]
                nodes_left = limits.amounts.get(NODES, PLENTY)
            for column, (allowed, each) in enumerate(zip(left, most.tolist(), strict=True)):
                room[column] += max(min(allowed, nodes_left * each), 0)
        return np.array([min(amount, PLENTY) for amount in room], np.int64)


def _offers(group: ClaimGroup) -> tuple[object, ...]:
    """Return what a group of new nodes may be launched as, whatever it costs."""
    template, table = group.template, group.template.table
    types = np.unique(table.row_type[group.rows])
    cells = np.packbits(np.isfinite(table.prices[types])).tobytes()
    of_table = ([table.names[place] for place in types.tolist()], table.zones, table.capacity_types, cells)
    allowed = (sorted(template.limits.amounts.items()), sorted(template.units.items()))
    return template.name, *of_table, *allowed


def _with_one_of_each(snapshot: Snapshot, specs: Sequence[PodSpec]) -> Snapshot:
    """The snapshot with no pod that waits but one of each kind, whose name is its number, without what only bounds."""
    view = snapshot.view
    waiting = (Pod(ObjectMeta(str(number), "default"), _unbound(spec), _PENDING) for number, spec in enumerate(specs))
    bound = (pod for pods in view.by_node.values() for pod in pods)
    return replace(
        snapshot,
        view=replace(view, pods=(*bound, *waiting), events=()),
        manifests=replace(snapshot.manifests, capacity_buffers=()),
        missed_pods=frozenset(),
        settings=replace(snapshot.settings, default_spread=(), claim_rules=()),
    )


def _unbound(spec: PodSpec) -> PodSpec:
    """A specification without volumes, and without what it asks of other pods."""
    affinity = spec.affinity
    nodes_only = Affinity(node_affinity=affinity.node_affinity) if affinity is not None else None
    return replace(spec, volumes=(), topology_spread_constraints=(), affinity=nodes_only)


def _worst_shortfall(
    groups: Iterable[ClaimGroup], limits: Mapping[str, PoolLimits], kinds: Sequence[_MembersWithoutNode]
) -> _Shortfall | None:
    """Return the limit that kinds of members exceed by the largest share; None where none is exceeded for certain.

    Args:
        groups: the new nodes that suit the members.
        limits: those of NodePools, by name.
        kinds: the members; those of different kinds may share nodes, so the kind that needs most counts.
    """
    of_pools: dict[str, list[ClaimGroup]] = {}
    for group in groups:
        of_pools.setdefault(group.template.pool.metadata.name, []).append(group)
    pools = tuple(sorted(of_pools))
    bounds = [limits[pool] for pool in pools]
    found = []
    if bounds and all(NODES in each.amounts for each in bounds):
        left = sum(max(each.nodes_left, 0) for each in bounds)
        needed = max((_least(of_pools, kind, None) for kind in kinds), default=0)
        found.append(_Shortfall(NODES, needed - left, needed, pools))
    for column in sorted(set.intersection(*(set(each.columns.tolist()) for each in bounds))) if bounds else ():
        name = bounds[0].axis.names[column]
        if name not in _MONEY:
            left = sum(max(int(each.left[column]), 0) for each in bounds)
            needed = max((_least(of_pools, kind, column) for kind in kinds), default=0)
            found.append(_Shortfall(name, needed - left, needed, pools))
    short = [each for each in found if each.short > 0]
    return max(short, key=lambda each: (each.short / each.needed, each.resource), default=None)


def _least(of_pools: Mapping[str, Sequence[ClaimGroup]], kind: _MembersWithoutNode, column: int | None) -> int:
    """The least that a limit, of nodes without a column, is charged for members; 0 where no type holds any."""
    charges = []
    for group in (group for groups in of_pools.values() for group in groups):
        held = np.minimum(pods_held(group.net, kind.requests), min(kind.most_of_one, kind.number))
        holds = held > 0
        if holds.any():
            table = group.template.table
            each = 1 if column is None else table.capacity[table.row_type[group.rows[holds]], column]
            charges.append(int((-(-each * kind.number // held[holds])).min()))
    return min(charges, default=0)
