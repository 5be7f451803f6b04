"""Nodes that pods may use without launching anything: those that exist, whoever owns them, and those in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, Taint, Toleration
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requests import pod_requests
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.taints import is_ephemeral, untolerated
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.classes import HostPort, PodClass, encode_status, host_ports, ports_collide, signature
from shiplap.scheduling.daemons import Daemon, daemon_owner, expected_on_node
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.resources import PLENTY, Axis, Bools, Ints
from shiplap.scheduling.universe import careful_allocatable

STARTING_S = 900.0
"""How long a foreign node that is not Ready counts as one that is about to be."""

LEAVING_STATES = frozenset({ClaimState.DRAINING, ClaimState.TERMINATING})
"""States of claims whose node is on its way out: its room is gone and its pods need another."""

_OVER = frozenset({ClaimState.GONE, ClaimState.FAILED})

_OLDER_SPELLINGS: dict[str, tuple[str, ...]] = {}
for _older, _stable in labels.NORMALIZED.items():
    _OLDER_SPELLINGS[_stable] = (*_OLDER_SPELLINGS.get(_stable, ()), _older)


_Known = str | frozenset[Requirement | None] | None
"""A label: its value, the alternatives it may still become, or undefined."""


@dataclass(slots=True, eq=False)
class Room:
    """One node to fill. `labels` are certain; `possible` holds what an unlaunched claim has not decided yet, as do the
    labels of the instance types (places in the lane's catalogue) it may become. `net` [resources] is what is left for
    pods next to daemons where that follows from the types, not from a Node.

    `promised` are the pods (uid, or namespace/name) an in-flight claim was planned for.
    """

    name: str
    initialized: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: dict[str, int]
    possible: Requirements = field(default_factory=Requirements)
    lane: Lane | None = None
    types: tuple[int, ...] = ()
    net: Ints | None = None
    pods: list[Pod] = field(default_factory=list)
    promised: frozenset[str] = frozenset()
    estimated: bool = False


def pair(nodes: Sequence[Node], claims: Sequence[NodeClaim]) -> tuple[dict[str, NodeClaim], list[NodeClaim]]:
    """Match claims with the Nodes they became, by node name, label or instance id.

    Returns the claims by node name, and those in flight that have no Node yet. Claims that are over count for nothing.
    """
    by_name = {node.metadata.name: node for node in nodes}
    by_label = {node.metadata.labels.get(labels.NODE_CLAIM, ""): node for node in nodes}
    by_instance = {node.spec.provider_id.rpartition("/")[2]: node for node in nodes}
    paired: dict[str, NodeClaim] = {}
    waiting = []
    for claim in sorted(claims, key=lambda claim: claim.name):
        if claim.state in _OVER:
            continue
        node = by_name.get(claim.node_name) or by_label.get(claim.name)
        if node is None and claim.instance_id:
            node = by_instance.get(claim.instance_id)
        if node is not None:
            paired[node.metadata.name] = claim
        else:
            waiting.append(claim)
    return paired, waiting


def leaving(nodes: Iterable[Node], paired: Mapping[str, NodeClaim]) -> frozenset[str]:
    """Names of nodes that are being deleted: their pods need room elsewhere."""
    return frozenset(
        node.metadata.name
        for node in nodes
        if node.metadata.deletion_timestamp
        or (node.metadata.name in paired and paired[node.metadata.name].state in LEAVING_STATES)
    )


def rooms_of(
    nodes: Sequence[Node],
    paired: Mapping[str, NodeClaim],
    waiting: Sequence[NodeClaim],
    pods: Mapping[str, Sequence[Pod]],
    now: float,
    lanes: Sequence[Lane],
) -> list[Room]:
    """Usable nodes, finished ones first, then by name; claims without a Node come last.

    Args:
        nodes: all of the cluster.
        paired: claims by the name of the node they became.
        waiting: claims without a node.
        pods: by node name, those that use it.
        now: epoch seconds.
        lanes: of all NodePools; a claim in flight is reckoned as its lane would open it now.
    """
    known = {(lane.tier.pool, lane.tier.index): lane for lane in lanes}
    rooms = []
    for node in nodes:
        claim = paired.get(node.metadata.name)
        pool = node.metadata.labels.get(labels.NODE_POOL, "")
        room = _room_of_node(node, claim, next((lane for lane in lanes if lane.tier.pool == pool), None), now)
        if room is not None:
            room.pods = list(pods.get(room.name, ()))
            rooms.append(room)
    rooms.sort(key=lambda room: (not room.initialized, room.name))
    return rooms + [
        _room_of_claim(claim, known.get((claim.node_pool, claim.tier)))
        for claim in waiting
        if claim.state not in LEAVING_STATES
    ]


def _room_of_node(node: Node, claim: NodeClaim | None, lane: Lane | None, now: float) -> Room | None:
    """A Node as room, or None when pods cannot or should not go there.

    `lane` is one of its NodePool's: it knows the startup taints and what the type yields when the claim is not known.
    """
    meta, spec = node.metadata, node.spec
    if spec.unschedulable or meta.deletion_timestamp or (claim is not None and claim.state in LEAVING_STATES):
        return None
    managed = claim is not None or labels.NODE_POOL in meta.labels
    ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
    initialized = meta.labels.get(labels.INITIALIZED) == "true" if managed else ready
    if not ready and not (managed and not initialized) and not _starting(node, now):
        return None
    taints = spec.taints
    allocatable = parse_resources(node.status.allocatable)
    if not initialized:
        startup: tuple[Taint, ...] = ()
        expected: dict[str, int] = {}
        if claim is not None:
            startup, expected = claim.startup_taints, claim.allocatable
        elif lane is not None:
            startup = lane.pool.spec.template.spec.startup_taints
            place = lane.table.index.get(meta.labels.get(labels.INSTANCE_TYPE, ""))
            expected = careful_allocatable(lane.table.types[place]) if place is not None else {}
        taints = tuple(taint for taint in taints if taint not in startup and not is_ephemeral(taint))
        allocatable |= {name: amount for name, amount in expected.items() if not allocatable.get(name)}
    room = Room(meta.name, initialized, meta.labels, taints, allocatable)
    if claim is not None and claim.state not in (ClaimState.INITIALIZED, ClaimState.DISRUPTING):
        room.promised = _promised(claim)
        room.estimated = bool(claim.relies_on_estimate) and not node.status.allocatable
    return room


def _starting(node: Node, now: float) -> bool:
    born = node.metadata.creation_timestamp
    return born is not None and born != "" and now - epoch(born) < STARTING_S


def _room_of_claim(claim: NodeClaim, lane: Lane | None) -> Room:
    certain = {**claim.labels, labels.NODE_POOL: claim.node_pool, labels.NODE_CLASS: claim.node_class}
    launched = {
        labels.INSTANCE_TYPE: claim.instance_type,
        labels.ZONE: claim.zone,
        labels.CAPACITY_TYPE: claim.capacity_type,
    }
    certain |= {key: value for key, value in launched.items() if value}
    possible = Requirements.of(claim.requirements).and_(Requirements.of_labels(certain).values())
    candidates = (claim.instance_type,) if claim.instance_type else claim.instance_types
    types = tuple(lane.table.index[name] for name in candidates if name in lane.table.index) if lane else ()
    return Room(
        claim.name,
        False,
        certain,
        claim.taints,
        dict(claim.allocatable),
        possible=possible,
        lane=lane,
        types=types,
        net=_net(claim, lane, types) if lane is not None and types else None,
        promised=_promised(claim),
        estimated=bool(claim.relies_on_estimate),
    )


def _net(claim: NodeClaim, lane: Lane, types: Sequence[int]) -> Ints:
    """What is left for pods [resources] whichever of the types is launched: by the figures counted on, less daemons."""
    table = lane.table
    if claim.instance_type and claim.allocatable:
        counted = table.axis.vector(claim.allocatable)[None, :]
    else:
        lists = [
            item.allocatable if item.name in claim.relies_on_estimate else careful_allocatable(item)
            for item in (table.types[place] for place in types)
        ]
        counted = table.axis.matrix(lists)
    net: Ints = (counted - lane.daemons.overhead[list(types)]).min(axis=0)
    return net


def _promised(claim: NodeClaim) -> frozenset[str]:
    return frozenset(pod.uid or f"{pod.namespace}/{pod.name}" for pod in claim.pods)


class NodeTable:
    """Rooms as arrays: `free` [nodes, resources] shrinks as pods are placed; placements are remembered per node."""

    def __init__(self, rooms: Sequence[Room], daemons: Sequence[Daemon], axis: Axis) -> None:
        self.rooms = tuple(rooms)
        self.axis = axis
        self._values: dict[str, tuple[list[_Known], Ints]] = {}
        self._taint_sets = sorted({room.taints for room in rooms}, key=repr)
        number = {taints: place for place, taints in enumerate(self._taint_sets)}
        self._taints_of: Ints = np.array([number[room.taints] for room in rooms], np.int64)
        self.has_preferences = any(t.effect == "PreferNoSchedule" for taints in self._taint_sets for t in taints)
        self._ports: list[set[HostPort]] = [set() for _ in rooms]
        self._estimated: Bools = np.array([room.estimated for room in rooms], np.bool_)
        self.free: Ints = self._initial_room(daemons)
        self.placed: list[list[Pod]] = [[] for _ in rooms]

    def copy(self) -> NodeTable:
        """The same rooms with independent room left and no further placements shared."""
        twin = NodeTable.__new__(NodeTable)
        twin.__dict__.update(self.__dict__)
        twin.free = self.free.copy()
        twin.placed = [list(pods) for pods in self.placed]
        twin._ports = [set(ports) for ports in self._ports]
        return twin

    def _initial_room(self, daemons: Sequence[Daemon]) -> Ints:
        """Allocatable minus what bound pods take and what daemons that are not there yet will take."""
        usage = _Usage()
        free = self.axis.matrix([room.allocatable for room in self.rooms])
        runs = [
            self._fits_labels(daemon.terms, _may_meet) & self._tolerated(daemon.tolerations, soft=True)
            for daemon in daemons
        ]
        places: list[int] = []
        kinds: list[int] = []
        for place, room in enumerate(self.rooms):
            bound: list[Mapping[str, int]] = []
            for pod in room.pods:
                kind = usage.number(pod)
                places.append(place)
                kinds.append(kind)
                self._ports[place] |= usage.ports[kind]
                if pod.metadata.owner_references and daemon_owner(pod) is not None:
                    bound.append(usage.requests[kind])
            if room.net is not None:
                free[place] = room.net
            else:
                free[place] -= expected_on_node(daemons, [bool(run[place]) for run in runs], bound, self.axis)
        np.subtract.at(free, np.array(places, np.int64), self.axis.matrix(usage.requests)[np.array(kinds, np.int64)])
        return free

    def fits(self, item: PodClass, *, soft: bool = False) -> Bools:
        """Which nodes [nodes] meet a class's requirements (any of its terms) and are tolerated, whatever room is left.

        Args:
            item: the class.
            soft: tolerate PreferNoSchedule.
        """
        mask = self._fits_labels(item.terms, _meets) & self._tolerated(item.tolerations, soft=soft)
        return mask & ~self._estimated if item.missed else mask

    def count(self, item: PodClass, mask: Bools, requests: Ints) -> Ints:
        """How many pods of a class each node [nodes] still takes."""
        wanted = requests > 0
        if not wanted.any():
            many = np.full(len(self.rooms), PLENTY, np.int64)
        else:
            many = (self.free[:, wanted] // requests[wanted]).min(axis=1)
        many = np.where(mask, np.maximum(many, 0), 0)
        if item.ports:
            for place in np.flatnonzero(many).tolist():
                many[place] = 0 if ports_collide(item.ports, self._ports[place]) else 1
        return many

    def takes(self, item: PodClass, place: int, requests: Ints) -> bool:
        """Whether one node has room and free host ports for one pod of a class that suits it."""
        return bool((self.free[place] >= requests)[requests > 0].all()) and not (
            item.ports and ports_collide(item.ports, self._ports[place])
        )

    def place(self, item: PodClass, place: int, pods: Sequence[Pod], requests: Ints) -> None:
        """Put pods of a class on a node."""
        self.free[place] -= requests * len(pods)
        self.placed[place].extend(pods)
        self._ports[place] |= item.ports

    def _tolerated(self, tolerations: Sequence[Toleration], *, soft: bool) -> Bools:
        verdicts = [untolerated(taints, tolerations, ignore_preferences=soft) is None for taints in self._taint_sets]
        return np.array(verdicts, np.bool_)[self._taints_of]

    def _fits_labels(self, terms: Iterable[Requirements], verdict: Callable[[_Known, Requirement], bool]) -> Bools:
        mask = np.zeros(len(self.rooms), np.bool_)
        for term in terms:
            fits = np.ones(len(self.rooms), np.bool_)
            for entry in term.values():
                distinct, place = self._distinct(entry.key)
                fits &= np.array([verdict(known, entry) for known in distinct], np.bool_)[place]
            mask |= fits
        return mask

    def _distinct(self, key: str) -> tuple[list[_Known], Ints]:
        """The different things nodes say about a label, and which of them each node says."""
        known = self._values.get(key)
        if known is None:
            numbers: dict[_Known, int] = {}
            place = [numbers.setdefault(_label(room, key), len(numbers)) for room in self.rooms]
            known = self._values[key] = (list(numbers), np.array(place, np.int64))
        return known


class _Usage:
    """What bound pods take, computed once per distinct pod."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}
        self.requests: list[dict[str, int]] = []
        self.ports: list[frozenset[HostPort]] = []

    def number(self, pod: Pod) -> int:
        """The place of this pod's kind in `requests` and `ports`."""
        status = pod.status
        key = signature(pod.spec)
        if status.container_statuses or status.resources is not None or status.allocated_resources:
            key += encode_status(status)
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.requests)
            self.requests.append(pod_requests(pod))
            self.ports.append(host_ports(pod.spec))
        return number


