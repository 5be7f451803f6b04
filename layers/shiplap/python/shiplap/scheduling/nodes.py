"""Rooms as arrays: which of them suit a class of pods, and how many pods each still takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod, Toleration
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.classes import HostPort, PodClass, ports_collide
from shiplap.scheduling.daemons import Daemon, expected_on_node
from shiplap.scheduling.loads import NO_LOAD, Kinds, Load
from shiplap.scheduling.resources import PLENTY, Axis, Bools, Ints
from shiplap.scheduling.rooms import Room
from shiplap.scheduling.volumes import ATTACHED

_OLDER_SPELLINGS: dict[str, tuple[str, ...]] = {}
for _older, _stable in labels.NORMALIZED.items():
    _OLDER_SPELLINGS[_stable] = (*_OLDER_SPELLINGS.get(_stable, ()), _older)

_Known = str | frozenset[Requirement | None] | None
"""A label: its value, the alternatives it may still become, or undefined."""


class NodeTable:
    """Rooms as arrays: `free` [nodes, resources] shrinks as pods are placed; placements are remembered per node."""

    def __init__(self, rooms: Sequence[Room], daemons: Sequence[Daemon], axis: Axis, loads: Mapping[str, Load]) -> None:
        """`loads` say what the pods of rooms take, by name; of a room that is not among them its pods are looked at."""
        self.rooms = tuple(rooms)
        self.axis = axis
        self._values: dict[str, tuple[list[_Known], Ints]] = {}
        self._taint_sets = sorted({room.taints for room in rooms}, key=repr)
        number = {taints: place for place, taints in enumerate(self._taint_sets)}
        self._taints_of: Ints = np.array([number[room.taints] for room in rooms], np.int64)
        self.has_preferences = any(t.effect == "PreferNoSchedule" for taints in self._taint_sets for t in taints)
        self._ports: list[set[HostPort]] = [set() for _ in rooms]
        self._attachments = [room.attachments for room in rooms]
        self._estimated: Bools = np.array([room.estimated for room in rooms], np.bool_)
        self.free: Ints = self._initial_room(daemons, loads)
        self.placed: list[list[Pod]] = [[] for _ in rooms]
        self._last_fits: tuple[PodClass, bool, Requirements | None, Bools] | None = None

    def copy(self) -> NodeTable:
        """The same rooms with independent room left and no further placements shared."""
        twin = NodeTable.__new__(NodeTable)
        twin.__dict__.update(self.__dict__)
        twin.free = self.free.copy()
        twin.placed = [list(pods) for pods in self.placed]
        twin._ports = [set(ports) for ports in self._ports]
        twin._attachments = [known and known.copy() for known in self._attachments]
        return twin

    def part(self, places: Ints) -> NodeTable:
        """Some of these rooms in the same order, those at `places` [n], with what is placed now forgotten."""
        twin = NodeTable.__new__(NodeTable)
        twin.__dict__.update(self.__dict__)
        some = places.tolist()
        twin.rooms = tuple(self.rooms[place] for place in some)
        twin.free = self.free[places]
        twin.placed = [[] for _ in some]
        twin._values = {key: (known, place[places]) for key, (known, place) in self._values.items()}
        twin._taints_of = self._taints_of[places]
        twin._ports = [set(self._ports[place]) for place in some]
        attachments = [self._attachments[place] for place in some]
        twin._attachments = [known and known.copy() for known in attachments]
        twin._estimated = self._estimated[places]
        twin._last_fits = None
        return twin

    def _initial_room(self, daemons: Sequence[Daemon], loads: Mapping[str, Load]) -> Ints:
        """Allocatable minus what bound pods take and what daemons that are not there yet will take."""
        kinds = Kinds()
        free = self.axis.matrix([room.allocatable for room in self.rooms])
        runs = [
            self._fits_labels(daemon.terms, _may_meet) & self._tolerated(daemon.tolerations, soft=True)
            for daemon in daemons
        ]
        taken = []
        for place, room in enumerate(self.rooms):
            load = (loads.get(room.name) or kinds.load(room.pods)) if room.pods else NO_LOAD
            taken.append(load.requests)
            self._ports[place] |= load.ports
            if room.net is not None:
                free[place] = room.net
            elif daemons:
                here = [bool(run[place]) for run in runs]
                free[place] -= expected_on_node(daemons, here, load.daemons, self.axis)
        attached = [column for column, name in enumerate(self.axis.names) if name.startswith(ATTACHED)]
        if attached:  # nodes that are there count the volumes themselves
            there = np.flatnonzero([room.net is None for room in self.rooms])
            free[np.ix_(there, attached)] = PLENTY
        free -= self.axis.matrix(taken)
        return free

    def fits(self, item: PodClass, *, soft: bool = False, preferred: Requirements | None = None) -> Bools:
        """Which nodes [nodes] meet a class's requirements (any of its terms) and are tolerated, whatever room is left.

        Args:
            item: the class.
            soft: tolerate PreferNoSchedule.
            preferred: a preference of the class that nodes have to meet as well.

        The last answer is remembered, because every domain that one attempt looks at asks for it; nobody may alter it.
        """
        last = self._last_fits
        if last is not None and last[0] is item and last[1] == soft and last[2] is preferred:
            return last[3]
        mask = self._fitting(item, soft=soft, preferred=preferred)
        mask.flags.writeable = False
        self._last_fits = (item, soft, preferred, mask)
        return mask

    def _fitting(self, item: PodClass, *, soft: bool, preferred: Requirements | None) -> Bools:
        mask = self._fits_labels(item.terms, meets) & self._tolerated(item.tolerations, soft=soft)
        if preferred is not None:
            mask &= self._fits_labels((preferred,), meets)
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
        if item.volumes.attaches:
            for place in np.flatnonzero(many).tolist():
                many[place] = min(many[place], self._volume_room(item, place))
        return many

    def takes(self, item: PodClass, place: int, requests: Ints, most: int) -> int:
        """How many pods of a class that suits it one node takes, up to `most`: room, host ports, places for volumes."""
        if item.ports:
            most = 0 if ports_collide(item.ports, self._ports[place]) else 1
        wanted = requests > 0
        if wanted.any():
            most = min(most, int((self.free[place][wanted] // requests[wanted]).min()))
        return max(0, min(most, self._volume_room(item, place)))

    def place(self, item: PodClass, place: int, pods: Sequence[Pod], requests: Ints) -> None:
        """Put pods of a class on a node."""
        self.free[place] -= requests * len(pods)
        self.placed[place].extend(pods)
        self._ports[place] |= item.ports
        attachments = self._attachments[place]
        if attachments is not None:
            attachments.add(item.volumes, len(pods))

    def _volume_room(self, item: PodClass, place: int) -> int:
        attachments = self._attachments[place]
        return PLENTY if attachments is None else attachments.room(item.volumes)

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
            place = [numbers.setdefault(label_of(room, key), len(numbers)) for room in self.rooms]
            known = self._values[key] = (list(numbers), np.array(place, np.int64))
        return known


def label_of(room: Room, key: str) -> _Known:
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


def meets(known: _Known, wanted: Requirement) -> bool:
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
        return meets(known, wanted)
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
