"""Existing nodes: Nodes of the cluster and claims in flight, as arrays.

They answer which of them suit a class of pods, and how many pods each still takes. Every Node counts, also one that
Shiplap does not manage. Nodes that are cordoned or leaving do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod, Taint, Toleration
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.taints import is_ephemeral, untolerated, with_lacking
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import IN_FLIGHT, LEAVING, ClaimState, NodeClaim
from shiplap.scheduling.model.planned_pods import STARTING_S
from shiplap.scheduling.model.pod_classes import NODE_NAME, HostPort, PodClass, ports_collide
from shiplap.scheduling.model.pod_volumes import ATTACHED, Attachments
from shiplap.scheduling.model.resources import PLENTY, Axis, Bools, Ints, pods_held
from shiplap.scheduling.model.scheduling_plan import Placement
from shiplap.scheduling.supply.daemons import Daemon, daemon_owner, expected_on_node
from shiplap.scheduling.supply.node_loads import NO_LOAD, NodeLoad, PodLoads
from shiplap.scheduling.supply.reservations import held_by
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class ExistingNode(msgspec.Struct, eq=False):
    """One node to fill. `labels` are certain; `possible` holds what an unlaunched claim has not decided yet, as do the
    labels of the instance types (places in the template's catalogue) it may become. `net` [resources] is what is left
    for pods next to daemons where that follows from the types, not from a Node.

    `attachments` are the volumes on it where their number is limited: on nodes whose CSI drivers have registered.
    `promised` are the pods (uid, or namespace/name) that it was launched for, or that keep their places.
    """

    name: str
    initialized: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: dict[str, int]
    possible: Requirements = msgspec.field(default_factory=Requirements)
    template: NodeClaimTemplate | None = None
    types: tuple[int, ...] = ()
    net: Ints | None = None
    pods: list[Pod] = msgspec.field(default_factory=list)
    promised: frozenset[str] = frozenset()
    estimated: bool = False
    attachments: Attachments | None = None


def list_existing_nodes(
    nodes: Sequence[Node],
    paired: Mapping[str, NodeClaim],
    waiting: Sequence[NodeClaim],
    pods: Mapping[str, Sequence[Pod]],
    now: float,
    templates: Sequence[NodeClaimTemplate],
    closed: Collection[str] = (),
    placed: Iterable[Placement] = (),
) -> list[ExistingNode]:
    """Usable nodes, finished ones first, then by name; claims without a Node come last.

    Args:
        nodes: all of the cluster.
        paired: claims by the name of the node they became.
        waiting: claims without a node.
        pods: by node name, those that use it.
        now: epoch seconds.
        templates: of all NodePools; a claim in flight is reckoned as its template would open it now.
        closed: names of claims whose allocatable is what the pods request that they have.
        placed: pods that keep their places.
    """
    known = {(template.tier.pool, template.tier.index, template.reserved): template for template in reversed(templates)}
    of_pool = {label_value_of(template.tier.pool): template for template in templates}
    existing_nodes = []
    for node in nodes:
        claim = paired.get(node.metadata.name)
        existing = _existing_node_of(node, claim, of_pool.get(node.metadata.labels.get(labels.NODE_POOL, "")), now)
        if existing is not None:
            existing.pods = list(pods.get(existing.name, ()))
            existing_nodes.append(existing)
    existing_nodes.sort(key=lambda existing: (not existing.initialized, existing.name))
    for claim in waiting:
        if claim.state in IN_FLIGHT:
            template = known.get((claim.plan.node_pool, claim.plan.tier, bool(held_by(claim))))
            existing = _existing_node_of_claim(claim, template, is_closed=claim.name in closed)
            # Pods may be bound to a Node that was not there yet when Nodes were read.
            existing.pods = list(pods.get(claim.node_name, ())) if claim.node_name else []
            existing_nodes.append(existing)
    kept = {place.name: {pod.uid or pod.key for pod in place.pods} for place in placed}
    for existing in existing_nodes:
        existing.promised |= kept.get(existing.name, set())
    return existing_nodes


def _existing_node_of(
    node: Node, claim: NodeClaim | None, template: NodeClaimTemplate | None, now: float
) -> ExistingNode | None:
    """A Node to fill, or None when pods cannot or should not go there.

    `template` is one of its NodePool's: it knows the startup taints and what the type yields when the claim is not
    known.
    """
    meta, spec = node.metadata, node.spec
    if spec.unschedulable or meta.deletion_timestamp or (claim is not None and claim.state in LEAVING):
        return None
    managed = claim is not None or labels.NODE_POOL in meta.labels
    ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
    initialized = meta.labels.get(labels.INITIALIZED) == "true" if managed else ready
    if not ready and not (managed and not initialized) and not _is_starting(node, now):
        return None
    taints = spec.taints
    allocatable = parse_resources(node.status.allocatable)
    if not initialized:
        startup: tuple[Taint, ...] = ()
        expected: dict[str, int] = {}
        if claim is not None:
            startup, expected = claim.plan.startup_taints, claim.plan.allocatable
        elif template is not None:
            startup = template.pool.spec.template.spec.startup_taints
            index = template.table.index.get(meta.labels.get(labels.INSTANCE_TYPE, ""))
            expected = template.table.types[index].careful_allocatable if index is not None else {}
        taints = tuple(taint for taint in taints if taint not in startup and not is_ephemeral(taint))
        allocatable |= {name: amount for name, amount in expected.items() if not allocatable.get(name)}
    known = meta.labels
    if claim is not None and known.get(labels.REGISTERED) != "true":
        # Registration adds what no kubelet knows. A pod that asks for it got a second node meanwhile.
        known = {**known, **claim.node_labels}
        taints = _with_taints_of(claim, node, taints)
    existing = ExistingNode(meta.name, initialized, known, taints, allocatable)
    if claim is not None and claim.state not in (ClaimState.INITIALIZED, ClaimState.DISRUPTING):
        existing.promised = _promised(claim)
        existing.estimated = bool(claim.plan.relies_on_estimate) and not node.status.allocatable
    return existing


def _is_starting(node: Node, now: float) -> bool:
    born = node.metadata.creation_timestamp
    return born is not None and born != "" and now - epoch(born) < STARTING_S


def _existing_node_of_claim(claim: NodeClaim, template: NodeClaimTemplate | None, *, is_closed: bool) -> ExistingNode:
    certain = claim.node_labels
    possible = Requirements.of(claim.plan.requirements).and_(Requirements.of_labels(certain).values())
    types = _possible_types(claim, template) if template is not None else ()
    net = _net_allocatable(claim, template, types, is_closed=is_closed) if template is not None and types else None
    return ExistingNode(
        claim.name,
        False,
        certain,
        claim.plan.taints,
        dict(claim.plan.allocatable),
        possible=possible,
        template=template,
        types=types,
        net=net,
        promised=_promised(claim),
        estimated=bool(claim.plan.relies_on_estimate),
    )


def _with_taints_of(claim: NodeClaim, node: Node, taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Return a node's taints with those that registration adds."""
    is_kept = node.metadata.labels.get(labels.DO_NOT_SYNC_TAINTS) == "true"
    return with_lacking(taints, () if is_kept else claim.plan.taints)


def _possible_types(claim: NodeClaim, template: NodeClaimTemplate) -> tuple[int, ...]:
    """Places of the types a claim may still be launched as: one that was found too small meanwhile is not asked for."""
    table = template.table
    if claim.known_instance.type:
        return (table.index[claim.known_instance.type],) if claim.known_instance.type in table.index else ()
    listed = [table.index[name] for name in claim.plan.instance_types if name in table.index]
    return tuple(index for index in listed if still_fits(claim, table.types[index])) or tuple(listed)


def still_fits(claim: NodeClaim, instance_type: InstanceType) -> bool:
    """True if a type, by what is known of it now, has room for the plan of a claim that is not launched yet."""
    allocatable = assumed_allocatable(instance_type, claim)
    return all(amount <= allocatable.get(resource, 0) for resource, amount in claim.plan.requests.items())


def assumed_allocatable(instance_type: InstanceType, claim: NodeClaim) -> dict[str, int]:
    """Return what a claim's plan relied on for a type: the estimate where the plan may use it, else the careful bound.

    Returns:
        Allocatable in canonical units.
    """
    if instance_type.verified or instance_type.name in claim.plan.relies_on_estimate:
        return instance_type.allocatable
    return instance_type.careful_allocatable


def _net_allocatable(claim: NodeClaim, template: NodeClaimTemplate, types: Sequence[int], *, is_closed: bool) -> Ints:
    """Return the room for pods [resources] whichever of the types is launched: the figures counted on, less daemons.

    Of a closed claim daemons are not counted: its room is that of its pods.
    """
    table = template.table
    if claim.plan.allocatable and (claim.known_instance.type or claim.state is ClaimState.LAUNCHED):
        counted = table.axis.vector(claim.plan.allocatable)[None, :]
    else:
        counted = table.axis.matrix([assumed_allocatable(table.types[index], claim) for index in types])
    possible = Requirements.of(claim.plan.requirements).and_(Requirements.of_labels(claim.launched_labels).values())
    daemons = 0 if is_closed else template.daemons_of_types(types, possible)
    net: Ints = (counted - daemons).min(axis=0)
    attached = [column for column, name in enumerate(table.axis.names) if name.startswith(ATTACHED)]
    if attached:
        net[attached] = table.allocatable[np.isin(table.row_type, types)][:, attached].min(axis=0)
    return net


def _promised(claim: NodeClaim) -> frozenset[str]:
    return frozenset(pod.uid or pod.key for pod in claim.plan.pods)


_OLDER_SPELLINGS: dict[str, tuple[str, ...]] = {}
for _older, _stable in labels.NORMALIZED.items():
    _OLDER_SPELLINGS[_stable] = (*_OLDER_SPELLINGS.get(_stable, ()), _older)

_KnownLabel = str | frozenset[Requirement | None] | None
"""A label: its value, the alternatives it may still become, or undefined."""


class ExistingNodes:
    """All existing nodes. `free` [nodes, resources] shrinks as pods are placed; `placed` holds these pods per node."""

    def __init__(
        self,
        existing_nodes: Sequence[ExistingNode],
        daemons: Sequence[Daemon],
        axis: Axis,
        loads: Mapping[str, NodeLoad],
    ) -> None:
        """`loads` say what the pods of nodes take, by name; of a node that is not among them the pods are read."""
        self.all = tuple(existing_nodes)
        self.axis = axis
        self._values: dict[str, tuple[list[_KnownLabel], Ints]] = {}
        self._taint_sets = sorted({existing.taints for existing in existing_nodes}, key=repr)
        number = {taints: index for index, taints in enumerate(self._taint_sets)}
        self._taints_of: Ints = np.array([number[existing.taints] for existing in existing_nodes], np.int64)
        self.has_preferences = any(t.effect == "PreferNoSchedule" for taints in self._taint_sets for t in taints)
        self._ports: list[set[HostPort]] = [set() for _ in existing_nodes]
        self._attachments = [existing.attachments for existing in existing_nodes]
        self._estimated: Bools = np.array([existing.estimated for existing in existing_nodes], np.bool_)
        self.free: Ints = self._initial_free(daemons, loads)
        self._take_ports_of(daemons)
        self.placed: list[list[Pod]] = [[] for _ in existing_nodes]
        self._last_fits: tuple[PodClass, bool, Requirements | None, Bools] | None = None

    def copy(self) -> ExistingNodes:
        """The same nodes with `free` and placements of their own."""
        copied = ExistingNodes.__new__(ExistingNodes)
        copied.__dict__.update(self.__dict__)
        copied.free = self.free.copy()
        copied.placed = [list(pods) for pods in self.placed]
        copied._ports = [set(ports) for ports in self._ports]
        copied._attachments = [known and known.copy() for known in self._attachments]
        return copied

    def part(self, indexes: Ints) -> ExistingNodes:
        """Some of these nodes in the same order, those at `indexes` [n], with what is placed now forgotten."""
        copied = ExistingNodes.__new__(ExistingNodes)
        copied.__dict__.update(self.__dict__)
        some = indexes.tolist()
        copied.all = tuple(self.all[index] for index in some)
        copied.free = self.free[indexes]
        copied.placed = [[] for _ in some]
        copied._values = {key: (known, index[indexes]) for key, (known, index) in self._values.items()}
        copied._taints_of = self._taints_of[indexes]
        copied._ports = [set(self._ports[index]) for index in some]
        attachments = [self._attachments[index] for index in some]
        copied._attachments = [known and known.copy() for known in attachments]
        copied._estimated = self._estimated[indexes]
        copied._last_fits = None
        return copied

    def _initial_free(self, daemons: Sequence[Daemon], loads: Mapping[str, NodeLoad]) -> Ints:
        """Allocatable minus what bound pods take and what daemons that are not there yet will take.

        Nothing is free on a node with a pod whose requests cannot be read.
        """
        kinds = PodLoads()
        free = self.axis.matrix([existing.allocatable for existing in self.all])
        runs = [
            self._fits_labels(daemon.terms, _may_meet) & self._tolerated(daemon.tolerations, soft=True)
            for daemon in daemons
        ]
        taken, unknown = [], []
        for index, existing in enumerate(self.all):
            try:
                load = (loads.get(existing.name) or kinds.load(existing.pods)) if existing.pods else NO_LOAD
            except ValueError:
                load = NO_LOAD
                unknown.append(index)
            taken.append(load.requests)
            self._ports[index] |= load.ports
            if existing.net is not None:
                free[index] = existing.net
            elif daemons:
                here = [bool(run[index]) for run in runs]
                free[index] -= expected_on_node(daemons, here, load.daemons, self.axis)
        attached = [column for column, name in enumerate(self.axis.names) if name.startswith(ATTACHED)]
        if attached:  # nodes that are there count the volumes themselves
            there = np.flatnonzero([existing.net is None for existing in self.all])
            free[np.ix_(there, attached)] = PLENTY
        free -= self.axis.matrix(taken)
        free[unknown] = 0
        return free

    def _take_ports_of(self, daemons: Sequence[Daemon]) -> None:
        """Keep the host ports of daemons free on the nodes where their pods are still to come."""
        for daemon in daemons:
            for index in np.flatnonzero(self.will_run(daemon)).tolist() if daemon.ports else ():
                self._ports[index] |= daemon.ports

    def will_run(self, daemon: Daemon) -> Bools:
        """On which nodes [nodes] a daemon will run that has no pod there yet."""
        suits = self._fits_labels(daemon.terms, _may_meet) & self._tolerated(daemon.tolerations, soft=True)
        there = [any(daemon_owner(pod) == daemon.owner for pod in existing.pods) for existing in self.all]
        coming: Bools = suits & ~np.array(there, np.bool_)
        return coming

    def fits(self, pod_class: PodClass, *, soft: bool = False, preferred: Requirements | None = None) -> Bools:
        """True for each node [nodes] that meets a class's requirements (any of its terms) and that the class tolerates.

        The room that is left does not matter.

        Args:
            item: the class.
            soft: tolerate PreferNoSchedule.
            preferred: a preference of the class that nodes have to meet as well.

        The last answer is remembered, because every domain that one attempt looks at asks for it; nobody may alter it.
        """
        last = self._last_fits
        if last is not None and last[0] is pod_class and last[1] == soft and last[2] is preferred:
            return last[3]
        mask = self._fitting(pod_class, soft=soft, preferred=preferred)
        mask.flags.writeable = False
        self._last_fits = (pod_class, soft, preferred, mask)
        return mask

    def _fitting(self, pod_class: PodClass, *, soft: bool, preferred: Requirements | None) -> Bools:
        mask = self._fits_labels(pod_class.terms, meets) & self._tolerated(pod_class.tolerations, soft=soft)
        if preferred is not None:
            mask &= self._fits_labels((preferred,), meets)
        return mask & ~self._estimated if pod_class.missed else mask

    def count(self, pod_class: PodClass, mask: Bools, requests: Ints) -> Ints:
        """Return how many pods of a class each node [nodes] still takes."""
        many = pods_held(self.free, requests)
        many[~mask] = 0
        if pod_class.ports:
            for index in np.flatnonzero(many).tolist():
                many[index] = 0 if ports_collide(pod_class.ports, self._ports[index]) else 1
        if pod_class.volumes.attaches:
            for index in np.flatnonzero(many).tolist():
                many[index] = min(many[index], self._volumes_left(pod_class, index))
        return many

    def takes(self, pod_class: PodClass, index: int, requests: Ints, most: int) -> int:
        """Return how many pods of a class that suits it one node takes, up to `most`.

        Room, host ports and places for volumes count.
        """
        if pod_class.ports:
            most = 0 if ports_collide(pod_class.ports, self._ports[index]) else 1
        wanted = requests > 0
        if wanted.any():
            most = min(most, int((self.free[index][wanted] // requests[wanted]).min()))
        return max(0, min(most, self._volumes_left(pod_class, index)))

    def place(self, pod_class: PodClass, index: int, pods: Sequence[Pod], requests: Ints) -> None:
        """Put pods of a class on a node."""
        self.free[index] -= requests * len(pods)
        self.placed[index].extend(pods)
        self._ports[index] |= pod_class.ports
        attachments = self._attachments[index]
        if attachments is not None:
            attachments.add(pod_class.volumes, len(pods))

    def _volumes_left(self, pod_class: PodClass, index: int) -> int:
        attachments = self._attachments[index]
        return PLENTY if attachments is None else attachments.room(pod_class.volumes)

    def _tolerated(self, tolerations: Sequence[Toleration], *, soft: bool) -> Bools:
        verdicts = [untolerated(taints, tolerations, ignore_preferences=soft) is None for taints in self._taint_sets]
        return np.array(verdicts, np.bool_)[self._taints_of]

    def _fits_labels(self, terms: Iterable[Requirements], verdict: Callable[[_KnownLabel, Requirement], bool]) -> Bools:
        mask = np.zeros(len(self.all), np.bool_)
        for term in terms:
            fits = np.ones(len(self.all), np.bool_)
            for entry in term.values():
                distinct, index = self._distinct(entry.key)
                fits &= np.array([verdict(known, entry) for known in distinct], np.bool_)[index]
                if not fits.any():
                    break
            mask |= fits
        return mask

    def _distinct(self, key: str) -> tuple[list[_KnownLabel], Ints]:
        """The different things nodes say about a label, and which of them each node says."""
        known = self._values.get(key)
        if known is None:
            numbers: dict[_KnownLabel, int] = {}
            index = [numbers.setdefault(label_of(existing, key), len(numbers)) for existing in self.all]
            known = self._values[key] = (list(numbers), np.array(index, np.int64))
        return known


def label_of(existing: ExistingNode, key: str) -> _KnownLabel:
    """Return the value of a node's label or, on a claim not launched yet, the alternatives that it may become."""
    value = existing.labels.get(key)
    if value is not None:
        return value
    for older in _OLDER_SPELLINGS.get(key, ()):
        if older in existing.labels:
            return existing.labels[older]
    if key == labels.HOSTNAME or (key == NODE_NAME and existing.template is None):
        return existing.name
    if key in existing.possible:
        return frozenset((existing.possible[key],))
    if existing.template is not None and existing.types:
        return frozenset(existing.template.table.label(index, key) for index in existing.types)
    return None


def meets(known: _KnownLabel, wanted: Requirement) -> bool:
    """True if a label meets a requirement whatever value a claim in flight ends up with.

    An undefined label meets only NotIn and DoesNotExist.
    """
    if known is None:
        return wanted.allows_undefined
    if isinstance(known, str):
        return wanted.has(known)
    return all(_implies(entry, wanted) for entry in known)


def _may_meet(known: _KnownLabel, wanted: Requirement) -> bool:
    """True if some value the label may still take meets the requirement."""
    if known is None or isinstance(known, str):
        return meets(known, wanted)
    return any(wanted.allows_undefined if entry is None else entry.intersects(wanted) for entry in known)


def _implies(known: Requirement | None, wanted: Requirement) -> bool:
    """True if every value that `known` leaves also meets `wanted`."""
    if known is None or known.operator == "DoesNotExist":
        return wanted.allows_undefined
    both = known.intersection(wanted)
    return (both.complement, both.values, both.at_least, both.at_most) == (
        known.complement,
        known.values,
        known.at_least,
        known.at_most,
    )