def _label(room: Room, key: str) -> _Known:
    """What a room's label is or, on a claim not launched yet, what it may become."""
    value = room.labels.get(key)
    if value is not None:
        return value
    for older in _OLDER_SPELLINGS.get(key, ()):
        if older in room.labels:
            return room.labels[older]
    if key == labels.HOSTNAME:
        return room.name
    if key in room.possible:
        return frozenset((room.possible[key],))
    if room.lane is not None and room.types:
        return frozenset(room.lane.table.label(place, key) for place in room.types)
    return None


def _meets(known: _Known, wanted: Requirement) -> bool:
    """Whether a label meets a requirement whatever value a claim in flight ends up with.

    An undefined label meets only NotIn and DoesNotExist.
    """
    if known is None:
        return wanted.forbids_nothing_defined
    if isinstance(known, str):
        return wanted.has(known)
    return all(_implies(entry, wanted) for entry in known)


def _may_meet(known: _Known, wanted: Requirement) -> bool:
    """Whether some value the label may still take meets the requirement."""
    if known is None or isinstance(known, str):
        return _meets(known, wanted)
    return any(wanted.forbids_nothing_defined if entry is None else entry.intersects(wanted) for entry in known)


def _implies(known: Requirement | None, wanted: Requirement) -> bool:
    """Whether every value that `known` leaves also meets `wanted`."""
    if known is None or known.operator == "DoesNotExist":
        return wanted.forbids_nothing_defined
    both = known.intersection(wanted)
    return (both.complement, both.values, both.at_least, both.at_most) == (
        known.complement,
        known.values,
        known.at_least,
        known.at_most,
    )
